//! Files as exporters write them, brought to what can be served.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use sextant_onnx::{
    Error,
    adapt::{DeclaredSignature, plain, unbatched, widen},
    builder::{BATCH, Dim, ModelBuilder},
    decode, encode, inspect,
    proto::{AttributeProto, ModelProto, NodeProto, ValueInfoProto, type_proto},
    turn::turn,
};
use sextant_types::DataType;

const ROW: Dim = Dim::Fixed(4);

fn keeping(outputs: &[&str]) -> DeclaredSignature {
    DeclaredSignature {
        outputs: outputs.iter().map(|it| (*it).to_owned()).collect(),
        ..DeclaredSignature::default()
    }
}

/// A classifier whose scores of two classes end in a map, beside its answer.
fn mapped(labels: AttributeProto) -> ModelProto {
    let mut builder = ModelBuilder::new("mapped", 1);
    builder.input("x", DataType::Fp32, &[BATCH, ROW]);
    builder.random("w", &[4, 2], 1.0);
    builder.node("MatMul", &["x", "w"], &["scores"]);
    builder.node("ArgMax", &["scores"], &["label"]);
    builder.output("label", DataType::Int64, &[BATCH, Dim::Fixed(1)]);
    let mut model = builder.model();
    let graph = model.graph.as_mut().unwrap();
    let mut zip = NodeProto::new("ZipMap", "zip", &["scores"], &["chances"]).with(labels);
    zip.domain = Some("ai.onnx.ml".to_owned());
    graph.node.push(zip);
    graph.output.push(sequence("chances"));
    model
}

fn sequence(name: &str) -> ValueInfoProto {
    let mut value = ValueInfoProto::tensor(name, DataType::Fp32, &[]);
    let sequence = type_proto::Sequence { elem_type: None };
    value.r#type.as_mut().unwrap().value =
        Some(type_proto::Value::SequenceType(Box::new(sequence)));
    value
}

fn numbers() -> AttributeProto {
    AttributeProto::ints("classlabels_int64s", &[3, 7])
}

fn outputs(file: &Bytes) -> Vec<String> {
    let info = inspect(file).unwrap();
    let specs = info.signature.outputs.iter();
    let text = |spec: &sextant_types::TensorSpec| {
        format!("{} {} {}", spec.name, spec.data_type, spec.shape_text())
    };
    specs.map(text).collect()
}

#[test]
fn a_map_becomes_a_tensor_with_a_column_for_each_class() {
    let file = encode(&mapped(numbers()));
    assert!(matches!(
        inspect(&file),
        Err(Error::UnsupportedValue { .. })
    ));
    let plain = plain(&file, &DeclaredSignature::default()).unwrap();
    assert_eq!(
        outputs(&plain.model),
        ["label INT64 [?, 1]", "chances FP32 [?, 2]"]
    );
    let classes = ("chances".to_owned(), vec!["3".to_owned(), "7".to_owned()]);
    assert_eq!(plain.classes, [classes]);
    assert!(inspect(&plain.model).unwrap().signature.batched);
    let nodes = inspect(&plain.model).unwrap().op_types;
    assert!(
        !nodes.iter().any(|node| node.contains("ZipMap")),
        "{nodes:?}"
    );
}

#[test]
fn what_is_plain_stays_as_it_is() {
    let file = sextant_onnx::builder::mlp(&[4, 8, 3], 1);
    let plain = plain(&file, &DeclaredSignature::default()).unwrap();
    assert_eq!(
        (plain.model, plain.changes, plain.classes),
        (file, vec![], vec![])
    );
}

#[test]
fn other_sequences_are_left_out_unless_nothing_else_is_there() {
    let mut model = mapped(numbers());
    let graph = model.graph.as_mut().unwrap();
    graph.node.last_mut().unwrap().op_type = Some("Sequencer".to_owned());
    let made = plain(&encode(&model), &DeclaredSignature::default()).unwrap();
    assert_eq!(outputs(&made.model), ["label INT64 [?, 1]"]);
    assert!(made.changes[0].contains("`chances`"), "{:?}", made.changes);
    let wanted = plain(&encode(&model), &keeping(&["chances"])).unwrap();
    assert!(matches!(
        inspect(&wanted.model),
        Err(Error::UnsupportedValue { .. })
    ));
}

#[test]
fn outputs_are_kept_in_the_order_in_which_they_are_named() {
    let file = encode(&mapped(numbers()));
    let named = |names: &[&str]| plain(&file, &keeping(names));
    let made = named(&["chances", "label"]).unwrap();
    assert_eq!(
        outputs(&made.model),
        ["chances FP32 [?, 2]", "label INT64 [?, 1]"]
    );
    assert_eq!(
        outputs(&named(&["chances"]).unwrap().model),
        ["chances FP32 [?, 2]"]
    );
    let error = named(&["scores"]).unwrap_err().to_string();
    assert!(
        error.contains("`scores`") && error.contains("`label`, `chances`"),
        "{error}"
    );
}

#[test]
fn text_is_normalised_in_a_locale_that_is_everywhere() {
    let model = |locale: Option<&'static str>| {
        let mut builder = ModelBuilder::new("text", 1);
        let dims = [BATCH];
        builder.input("text", DataType::Bytes, &dims);
        builder.output("lower", DataType::Bytes, &dims);
        let locale = locale.map(|locale| AttributeProto::string("locale", locale));
        builder.node_with(
            "StringNormalizer",
            &["text"],
            &["lower"],
            locale.into_iter().collect(),
        );
        builder.build()
    };
    for (before, after) in [
        (None, "C.UTF-8"),
        (Some("en_US"), "C.UTF-8"),
        (Some("tr_TR"), "tr_TR"),
    ] {
        let made = plain(&model(before), &DeclaredSignature::default())
            .unwrap()
            .model;
        let graph = decode(&made).unwrap().graph.unwrap();
        let locale = graph.node[0]
            .attribute("locale")
            .unwrap()
            .s
            .clone()
            .unwrap();
        assert_eq!(locale, after);
    }
}

/// `y = x`, with these shapes.
fn identity(input: &[Dim], output: &[Dim]) -> Bytes {
    let mut builder = ModelBuilder::new("identity", 1);
    builder.input("x", DataType::Fp32, input);
    builder.output("y", DataType::Fp32, output);
    builder.node("Identity", &["x"], &["y"]);
    builder.build()
}

#[test]
fn a_batch_of_one_and_a_wrong_one_become_a_batch() {
    let one = Dim::Fixed(1);
    let two = Dim::Fixed(2);
    for (input, output) in [
        ([one, ROW], [one, ROW]),
        ([BATCH, ROW], [one, ROW]),
        ([two, ROW], [two, ROW]),
        ([two, ROW], [BATCH, ROW]),
    ] {
        let file = identity(&input, &output);
        assert!(!inspect(&file).unwrap().signature.batched);
        let wide = widen(&file).unwrap().unwrap();
        let signature = inspect(&wide).unwrap().signature;
        assert!(signature.batched, "{signature:?}");
        assert_eq!(signature.inputs[0].shape_text(), "[?, 4]");
    }
}

#[test]
fn a_batch_behind_time_comes_to_the_front() {
    let (time, batch) = (Dim::Dynamic("time"), Dim::Dynamic("batch_size"));
    let mut builder = ModelBuilder::new("recurrent", 1);
    builder.input("x", DataType::Fp32, &[time, batch, Dim::Fixed(3)]);
    builder.input("state", DataType::Fp32, &[batch, ROW]);
    builder.output("y", DataType::Fp32, &[time, batch, Dim::Fixed(3)]);
    builder.output("z", DataType::Fp32, &[batch, ROW]);
    builder.node("Identity", &["x"], &["y"]);
    builder.node("Identity", &["state"], &["z"]);
    let file = builder.build();
    assert!(!inspect(&file).unwrap().signature.batched);
    let turned = turn(&file).unwrap().unwrap();
    let signature = inspect(&turned).unwrap().signature;
    assert!(signature.batched, "{signature:?}");
    let shapes = signature.inputs.iter().chain(&signature.outputs);
    let shapes: Vec<String> = shapes
        .map(|it| format!("{} {}", it.name, it.shape_text()))
        .collect();
    assert_eq!(
        shapes,
        ["x [?, ?, 3]", "state [?, 4]", "y [?, ?, 3]", "z [?, 4]"]
    );
    let graph = decode(&turned).unwrap().graph.unwrap();
    let types: Vec<&str> = graph.node.iter().map(|node| node.op_type()).collect();
    assert_eq!(types, ["Transpose", "Identity", "Identity", "Transpose"]);
    let order = |at: usize| graph.node[at].attribute("perm").unwrap().ints.clone();
    assert_eq!((order(0), order(3)), (vec![1, 0, 2], vec![1, 0, 2]));
    assert_eq!(graph.node[0].output, graph.node[1].input);
    assert_eq!(graph.node[1].output, graph.node[3].input);
    // Nothing is to be done, or nobody says what the batch is.
    for dims in [[BATCH, ROW], [time, ROW], [time, Dim::Dynamic("n")]] {
        assert_eq!(turn(&identity(&dims, &dims)).unwrap(), None, "{dims:?}");
    }
}

#[test]
fn what_can_have_no_batch_is_not_widened() {
    let n = Dim::Dynamic("n");
    for dims in [&[][..], &[ROW, ROW], &[n, n]] {
        assert_eq!(widen(&identity(dims, dims)).unwrap(), None, "{dims:?}");
    }
}

#[test]
fn files_that_are_no_models_are_refused() {
    for file in [
        Bytes::new(),
        Bytes::from_static(b"no model"),
        Bytes::from(vec![0xff; 64]),
    ] {
        assert!(plain(&file, &DeclaredSignature::default()).is_err());
        assert!(widen(&file).is_err());
        assert!(turn(&file).is_err());
    }
}

#[test]
fn a_model_may_say_that_it_takes_no_batches() {
    let mut builder = ModelBuilder::new("vectors", 1);
    builder.input("x", DataType::Fp32, &[Dim::Dynamic("n")]);
    builder.node("Softmax", &["x"], &["y"]);
    builder.output("y", DataType::Fp32, &[Dim::Dynamic("n")]);
    let file = builder.build();
    assert!(inspect(&file).unwrap().signature.batched);
    let said = unbatched(&file).unwrap();
    let signature = inspect(&said).unwrap().signature;
    assert!(!signature.batched);
    assert_eq!(signature.inputs[0].shape, [None]);
    assert_eq!(unbatched(&said).unwrap(), said);
}
