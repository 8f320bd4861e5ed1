//! What cannot be registered, and what is said about it.

use bytes::Bytes;
use sextant_onnx::builder::{self, BATCH, Dim};
use sextant_registry::{JobState, ModelStatus};
use sextant_types::{Code, DataType};

use crate::bed::{Bed, CLASSES, WIDTH, model, validation};

async fn refused(bed: &Bed, name: &str, model: &Bytes, validation: &Bytes) -> (Code, String) {
    let job = bed.register(name, model, validation).await;
    assert_eq!(job.state, JobState::Failed, "{name}");
    let row = bed.model(name).await;
    assert_eq!((row.status, &row.error), (ModelStatus::Failed, &job.error));
    assert!(bed.variants(name).await.is_empty());
    assert!(
        bed.visible()
            .await
            .iter()
            .all(|it| !it.starts_with(&format!("{name}-")))
    );
    let failure = job.error.expect("an error");
    (failure.code, failure.message)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_no_models() {
    let bed = Bed::new().await;
    let set = validation(1);
    let whole = model(1);
    let cut = whole.slice(..whole.len() / 2);
    for file in [
        Bytes::from("not a model"),
        cut,
        Bytes::from(vec![0xff; 100]),
    ] {
        let (code, _) = refused(&bed, "m", &file, &set).await;
        assert_eq!(code, Code::InvalidModel);
    }
    bed.register_well("m", &whole, &set).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_no_engine_has_is_named() {
    let bed = Bed::new().await;
    let mut builder = builder::ModelBuilder::new("strange", 1);
    let dims = |size: usize| [BATCH, Dim::Fixed(size as u64)];
    builder.input("input", DataType::Fp32, &dims(WIDTH));
    builder.output("output", DataType::Fp32, &dims(CLASSES));
    builder.node("Warp", &["input"], &["output"]);
    let (code, message) = refused(&bed, "m", &builder.build(), &validation(1)).await;
    assert_eq!(code, Code::UnsupportedOperator);
    assert!(message.contains("Warp"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validation_sets_that_do_not_fit() {
    let bed = Bed::new().await;
    let record = |inputs: &str, label: &str| {
        Bytes::from(format!("{{\"inputs\": {{{inputs}}}, \"label\": {label}}}"))
    };
    let row = format!("\"input\": {:?}", vec![0.5; WIDTH]);
    for set in [
        Bytes::new(),
        Bytes::from("PK\x03\x04 but no archive"),
        record("\"input\": [1, 2]", "0"),
        record(&row, &CLASSES.to_string()),
        record(&row, "0.5"),
        record("\"x\": [1]", "0"),
    ] {
        let (code, _) = refused(&bed, "m", &model(1), &set).await;
        assert_eq!(code, Code::InvalidValidationSet);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_of_one_application_share_a_signature() {
    let bed = Bed::new().await;
    // A first model that fails fixes nothing.
    let other = builder::mlp(&[2, CLASSES], 1);
    refused(&bed, "bad", &other, &validation(1)).await;
    bed.register_well("m", &model(1), &validation(1)).await;
    let wide = builder::mlp(&[WIDTH, CLASSES + 1], 1);
    let (code, message) = refused(&bed, "n", &wide, &validation(1)).await;
    assert_eq!(code, Code::SignatureMismatch);
    assert!(message.contains("output"), "{message}");
    bed.register_well("n", &model(2), &validation(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leaves_no_room_for_variants() {
    let bed = Bed::new().await;
    let (code, _) = refused(&bed, &"m".repeat(120), &model(1), &validation(1)).await;
    assert_eq!(code, Code::InvalidName);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artefact_that_is_gone() {
    let bed = Bed::new().await;
    let job = bed.submit("m", &model(1), &validation(1)).await;
    let digest = job.model.digest;
    assert!(bed.objects.delete_blob(&digest).await.expect("deletes"));
    let job = bed
        .run_to_end(bed.generator(crate::bed::quick()), &job.job.id)
        .await;
    let code = job.error.map(|failure| failure.code);
    assert_eq!(code, Some(Code::ArtefactNotFound));
}
