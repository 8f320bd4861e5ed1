//! Models whose callers may leave something out.

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    encode,
    proto::{TypeProto, ValueInfoProto, type_proto},
};
use sextant_registry::JobState;
use sextant_types::{DataType, Metric};

use crate::bed::{Bed, quick};

const ROW: Dim = Dim::Fixed(2);

fn make_optional(value: &mut ValueInfoProto) {
    let optional = type_proto::Optional {
        elem_type: value.r#type.take().map(Box::new),
    };
    value.r#type = Some(TypeProto {
        value: Some(type_proto::Value::OptionalType(Box::new(optional))),
        denotation: None,
    });
}

/// `y = x * scale`, where `scale` is 1 unless it is given, and `x` may be left out.
fn model() -> Bytes {
    let mut builder = ModelBuilder::new("scaled", 1);
    builder.opset(18);
    builder.input("scale", DataType::Fp32, &[Dim::Fixed(1)]);
    builder.constant("scale", &[1], &[1f32]);
    builder.input("x", DataType::Fp32, &[BATCH, ROW]);
    builder.node("OptionalGetElement", &["x"], &["opened"]);
    builder.node("Mul", &["opened", "scale"], &["y"]);
    builder.output("y", DataType::Fp32, &[BATCH, ROW]);
    let mut model = builder.model();
    let graph = model.graph.as_mut().expect("a graph");
    make_optional(&mut graph.input[1]);
    encode(&model)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_out_and_defaults_stay() {
    let line = |at: usize| format!("{{\"inputs\": {{\"x\": [{at}, 2]}}, \"label\": [{at}, 2]}}\n");
    let records: Bytes = (0..12).map(line).collect::<String>().into();
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    let job = bed.submit_to("errors", "m", &model(), &records).await;
    let job = bed.run_to_end(bed.generator(quick()), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("m").await;
    let inputs = variants[0].signature.inputs.iter();
    let names: Vec<&str> = inputs.map(|it| it.name.as_str()).collect();
    assert_eq!((names, variants[0].accuracy.value), (vec!["x"], 0.0));
    let changes = job.result.expect("a result")["changes"].to_string();
    assert!(changes.contains("left at it"), "{changes}");
    assert!(changes.contains("`x` was optional"), "{changes}");
}
