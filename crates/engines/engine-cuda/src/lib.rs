//! ONNX graphs on NVIDIA GPUs behind the engine trait.
//!
//! Entry points: [`CudaEngine::open`] on a device of this machine, [`CudaEngine::new`] over any
//! [`driver::Driver`].
//!
//! A file is read once ([`lower::Graph`]) and lowered for each set of input shapes to
//! [`operation::Operation`]s ([`lower()`](lower::lower)); [`plan`] gives weights and activations their
//! places; a driver captures the operations into a graph, which a batch replays.
//! [`driver::recording`] is a driver without a device: it computes by [`reference`](mod@reference).
//!
//! **Invariant:** knows nothing of requests or queues. Everything that decides how long a batch takes
//! is fixed before the batch comes: addresses, shapes, kernels and the order in which they run. After
//! the start no pinned memory is allocated, and of the device's none but what the driver keeps for captured graphs and for
//! mapping pages.

pub mod arena;
mod device;
pub mod driver;
pub mod engine;
mod graphs;
pub mod kernels;
pub mod lower;
mod model;
mod open;
pub mod operation;
mod parked;
pub mod plan;
mod prepared;
pub mod reference;
#[doc(hidden)]
pub mod suite;
mod writes;

pub use engine::{Config, CudaEngine};

/// The engine's name in variant ids.
pub const NAME: &str = "cuda";
