//! What a fuzzer plays with: every reader of bytes that come from outside.
//!
//! Entry point: [`TARGETS`]. Each target is a plain function that takes any bytes and panics when the
//! reader breaks a promise: that it never panics itself, that what it accepts can be used, and that what it
//! writes it reads again. `fuzz_targets/` hands them to libFuzzer, `tests/corpora.rs` replays the files under
//! `corpus/`, and `cargo xtask fuzz` runs them for a time.
//!
//! **Invariant:** the same bytes do the same each time: no clock and no chance decides anything here.

mod configuration;
mod files;
mod models;
mod pipelines;
mod queries;
mod validation;

pub use configuration::configuration;
pub use files::{record_arrays, record_lines};
pub use models::onnx;
pub use pipelines::pipeline;
pub use queries::{binary_query, json_query};
pub use validation::{validation_jsonl, validation_npz};

/// A target's name and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by name.
pub const TARGETS: [Target; 11] = [
    ("binary_query", binary_query),
    ("configuration", configuration),
    ("feedback_token", feedback_token),
    ("grpc_frames", grpc_frames),
    ("json_query", json_query),
    ("onnx", onnx),
    ("pipeline", pipeline),
    ("record_arrays", record_arrays),
    ("record_lines", record_lines),
    ("validation_jsonl", validation_jsonl),
    ("validation_npz", validation_npz),
];

/// Messages between the roles of a fleet. The first byte says which kind of frame it is.
pub fn grpc_frames(bytes: &[u8]) {
    sextant_links::grpc::check_frame(bytes);
}

/// The token of an answer, forged and signed.
pub fn feedback_token(bytes: &[u8]) {
    sextant_feedback::check_bytes(bytes);
}
