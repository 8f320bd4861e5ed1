//! Containers as machines, of the engine of this machine where one answers. What needs none runs
//! everywhere.

mod docker {
    mod away;
    mod conformance;
    mod containers;
    mod faults;
    mod given;
    mod image;
    mod support;
}
