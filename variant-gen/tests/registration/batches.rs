//! Whether a model takes batches, where its file does not say so.

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_registry::JobState;
use sextant_types::{DataType, Metric};

use crate::bed::{Bed, quick};

const ONE: Dim = Dim::Fixed(1);
const ROW: Dim = Dim::Fixed(2);

/// `y` is made of `x` by one operator.
fn model(operator: &str, input: Dim, output: Dim) -> Bytes {
    let mut builder = ModelBuilder::new("rows", 1);
    builder.input("x", DataType::Fp32, &[input, ROW]);
    builder.output("y", DataType::Fp32, &[output, ROW]);
    match operator {
        // What a row becomes depends on the others.
        "ReduceSum" => {
            builder
                .constant("axes", &[1], &[0i64])
                .node(operator, &["x", "axes"], &["y"])
        }
        _ => builder.node(operator, &["x"], &["y"]),
    };
    builder.build()
}

/// Records that are answered by themselves.
fn records() -> Bytes {
    let line = |at: usize| format!("{{\"inputs\": {{\"x\": [{at}, 2]}}, \"label\": [{at}, 2]}}\n");
    (0..12).map(line).collect::<String>().into()
}

async fn registered(model: &Bytes, records: &Bytes) -> (bool, u16, String) {
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    let job = bed.submit_to("errors", "m", model, records).await;
    let job = bed.run_to_end(bed.generator(quick()), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("m").await;
    let most = variants.iter().map(|variant| variant.spec.max_batch).max();
    let variant = &variants[0];
    assert_eq!(variant.accuracy.value, 0.0);
    let result = job.result.expect("a result");
    (
        variant.signature.batched,
        most.expect("a variant"),
        result["changes"].to_string(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_fixed_at_one_or_declared_wrong_is_widened() {
    for (input, output) in [(ONE, ONE), (BATCH, ONE)] {
        let (batched, most, changes) =
            registered(&model("Identity", input, output), &records()).await;
        assert!(batched && most > 1, "{most}");
        assert!(changes.contains("served in batches"), "{changes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_depend_on_each_other_are_not_put_together() {
    let (batched, most, changes) = registered(&model("ReduceSum", ONE, ONE), &records()).await;
    assert!(!batched && most == 1, "{most}");
    assert_eq!(changes, "null");
}

/// The shares of the two rows of a record in each of four columns. The record is written into a `Reshape` of its rows.
fn shares() -> Bytes {
    let mut builder = ModelBuilder::new("shares", 1);
    builder.input("x", DataType::Fp32, &[ONE, ROW, Dim::Fixed(4)]);
    builder.output("y", DataType::Fp32, &[ONE, Dim::Fixed(8)]);
    builder.constant("apart", &[2], &[2i64, 4]);
    builder.constant("together", &[3], &[1i64, -1, 4]);
    builder.constant("flat", &[2], &[1i64, 8]);
    builder.node("Reshape", &["x", "apart"], &["rows"]);
    builder.node("Reshape", &["rows", "together"], &["record"]);
    let axis = vec![AttributeProto::int("axis", 1)];
    builder.node_with("Softmax", &["record"], &["shares"], axis);
    builder.node("Reshape", &["shares", "flat"], &["y"]);
    builder.build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_in_a_shape_stays_one_where_what_is_reshaped_counts_something_else() {
    let line = |at: usize| {
        let of = |it: usize| (((at * 8 + it) as f64) * 0.7).sin();
        let rows: Vec<Vec<f64>> = (0..2)
            .map(|row| (0..4).map(|column| of(row * 4 + column)).collect())
            .collect();
        let share = |it: usize| of(it).exp() / (of(it % 4).exp() + of(it % 4 + 4).exp());
        let label: Vec<f64> = (0..8).map(share).collect();
        format!(
            "{}\n",
            serde_json::json!({"inputs": {"x": rows}, "label": label})
        )
    };
    let records: Bytes = (0..12).map(line).collect::<String>().into();
    let (batched, most, changes) = registered(&shares(), &records).await;
    assert!(batched && most > 1, "{most}");
    assert!(changes.contains("served in batches"), "{changes}");
}

/// How to export a dynamic batch is said where records have another shape, and not where something else is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_batch_is_spoken_of_where_it_may_be_the_reason() {
    let three = model("ReduceSum", Dim::Fixed(3), ONE);
    let flat = records();
    let broken = Bytes::from_static(b"PK\x03\x04, and nothing else");
    for (records, is_said) in [(&flat, true), (&broken, false)] {
        let bed = Bed::new().await;
        bed.application("errors", Metric::MeanAbsoluteError).await;
        let job = bed.submit_to("errors", "m", &three, records).await;
        let job = bed.run_to_end(bed.generator(quick()), &job.job.id).await;
        let error = job.error.expect("it does not fit");
        let says = error.message.contains("takes batches of `3` alone");
        assert_eq!(says, is_said, "{}", error.message);
    }
}
