//! Variants from one ONNX file: generated, scored on the validation set, profiled, published.
//!
//! Entry points: [`Generator`] registers one model, or extends it by an engine; [`RegistrationService`]
//! claims and runs the jobs for both; [`Publisher`] keeps the metadata store in step with the registry;
//! [`validation`], [`measure`] and [`frontier`] are useful alone.
//!
//! **Invariant:** knows nothing of queries, and nothing of how a variant is chosen. Every step's
//! result is durable before the next one begins, and every step done twice is the same as once.

mod blocking;
pub mod checkpoint;
mod child;
mod config;
pub mod configuration;
mod error;
mod examiner;
mod extension;
mod generator;
pub mod guess;
pub mod interval;
mod isolation;
pub mod measure;
pub mod memory;
mod publisher;
mod rewriting;
pub mod score;
mod service;
pub mod step;
mod trials;
mod turns;
pub mod validation;

pub use child::serve_measurements;
pub use config::Config;
pub use error::Error;
pub use examiner::Examiner;
pub use generator::{Claim, Generator, Stores, Summary};
pub use isolation::Isolation;
pub use publisher::Publisher;
pub use service::RegistrationService;
pub use sextant_picture::frontier;
