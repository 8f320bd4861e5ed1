//! ONNX graphs on NVIDIA GPUs behind the engine trait.
//!
//! Entry points: [`driver::Driver`], what a device does; [`operation::Operation`], what it computes.
//!
//! **Invariant:** knows nothing of requests or queues. Everything that decides how long a batch takes
//! is fixed before the batch comes: addresses, shapes, kernels and the order in which they run. After
//! the start no memory is allocated, on the device or pinned.

pub mod driver;
pub mod lower;
pub mod operation;
pub mod reference;

/// The engine's name in variant ids.
pub const NAME: &str = "cuda";
