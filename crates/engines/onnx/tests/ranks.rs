//! Inputs and outputs that are declared without a shape.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use bytes::Bytes;
use sextant_onnx::{
    Error,
    builder::{BATCH, Dim, ModelBuilder},
    encode, inspect,
    proto::{ValueInfoProto, type_proto},
    ranks::{Unknown, declare, probe, unknown},
};
use sextant_types::DataType;

fn strip(value: &mut ValueInfoProto) {
    let Some(type_proto::Value::TensorType(tensor)) = &mut value.r#type.as_mut().unwrap().value
    else {
        panic!("it is a tensor");
    };
    tensor.shape = None;
}

/// `y = x`, `z = -x`; neither `x` nor `z` says what shape it has.
fn shapeless() -> Bytes {
    let dims = [BATCH, Dim::Fixed(4)];
    let mut builder = ModelBuilder::new("shapeless", 1);
    builder.input("x", DataType::Fp32, &dims);
    builder.output("y", DataType::Fp32, &dims);
    builder.output("z", DataType::Fp32, &dims);
    builder.node("Identity", &["x"], &["y"]);
    builder.node("Neg", &["x"], &["z"]);
    let mut model = builder.model();
    let graph = model.graph.as_mut().unwrap();
    strip(&mut graph.input[0]);
    strip(&mut graph.output[1]);
    encode(&model)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_has_no_shape_is_named_and_gets_the_one_that_was_found() {
    let file = shapeless();
    let expected = Unknown {
        inputs: names(&["x"]),
        outputs: names(&["z"]),
    };
    assert_eq!(unknown(&file).unwrap(), expected);
    assert!(matches!(
        inspect(&file),
        Err(Error::UnsupportedValue { .. })
    ));
    let shape = vec![None, None, Some(4)];
    // What is declared stays as it is.
    let shapes = ["x", "y", "z"].map(|name| (name.to_owned(), shape.clone()));
    let declared = declare(&file, &BTreeMap::from(shapes)).unwrap();
    assert_eq!(unknown(&declared).unwrap(), Unknown::default());
    let signature = inspect(&declared).unwrap().signature;
    let specs = signature.inputs.iter().chain(&signature.outputs);
    let texts: Vec<String> = specs.map(|it| it.shape_text()).collect();
    assert_eq!(texts, ["[?, ?, 4]", "[?, 4]", "[?, ?, 4]"]);
    assert!(signature.batched);
}

#[test]
fn a_probe_answers_with_the_shapes_that_are_missing() {
    let shapes = BTreeMap::from([("x".to_owned(), vec![None, Some(4)])]);
    let probe = probe(&declare(&shapeless(), &shapes).unwrap()).unwrap();
    let signature = inspect(&probe).unwrap().signature;
    let [output] = &signature.outputs[..] else {
        panic!("{signature:?}");
    };
    assert_eq!(
        (output.name.as_str(), output.data_type),
        ("z/shape", DataType::Int64)
    );
    assert!(signature.batched);
}

#[test]
fn files_that_are_no_models_are_refused() {
    let file = Bytes::from_static(b"no model");
    assert!(unknown(&file).is_err());
    assert!(probe(&file).is_err());
    assert!(declare(&file, &BTreeMap::new()).is_err());
}
