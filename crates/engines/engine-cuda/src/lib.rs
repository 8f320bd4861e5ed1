//! An engine that runs ONNX graphs on NVIDIA GPUs.
//!
//! Entry points: [`CudaEngine::open`] opens the engine on a device of this machine, [`CudaEngine::new`] over any
//! [`driver::Driver`].
//!
//! A file is read once ([`lower::Graph`]) and lowered for each set of input shapes to [`operation::Operation`]s
//! ([`lower()`](lower::lower)). [`plan`] places weights and activations. A driver captures the operations into a graph,
//! which each batch replays. [`driver::recording`] is a driver without a device: it computes by
//! [`reference`](mod@reference).
//!
//! **Invariant:** the engine knows nothing of requests or queues. Everything that decides how long a batch takes is
//! fixed before the batch comes: addresses, shapes, kernels and the order in which they run. After the start the engine
//! allocates no pinned memory, and no device memory except what the driver keeps for captured graphs and for mapping
//! pages.

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
