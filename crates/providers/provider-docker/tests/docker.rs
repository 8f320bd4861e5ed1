//! Containers as machines, with this machine's engine if one answers. Tests that need no engine run
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
