//! Queries that share a batch never see each other: what does not keep them apart serves them one at a time, and says so.

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder, mlp},
    proto::AttributeProto,
    quantize_dynamic,
};
use sextant_registry::JobState;
use sextant_types::{DataType, Metric, Precision, Variant};
use sextant_variant_gen::{Config, measure::Effort};

use crate::bed::{Bed, quick};

const THREE: Dim = Dim::Fixed(3);

/// Rows of the largest batch.
const LARGEST: u16 = 64;

fn config() -> Config {
    let quick = quick();
    Config {
        effort: Effort {
            largest_batch: LARGEST,
            ..quick.effort
        },
        ..quick
    }
}

/// How a registration ended.
struct RegistrationResult {
    variants: Vec<Variant>,
    changes: String,
}

impl RegistrationResult {
    fn in_single_precision(&self) -> impl Iterator<Item = &Variant> {
        let variants = self.variants.iter();
        variants.filter(|variant| variant.spec.precision == Precision::Fp32)
    }

    /// Whether its queries share batches; why not is said where a user looks for it.
    fn shares_batches(&self) -> bool {
        let mut all = self.in_single_precision();
        let shared = all.all(Variant::shares_batches);
        if !shared {
            let reasons = self.in_single_precision().map(Variant::why_apart);
            assert!(reasons.into_iter().all(|reason| reason.is_some()));
            assert_ne!(self.changes, "null", "it is said in the job");
        }
        shared
    }
}

/// Registers a model with records that have no labels, of `x` and what else is given.
async fn register(model: &Bytes, records: impl Fn(usize) -> String) -> RegistrationResult {
    let lines = (0..24).map(|at| format!("{{\"inputs\": {{{}}}}}\n", records(at)));
    let set: Bytes = lines.collect::<String>().into();
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    let job = bed.submit_to("errors", "m", model, &set).await;
    let job = bed.run_to_end(bed.generator(config()), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    RegistrationResult {
        variants: bed.variants("m").await,
        changes: job.result.expect("a result")["changes"].to_string(),
    }
}

fn row(at: usize) -> String {
    let value = |of: usize| ((at * 7 + of * 3) % 11) as f32 / 4.0 + 0.25;
    format!("\"x\": [{}, {}, {}]", value(0), value(1), value(2))
}

/// `y` is `x` and something else depends on the batch, as `rest` has it.
fn model(rest: impl FnOnce(&mut ModelBuilder)) -> Bytes {
    let mut builder = ModelBuilder::new("company", 1);
    builder.input("x", DataType::Fp32, &[BATCH, THREE]);
    rest(&mut builder);
    builder.build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_answered_by_themselves_share_batches() {
    let model = model(|builder| {
        builder.output("y", DataType::Fp32, &[BATCH, THREE]);
        builder.node("Sigmoid", &["x"], &["y"]);
    });
    let registered = register(&model, row).await;
    assert!(registered.shares_batches(), "{}", registered.changes);
    let largest = registered.variants.iter().map(|it| it.spec.max_batch).max();
    assert_eq!(largest, Some(LARGEST));
}

/// A file that counts what it found, with one thing in each record: neither the records nor its names give it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_what_all_rows_have_is_not_divided_among_them() {
    for counts in ["num_dets", "unk__7"] {
        let model = model(|builder| {
            builder.output("found", DataType::Fp32, &[Dim::Dynamic(counts)]);
            builder
                .constant("least", &[], &[2.5f32])
                .node("Greater", &["x", "least"], &["has"])
                .node("Compress", &["x", "has_flat"], &["found"]);
            builder.constant("flat", &[1], &[-1i64]).node(
                "Reshape",
                &["has", "flat"],
                &["has_flat"],
            );
        });
        // Nodes stand in an order in which each has what it reads.
        let model = sorted(&model);
        let one = |at: usize| format!("\"x\": [{}, 3, 1]", (at % 5) as f32 / 4.0);
        let registered = register(&model, one).await;
        assert!(!registered.shares_batches(), "{counts}");
        let is_named = registered.changes.contains("`num_dets`");
        assert_eq!(is_named, counts == "num_dets", "{}", registered.changes);
    }
}

/// Puts each node behind those whose outputs it reads.
fn sorted(model: &Bytes) -> Bytes {
    let mut model = sextant_onnx::decode(model).expect("a model");
    let graph = model.graph.as_mut().expect("a graph");
    let made_by = |name: &String, of: &[sextant_onnx::proto::NodeProto]| {
        of.iter().any(|node| node.output.contains(name))
    };
    let mut left = std::mem::take(&mut graph.node);
    while !left.is_empty() {
        let ready = left
            .iter()
            .position(|node| !node.input.iter().any(|name| made_by(name, &left)))
            .expect("no circle");
        graph.node.push(left.remove(ready));
    }
    sextant_onnx::encode(&model)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_numbers_of_a_batch_beside_floats_of_rows_are_seen() {
    let model = model(|builder| {
        builder.output("score", DataType::Fp32, &[BATCH, THREE]);
        builder.output("best", DataType::Int64, &[BATCH, THREE]);
        let axis = vec![
            AttributeProto::int("axis", 0),
            AttributeProto::int("keepdims", 1),
        ];
        builder
            .node("Identity", &["x"], &["score"])
            .node_with("ArgMax", &["x"], &["of_batch"], axis)
            .node("Shape", &["x"], &["like"])
            .node("Expand", &["of_batch", "like"], &["best"]);
    });
    let registered = register(&model, row).await;
    assert!(!registered.shares_batches());
    assert!(
        registered.changes.contains("`best`"),
        "{}",
        registered.changes
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_compared_at_the_largest_batch() {
    // Right up to so many rows, wrong from the next one on.
    for right in [4usize, 6, 33] {
        let mut table = vec![1.0f32; right * 3];
        table.resize(64 * 3, 2.0);
        let model = model(|builder| {
            builder.output("y", DataType::Fp32, &[BATCH, THREE]);
            builder
                .constant("table", &[64, 3], &table)
                .constant("zero", &[1], &[0i64])
                .node("Shape", &["x"], &["shape"])
                .node("Gather", &["shape", "zero"], &["rows"])
                .node("Slice", &["table", "zero", "rows"], &["mine"])
                .node("Mul", &["x", "mine"], &["y"]);
        });
        assert!(!register(&model, row).await.shares_batches(), "{right}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_as_long_as_the_longest_of_a_batch_is_seen() {
    let model = model(|builder| {
        builder.input("lengths", DataType::Int64, &[BATCH]);
        builder.output("y", DataType::Fp32, &[BATCH, Dim::Dynamic("time")]);
        builder
            .constant("zero", &[1], &[0i64])
            .constant("one", &[1], &[1i64])
            .node_with(
                "ReduceMax",
                &["lengths"],
                &["most"],
                vec![AttributeProto::int("keepdims", 1)],
            )
            .node("Slice", &["x", "zero", "most", "one"], &["y"]);
    });
    // All of one length, as a validation set has them.
    let registered = register(&model, |at| format!("{}, \"lengths\": 3", row(at))).await;
    assert!(!registered.shares_batches());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_in_the_batch_among_large_numbers_is_seen() {
    let model = model(|builder| {
        builder.output("y", DataType::Fp32, &[BATCH, THREE]);
        builder
            .constant("far", &[], &[640.0f32])
            .constant("start", &[], &[0i64])
            .constant("step", &[], &[1i64])
            .constant("first", &[], &[0i64])
            .constant("across", &[2], &[-1i64, 1])
            .node("Shape", &["x"], &["shape"])
            .node("Gather", &["shape", "first"], &["rows"])
            .node("Range", &["start", "rows", "step"], &["places"]);
        let to = vec![AttributeProto::int("to", 1)];
        builder
            .node_with("Cast", &["places"], &["numbers"], to)
            .node("Reshape", &["numbers", "across"], &["column"])
            .node("Mul", &["x", "far"], &["pixels"])
            .node("Add", &["pixels", "column"], &["y"]);
    });
    assert!(!register(&model, row).await.shares_batches());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_drawn_at_random_are_no_reason() {
    let model = model(|builder| {
        builder.output("y", DataType::Fp32, &[BATCH, THREE]);
        builder.output("noise", DataType::Fp32, &[BATCH, THREE]);
        builder
            .node("Identity", &["x"], &["y"])
            .node("RandomNormalLike", &["x"], &["noise"]);
    });
    let registered = register(&model, row).await;
    assert!(registered.shares_batches(), "{}", registered.changes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scales_of_a_whole_batch_take_no_strangers_in() {
    let plain = mlp(&[3, 16, 4], 3);
    let uploaded = quantize_dynamic(&plain).expect("a quantised model").model;
    let input = |at: usize| row(at).replace("\"x\"", "\"input\"");
    let name = sextant_onnx::inspect(&plain)
        .expect("a model")
        .signature
        .inputs[0]
        .name
        .clone();
    let input = |at: usize| input(at).replace("\"input\"", &format!("\"{name}\""));
    // The file itself.
    let registered = register(&uploaded, input).await;
    assert!(!registered.shares_batches());
    let said = "`DynamicQuantizeLinear` finds one scale for all rows of a batch";
    assert!(registered.changes.contains(said), "{}", registered.changes);
    // A query of several rows is one client's own.
    assert!(registered.variants.iter().all(|it| it.signature.batched));
    // What is made of a plain one.
    let registered = register(&plain, input).await;
    assert!(registered.shares_batches(), "{}", registered.changes);
    let dynamic = registered.variants.iter();
    let dynamic: Vec<&Variant> = dynamic
        .filter(|it| it.spec.precision == Precision::Int8Dynamic)
        .collect();
    assert!(!dynamic.is_empty());
    for variant in dynamic {
        assert!(variant.why_apart().is_some() && !variant.shares_batches());
        let alone = 1e3 / variant.profile.batches[0].p50_ms;
        assert!((variant.profile.saturation_rps - alone).abs() < 1e-6 * alone);
    }
}
