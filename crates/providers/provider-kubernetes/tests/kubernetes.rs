//! Workloads of a cluster, over an API server that is played.

mod kubernetes {
    mod away;
    mod conformance;
    mod deployments;
    mod faults;
    mod stateful_sets;
    mod support;
}
