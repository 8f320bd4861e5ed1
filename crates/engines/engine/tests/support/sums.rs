//! A model whose answers may need 64-bit integers, for engines that compute them in 32.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Error, LoadedModel};
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::{AttributeProto, data_type},
};
use sextant_types::DataType;

/// Panics unless a sum of 64-bit integers is refused, by the name of its output, and so a float that is made of it.
pub fn are_refused(load: impl Fn(&Bytes) -> Result<Arc<dyn LoadedModel>, Error>) {
    let row = [BATCH, Dim::Fixed(2)];
    for is_float in [false, true] {
        let mut sum = ModelBuilder::new("sum", 0);
        sum.input("input", DataType::Int64, &row);
        sum.node("Add", &["input", "input"], &["twice"]);
        if is_float {
            let to = AttributeProto::int("to", i64::from(data_type::FLOAT));
            sum.node_with("Cast", &["twice"], &["number"], vec![to]);
            sum.output("number", DataType::Fp32, &row);
        } else {
            sum.output("twice", DataType::Int64, &row);
        }
        let output = if is_float { "`number`" } else { "`twice`" };
        match load(&sum.build()) {
            Err(Error::Unsupported(reason)) => assert!(reason.contains(output), "{reason}"),
            Err(other) => panic!("refused as `{other}`"),
            Ok(_) => panic!("accepted"),
        }
    }
}
