//! The `sextant` binary.
fn main() {}
