//! Makes variants of one ONNX file: generates them, scores them on the validation set, profiles and publishes them.
//!
//! Entry points: [`Generator`] registers one model, or extends it by an engine; [`RegistrationService`] claims and runs
//! the jobs for both; [`Publisher`] keeps the metadata store in step with the registry; [`validation`], [`measure`] and
//! [`frontier`] can be used alone.
//!
//! **Invariant:** this package knows nothing of queries, nor of how a variant is chosen. Every step's result is durable
//! before the next step begins, and a step that is done twice has the effect of one.

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
