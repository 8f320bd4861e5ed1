//! Variants from one ONNX file: generated, scored on the validation set, profiled, published.
//!
//! **Invariant:** knows nothing of queries, and nothing of how a variant is chosen.

pub mod configuration;
pub mod fit;
pub mod frontier;
pub mod interval;
pub mod measure;
pub mod memory;
pub mod score;
pub mod validation;
