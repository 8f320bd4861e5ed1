//! Models whose inputs or outputs are declared without a shape.

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    encode,
    proto::{ValueInfoProto, type_proto},
};
use sextant_registry::{Job, JobState};
use sextant_types::{Code, DataType, Metric, Signature};

use crate::bed::{Bed, quick};

const ROW: Dim = Dim::Fixed(2);

fn strip(value: &mut ValueInfoProto) {
    let kind = value.r#type.as_mut().and_then(|it| it.value.as_mut());
    if let Some(type_proto::Value::TensorType(tensor)) = kind {
        tensor.shape = None;
    }
}

/// `y` is made of `x` by one operator; which of them say what shape they have?
fn model(operator: &str, [of_input, of_output]: [bool; 2]) -> Bytes {
    let mut builder = ModelBuilder::new("rows", 1);
    builder.input("x", DataType::Fp32, &[BATCH, ROW]);
    builder.output("y", DataType::Fp32, &[BATCH, ROW]);
    match operator {
        // What a row becomes depends on the others.
        "CumSum" => builder
            .constant("axis", &[], &[0i64])
            .node(operator, &["x", "axis"], &["y"]),
        _ => builder.node(operator, &["x"], &["y"]),
    };
    let mut model = builder.model();
    let graph = model.graph.as_mut().expect("a graph");
    if !of_input {
        strip(&mut graph.input[0]);
    }
    if !of_output {
        strip(&mut graph.output[0]);
    }
    encode(&model)
}

/// Records that are answered by themselves.
fn lines() -> Bytes {
    let line = |at: usize| format!("{{\"inputs\": {{\"x\": [{at}, 2]}}, \"label\": [{at}, 2]}}\n");
    (0..12).map(line).collect::<String>().into()
}

async fn register(model: &Bytes, records: &Bytes) -> (Job, Option<Signature>) {
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    let job = bed.submit_to("errors", "m", model, records).await;
    let job = bed.run_to_end(bed.generator(quick()), &job.job.id).await;
    let variants = bed.variants("m").await;
    let signature = variants.first().map(|it| it.signature.clone());
    (job, signature)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shapes_come_from_the_records_and_from_runs() {
    for known in [[true, false], [false, true], [false, false]] {
        let (job, signature) = register(&model("Identity", known), &lines()).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
        let signature = signature.expect("variants");
        assert!(signature.batched);
        for spec in signature.inputs.iter().chain(&signature.outputs) {
            assert_eq!(spec.shape_text(), "[?, 2]", "{}", spec.name);
        }
        let changes = job.result.expect("a result")["changes"].to_string();
        let told = |text: &str| changes.contains(text);
        assert_eq!(told("[?, 2] is taken from the validation set"), !known[0]);
        assert_eq!(told("[?, 2] was found by running it"), !known[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_whose_records_say_nothing_is_refused_with_what_helps() {
    let table = Bytes::from("x.0,x.1,label.0,label.1\n1,2,1,2\n".repeat(3));
    let (job, _) = register(&model("Identity", [false, true]), &table).await;
    let error = job.error.expect("it fails");
    assert_eq!(error.code, Code::InvalidModel);
    assert!(
        error.message.contains("`x` is declared without a shape") && error.message.contains(".npz"),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_depend_on_each_other_are_not_taken_for_batches() {
    let (job, _) = register(&model("CumSum", [false, true]), &lines()).await;
    let error = job.error.expect("it fails");
    assert!(
        error.message.contains("not answered as the records are"),
        "{error:?}"
    );
}
