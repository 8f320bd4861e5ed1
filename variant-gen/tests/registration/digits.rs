//! Reported accuracies against an independent evaluation in Python.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use bytes::Bytes;
use serde_json::Value;
use sextant_engine::Engine;
use sextant_engine_rten::RtenEngine;
use sextant_registry::JobState;
use sextant_test_servers::interpreter;
use sextant_types::{Precision, Variant};
use sextant_variant_gen::Generator;

use crate::bed::{Bed, ort, quick};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits")
}

/// Correct rows of `artefact` as `evaluate.py` counts them.
fn evaluate(artefact: &Path, set: &Path, threads: u16) -> Value {
    let output = Command::new(interpreter())
        .arg(examples().join("evaluate.py"))
        .args([artefact, set])
        .args(["--threads", &threads.to_string()])
        .output()
        .expect("python runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn register(bed: &Bed, name: &str) -> Vec<Variant> {
    let read = |name: &str| Bytes::from(fs::read(examples().join(name)).expect("reads"));
    let model = read(&format!("{name}.onnx"));
    let job = bed.submit(name, &model, &read("validation.npz")).await.job;
    let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(ort()), Arc::new(RtenEngine::new())];
    let generator = Generator::new(bed.stores(), engines, quick());
    let job = bed.run_to_end(generator, &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    bed.variants(name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_accuracy_equals_the_independent_one() {
    let bed = Bed::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["logistic", "mlp", "cnn-small", "cnn-large"] {
        let variants = register(&bed, name).await;
        for precision in [
            Precision::Fp32,
            Precision::Int8Dynamic,
            Precision::Int8Static,
        ] {
            let same: Vec<&Variant> = variants
                .iter()
                .filter(|variant| variant.spec.precision == precision)
                .collect();
            let first = same.first().expect("every precision applies");
            let file = folder
                .path()
                .join(format!("{name}-{}.onnx", precision.name()));
            let artefact = bed.objects.get_blob(&first.artefact).await.expect("reads");
            fs::write(&file, artefact).expect("writes");
            let wanted = evaluate(&file, &examples().join("validation.npz"), 1);
            println!("{wanted} for {} variants", same.len());
            for variant in same {
                let accuracy = &variant.accuracy;
                assert_eq!(Some(accuracy.records), wanted["rows"].as_u64());
                assert_eq!(
                    Some(accuracy.value),
                    wanted["accuracy"].as_f64(),
                    "{}",
                    variant.id
                );
            }
        }
    }
}
