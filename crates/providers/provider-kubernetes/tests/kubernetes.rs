//! Workloads of a cluster, with a simulated API server.

mod kubernetes {
    mod away;
    mod conformance;
    mod deployments;
    mod faults;
    mod stateful_sets;
    mod support;
}
