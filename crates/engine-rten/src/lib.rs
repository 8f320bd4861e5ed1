//! The pure-Rust engine rten behind the engine trait.
