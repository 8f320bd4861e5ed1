//! `cargo xtask`: development commands.
fn main() {}
