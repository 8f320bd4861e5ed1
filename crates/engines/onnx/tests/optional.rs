//! What a caller may leave out, and what nothing needs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use sextant_onnx::{
    Error,
    adapt::{DeclaredSignature, Plain, advice_on_single_numbers, plain},
    builder::{BATCH, Dim, ModelBuilder},
    decode, encode, inspect,
    proto::{AttributeProto, GraphProto, ModelProto, TypeProto, ValueInfoProto, type_proto},
};
use sextant_types::{DataType, Tensor, convert};

const ROW: Dim = Dim::Fixed(4);

/// `y = x * scale + shift`.
fn scaled() -> ModelBuilder {
    let mut builder = ModelBuilder::new("scaled", 1);
    builder.input("x", DataType::Fp32, &[BATCH, ROW]);
    builder.constant("scale", &[1], &[2f32]);
    builder.constant("shift", &[1], &[1f32]);
    builder.node("Mul", &["x", "scale"], &["product"]);
    builder.node("Add", &["product", "shift"], &["y"]);
    builder.output("y", DataType::Fp32, &[BATCH, ROW]);
    builder
}

fn inputs(plain: &Plain) -> Vec<String> {
    let info = inspect(&plain.model).unwrap();
    let inputs = info.signature.inputs.iter();
    inputs.map(|it| it.name.clone()).collect()
}

fn kinds(graph: &GraphProto) -> Vec<&str> {
    graph.node.iter().map(|node| node.op_type()).collect()
}

#[test]
fn a_default_becomes_a_constant_that_engines_may_compute_with() {
    let mut model = scaled().model();
    model.ir_version = Some(3);
    let graph = model.graph.as_mut().unwrap();
    let one = [Dim::Fixed(1)];
    // The order is the exporter's.
    graph
        .input
        .insert(0, ValueInfoProto::tensor("scale", DataType::Fp32, &one));
    graph
        .input
        .push(ValueInfoProto::tensor("shift", DataType::Fp32, &one));
    let made = plain(&encode(&model), &DeclaredSignature::default()).unwrap();
    assert_eq!(inputs(&made), ["x"]);
    assert_eq!(made.changes.len(), 1, "{:?}", made.changes);
    let change = &made.changes[0];
    assert!(change.ends_with(": `scale`, `shift`"), "{change}");
    let model = decode(&made.model).unwrap();
    assert_eq!(model.ir_version(), 4);
    let names: Vec<&str> = model
        .graph
        .as_ref()
        .unwrap()
        .input
        .iter()
        .map(|it| it.name())
        .collect();
    assert_eq!(names, ["x"]);
    assert_eq!(model.graph.unwrap().initializer.len(), 2);
}

#[test]
fn many_defaults_are_counted_and_not_listed() {
    let mut builder = scaled();
    for at in 0..9 {
        let name = format!("unused{at}");
        builder.input(&name, DataType::Fp32, &[Dim::Fixed(1)]);
        builder.constant(&name, &[1], &[0f32]);
    }
    let made = plain(&builder.build(), &DeclaredSignature::default()).unwrap();
    let change = &made.changes[0];
    assert!(change.ends_with("`unused2` and 6 others"), "{change}");
}

fn make_optional(value: &mut ValueInfoProto) {
    let held = value.r#type.take().unwrap();
    let optional = type_proto::Optional {
        elem_type: Some(Box::new(held)),
    };
    value.r#type = Some(TypeProto {
        value: Some(type_proto::Value::OptionalType(Box::new(optional))),
        denotation: None,
    });
}

/// `y` is twice `x` where there is one; all of both is optional. The branch opens the value.
fn optional() -> ModelProto {
    let mut branch = ModelBuilder::new("there", 1);
    branch.node("OptionalGetElement", &["x"], &["opened"]);
    branch.node("Add", &["opened", "opened"], &["twice"]);
    branch.output("twice", DataType::Fp32, &[BATCH, ROW]);
    let mut other = ModelBuilder::new("missing", 1);
    other.constant("none", &[1, 4], &[0f32; 4]);
    other.node("Identity", &["none"], &["nothing"]);
    other.output("nothing", DataType::Fp32, &[BATCH, ROW]);
    let graph = |name, of: &ModelBuilder| {
        let mut attribute = AttributeProto::int(name, 0);
        attribute.i = None;
        attribute.r#type = Some(5);
        attribute.g = of.model().graph.map(Box::new);
        attribute
    };
    let mut builder = ModelBuilder::new("optional", 1);
    builder.opset(18);
    builder.input("x", DataType::Fp32, &[BATCH, ROW]);
    builder.node("OptionalHasElement", &["x"], &["is_there"]);
    let branches = vec![graph("then_branch", &branch), graph("else_branch", &other)];
    builder.node_with("If", &["is_there"], &["chosen"], branches);
    builder.node("Optional", &["chosen"], &["y"]);
    builder.output("y", DataType::Fp32, &[BATCH, ROW]);
    let mut model = builder.model();
    let graph = model.graph.as_mut().unwrap();
    make_optional(&mut graph.input[0]);
    make_optional(&mut graph.output[0]);
    model
}

#[test]
fn optional_inputs_and_outputs_are_always_there() {
    let file = encode(&optional());
    assert!(matches!(
        inspect(&file),
        Err(Error::UnsupportedValue { .. })
    ));
    let made = plain(&file, &DeclaredSignature::default()).unwrap();
    let info = inspect(&made.model).unwrap();
    assert!(info.signature.batched);
    assert_eq!(info.signature.inputs[0].shape_text(), "[?, 4]");
    assert_eq!(info.op_types, ["Add", "Constant", "Identity", "If"]);
    assert_eq!(made.changes.len(), 2, "{:?}", made.changes);
}

#[test]
fn an_optional_input_that_is_passed_on_is_refused() {
    let mut model = optional();
    let graph = model.graph.as_mut().unwrap();
    graph.node[0].op_type = Some("Identity".to_owned());
    let made = plain(&encode(&model), &DeclaredSignature::default()).unwrap();
    let error = inspect(&made.model).unwrap_err().to_string();
    assert!(error.contains("input `x` is optional"), "{error}");
}

/// `y = x * scale`, where `scale` is an input of this type and shape.
fn scaled_by(data_type: DataType, dims: &[Dim]) -> Bytes {
    let mut builder = ModelBuilder::new("scaled", 0);
    builder.input("x", DataType::Fp32, &[BATCH, ROW]);
    builder.input("scale", data_type, dims);
    builder.node_with(
        "Cast",
        &["scale"],
        &["factor"],
        vec![AttributeProto::int("to", 1)],
    );
    builder.node("Mul", &["x", "factor"], &["y"]);
    builder.output("y", DataType::Fp32, &[BATCH, ROW]);
    builder.build()
}

fn with_scale(file: &Bytes, values: &[f64]) -> Result<Plain, Error> {
    let declared = DeclaredSignature {
        constants: [("scale".to_owned(), values.to_vec())].into(),
        ..DeclaredSignature::default()
    };
    plain(file, &declared)
}

#[test]
fn an_input_that_is_the_same_in_every_query_becomes_a_constant() {
    let one = Dim::Fixed(1);
    for (data_type, dims, values, becomes) in [
        (DataType::Int64, &[][..], &[3.0][..], vec![3.0_f32]),
        (DataType::Fp32, &[one], &[0.5], vec![0.5]),
        (DataType::Fp16, &[], &[0.5], vec![0.5]),
        (DataType::Fp64, &[ROW], &[2.0], vec![2.0; 4]),
        (
            DataType::Int8,
            &[ROW],
            &[1.0, 2.0, 3.0, -4.0],
            vec![1.0, 2.0, 3.0, -4.0],
        ),
        (
            DataType::Fp32,
            &[BATCH, ROW],
            &[1.0, 2.0, 3.0, 4.0],
            vec![1.0, 2.0, 3.0, 4.0],
        ),
    ] {
        let file = scaled_by(data_type, dims);
        let made = with_scale(&file, values).unwrap();
        assert_eq!(inputs(&made), ["x"]);
        assert_eq!(made.changes.len(), 1, "{:?}", made.changes);
        assert!(made.changes[0].contains("`scale`"), "{:?}", made.changes);
        assert!(inspect(&made.model).unwrap().signature.batched);
        let graph = decode(&made.model).unwrap().graph.unwrap();
        let constant = &graph.initializer[0];
        assert_eq!(constant.name(), "scale");
        assert_eq!(constant.dims.len(), dims.len());
        let (held, bytes) = constant.to_bytes().unwrap();
        assert_eq!(held, data_type);
        let tensor = Tensor::from_bytes(held, vec![becomes.len()], bytes).unwrap();
        let tensor = convert::numbers(&tensor).unwrap();
        let held: Vec<f32> = tensor.map(|it| it.real() as f32).collect();
        assert_eq!(held, becomes);
    }
}

#[test]
fn what_no_input_can_have_is_refused_with_the_input() {
    let refused = |file: &Bytes, values: &[f64]| with_scale(file, values).unwrap_err().to_string();
    let whole = scaled_by(DataType::Int64, &[]);
    assert!(refused(&whole, &[0.5]).contains("constant `scale`: "));
    assert!(refused(&whole, &[1.0, 2.0]).contains("`2` values do not fill []"));
    let small = scaled_by(DataType::Uint8, &[ROW]);
    assert!(refused(&small, &[256.0]).contains("constant `scale`: "));
    assert!(refused(&small, &[1.0, 2.0, 3.0]).contains("`3` values do not fill [4]"));
    let huge = scaled_by(DataType::Fp32, &[Dim::Fixed(1 << 40), Dim::Fixed(1 << 40)]);
    assert!(refused(&huge, &[1.0]).contains("more than"));
    let text = scaled_by(DataType::Bytes, &[]);
    assert!(refused(&text, &[1.0]).contains("constant `scale`: "));
    let other = scaled().build();
    let said = refused(&other, &[1.0]);
    assert!(
        said.contains("no input `scale`: its inputs are `x`"),
        "{said}"
    );
}

#[test]
fn inputs_of_one_number_are_told_where_they_keep_a_model_from_batches() {
    let signature = |file: &Bytes| inspect(file).unwrap().signature;
    let advice = |file: &Bytes| advice_on_single_numbers(&signature(file));
    let told = advice(&scaled_by(DataType::Fp32, &[])).unwrap();
    assert!(told.contains("`--constant scale=VALUE`"), "{told}");
    assert_eq!(advice(&scaled_by(DataType::Fp32, &[ROW])), None);
    assert_eq!(advice(&scaled().build()), None);
}

#[test]
fn what_only_other_outputs_need_is_taken_out() {
    let mut builder = scaled();
    builder.constant("weights", &[4, 2], &[1f32; 8]);
    builder.node("MatMul", &["product", "weights"], &["z"]);
    builder.output("z", DataType::Fp32, &[BATCH, Dim::Fixed(2)]);
    let file: Bytes = builder.build();
    let kept = |outputs: &[&str]| {
        let declared = DeclaredSignature {
            outputs: outputs.iter().map(|it| (*it).to_owned()).collect(),
            ..DeclaredSignature::default()
        };
        let made = plain(&file, &declared).unwrap();
        decode(&made.model).unwrap().graph.unwrap()
    };
    let constants = |graph: &GraphProto| {
        let names = graph.initializer.iter().map(|it| it.name().to_owned());
        names.collect::<Vec<_>>()
    };
    let all = kept(&["z", "y"]);
    assert_eq!(kinds(&all), ["Mul", "Add", "MatMul"]);
    let first = kept(&["y"]);
    assert_eq!(kinds(&first), ["Mul", "Add"]);
    assert_eq!(constants(&first), ["scale", "shift"]);
    let second = kept(&["z"]);
    assert_eq!(kinds(&second), ["Mul", "MatMul"]);
    assert_eq!(constants(&second), ["scale", "weights"]);
}
