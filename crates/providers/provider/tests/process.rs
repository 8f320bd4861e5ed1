//! Child processes as machines.

mod process {
    mod conformance;
    mod crash;
    mod faults;
    mod files;
    mod places;
    mod support;
}
