//! The ranges of activations of static quantisation.

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_onnx::builder::{BATCH, Dim, ModelBuilder};
use sextant_registry::JobState;
use sextant_types::{DataType, Precision};

use crate::bed::{Bed, quick};

const COLUMNS: usize = 8;
const CLASSES: usize = 3;
const SEED: u64 = 11;

fn random(rng: &mut ChaCha8Rng, count: usize) -> Vec<f32> {
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

/// A linear classifier, and 300 records with its own answers. One value of the first is as large as is asked for.
fn classifier(largest: f32) -> (Bytes, Bytes) {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let weights = random(&mut rng, COLUMNS * CLASSES);
    let mut builder = ModelBuilder::new("linear", 1);
    builder.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(COLUMNS as u64)]);
    builder.constant("weights", &[COLUMNS, CLASSES], &weights);
    builder.node("MatMul", &["x", "weights"], &["y"]);
    builder.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(CLASSES as u64)]);
    let mut lines = String::new();
    for at in 0..300 {
        let mut record = random(&mut rng, COLUMNS);
        if at == 0 {
            record[0] = largest;
        }
        let score = |class: usize| {
            let products = record.iter().enumerate();
            products
                .map(|(at, value)| value * weights[at * CLASSES + class])
                .sum::<f32>()
        };
        let label = (0..CLASSES).max_by(|a, b| score(*a).total_cmp(&score(*b)));
        let line = serde_json::json!({"inputs": {"x": record}, "label": label});
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    (builder.build(), lines.into())
}

/// The accuracy with 8 bits, and what was changed.
async fn registered(largest: f32) -> (f64, String) {
    let (model, records) = classifier(largest);
    let bed = Bed::new().await;
    let job = bed.submit("m", &model, &records).await;
    let job = bed.run_to_end(bed.generator(quick()), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("m").await;
    let small = variants
        .iter()
        .find(|it| it.spec.precision == Precision::Int8Static);
    let changes = job.result.expect("a result")["changes"].to_string();
    (small.expect("it is made").accuracy.value, changes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_far_outside_are_left_out_where_they_cost_accuracy() {
    let (accuracy, changes) = registered(2000.0).await;
    assert!(accuracy > 0.9, "{accuracy} {changes}");
    assert!(changes.contains("for `int8s` the ranges"), "{changes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_ranges_stay_where_they_are_accurate() {
    let (accuracy, changes) = registered(1.0).await;
    assert!(accuracy > 0.9, "{accuracy}");
    assert_eq!(changes, "null");
}
