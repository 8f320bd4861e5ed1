//! Emulated.
