//! A model whose answers may need 64-bit integers, for engines that compute them in 32.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Error, LoadedModel};
use sextant_onnx::builder::{BATCH, Dim, ModelBuilder};
use sextant_types::DataType;

/// Panics unless a sum of 64-bit integers is refused, by the name of its output.
pub fn are_refused(load: impl FnOnce(&Bytes) -> Result<Arc<dyn LoadedModel>, Error>) {
    let row = [BATCH, Dim::Fixed(2)];
    let mut sum = ModelBuilder::new("sum", 0);
    sum.input("input", DataType::Int64, &row);
    sum.node("Add", &["input", "input"], &["twice"]);
    sum.output("twice", DataType::Int64, &row);
    match load(&sum.build()) {
        Err(Error::Unsupported(reason)) => assert!(reason.contains("`twice`"), "{reason}"),
        Err(other) => panic!("refused as `{other}`"),
        Ok(_) => panic!("accepted"),
    }
}
