//! A script that starts and ends machines.

mod command {
    mod answers;
    mod calls;
    mod conformance;
    mod lag;
    mod support;
}
