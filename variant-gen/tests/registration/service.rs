//! What a registration leaves behind.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use sextant_onnx::builder::{self, BATCH, Dim};
use sextant_registry::JobState;
use sextant_types::{DataType, Metric, ModelId, Precision};
use sextant_variant_gen::{Config, RegistrationService, checkpoint::Phase};

use crate::bed::{Action, Bed, CLASSES, Trap, WIDTH, model, quick, validation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_becomes_measured_variants() {
    let bed = Bed::new().await;
    bed.register_well("m", &model(1), &validation(1)).await;
    let variants = bed.variants("m").await;
    let names: Vec<String> = variants.iter().map(|it| it.id.to_string()).collect();
    assert_eq!(names.len(), 9);
    assert!(
        names.contains(&"m-ort-int8s-all-t1-b4".to_owned()),
        "{names:?}"
    );
    assert_eq!(bed.visible().await, names);
    for variant in &variants {
        assert_eq!(variant.accuracy.records, 70);
        assert_eq!(variant.accuracy.evaluation_batch, 32);
        assert!(variant.accuracy.lower <= variant.accuracy.value);
        assert!(variant.profile.load_ms > 0.0);
        assert!(variant.profile.saturation_rps > 0.0);
        assert!(variant.profile.peak_memory_bytes > 0);
        assert!(variant.cost_per_1k_usd > 0.0 && variant.cost_per_hour_usd > 0.0);
        let last = variant.profile.batches.last().expect("measured");
        assert_eq!(last.batch, u32::from(variant.spec.max_batch));
        assert!(
            bed.objects
                .has_blob(&variant.artefact)
                .await
                .expect("reads")
        );
    }
    let artefacts: BTreeSet<_> = variants.iter().map(|it| it.artefact).collect();
    assert_eq!(artefacts.len(), 3, "one artefact for each precision");
    let fp32 = variants
        .iter()
        .find(|it| it.spec.precision == Precision::Fp32);
    let application = bed.registry.application(&variants[0].application).await;
    let fixed = application.expect("exists").signature;
    assert_eq!(fixed, fp32.map(|it| it.signature.clone()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_apply_is_skipped_with_its_reason() {
    let bed = Bed::new().await;
    let mut plain = builder::ModelBuilder::new("plain", 1);
    let dims = |last: u64| [BATCH, Dim::Fixed(last)];
    plain.input("input", DataType::Fp32, &dims(3));
    plain.output("output", DataType::Fp32, &dims(3));
    plain.node("Relu", &["input"], &["output"]);
    let set = Bytes::from("{\"inputs\": {\"input\": [0, 1, 2]}, \"label\": 2}");
    let job = bed.register("plain", &plain.build(), &set).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    assert_eq!(bed.visible().await.len(), 3, "fp32 only");
    let skipped = &job.result.expect("a result")["skipped"];
    let skipped = skipped.as_object().expect("names");
    let names: Vec<&str> = skipped.keys().map(String::as_str).collect();
    assert_eq!(names, ["int8d", "int8s"]);
    for reason in skipped.values() {
        assert!(reason.as_str().is_some_and(|it| !it.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_model_brings_back_what_it_dominated() {
    let bed = Bed::new().await;
    // The same file twice: whatever one has on the other is noise, yet someone is dominated.
    bed.register_well("a", &model(3), &validation(3)).await;
    let alone: Vec<_> = bed.variants("a").await;
    bed.register_well("b", &model(3), &validation(3)).await;
    let service = RegistrationService::new(bed.generator(quick()), "keeper");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(service.run(async move {
        stopped.await.ok();
    }));
    let b = ModelId::new("b").expect("valid");
    let publisher = bed.generator(quick()).publisher().clone();
    assert_eq!(publisher.retire_model(&b).await.expect("retires").len(), 9);
    // The keeper may have begun with what was there before; it follows.
    let followed = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        loop {
            looks.tick().await;
            let visible = bed.metadata.variants().await.expect("reads");
            let visible: Vec<_> = visible.iter().map(|it| it.as_ref().clone()).collect();
            if visible == alone && bed.variants("a").await == alone {
                return;
            }
        }
    };
    let limit = Duration::from_secs(60);
    let followed = tokio::time::timeout(limit, followed).await;
    followed.expect("nobody is in the shadow of a deleted model");
    stop.send(()).expect("runs");
    running.await.expect("ends");
}

/// A deletion that did not come through the publisher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_follow_variants_that_others_retire() {
    let bed = Bed::new().await;
    bed.register_well("a", &model(3), &validation(3)).await;
    let alone = bed.variants("a").await;
    bed.register_well("b", &model(3), &validation(3)).await;
    let publisher = bed.generator(quick()).publisher().clone();
    let b = ModelId::new("b").expect("valid");
    let keeping = publisher.keep_published();
    let deleting = async {
        let names = bed.registry.delete_model(&b, 5).await.expect("deletes");
        for name in &names {
            bed.metadata.retire_variant(name).await.expect("retires");
        }
        while bed.variants("a").await != alone {
            tokio::task::yield_now().await;
        }
    };
    let within = Duration::from_secs(30);
    tokio::select! {
        kept = keeping => panic!("it never ends: {kept:?}"),
        done = tokio::time::timeout(within, deleting) => done.expect("marks are renewed"),
    }
}

/// Numbers in, the same numbers out, one record at a time: the labels are off by 0, 1 or 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_a_batch_dimension_is_scored_by_its_mean_error() {
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    let model = builder::identity(DataType::Fp32, &[Dim::Fixed(2)]);
    let line = |label: usize| {
        let record = serde_json::json!({"inputs": {"input": [1, 2]}, "label": [1 + label, 2]});
        format!("{record}\n")
    };
    let lines: String = (0..30).map(|index| line(index % 3)).collect();
    let job = bed.submit_to("errors", "same", &model, &lines.into()).await;
    let job = bed.run_to_end(bed.generator(quick()), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("same").await;
    assert_eq!(variants.len(), 1, "nothing to quantise and no batches");
    let variant = &variants[0];
    assert_eq!(variant.spec.max_batch, 1);
    assert!(!variant.signature.batched);
    let accuracy = variant.accuracy;
    assert_eq!((accuracy.value, accuracy.records), (0.5, 30));
    assert_eq!(accuracy.evaluation_batch, 1);
    assert!(accuracy.lower < 0.5 && accuracy.upper > 0.5, "{accuracy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_another_metric_are_refused() {
    let bed = Bed::new().await;
    let mut lines = String::new();
    for index in 0..40 {
        let input = vec![f64::from(index) / 40.0; WIDTH];
        let label = vec![0.0; CLASSES];
        let record = serde_json::json!({"inputs": {"input": input}, "label": label});
        lines.push_str(&format!("{record}\n"));
    }
    // The application's metric is top1: labels that are rows of numbers do not fit it.
    let job = bed.register("m", &model(1), &lines.into()).await;
    assert_eq!(job.state, JobState::Failed);
    let code = job.error.map(|failure| failure.code.as_str());
    assert_eq!(code, Some("invalid_validation_set"));
}

/// What the engine does first is measured although there is no time at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_without_time_measures_the_plainest_way() {
    let bed = Bed::new().await;
    let job = bed.submit("m", &model(1), &validation(1)).await.job;
    let config = Config {
        budget: Some(Duration::ZERO),
        ..quick()
    };
    let job = bed.run_to_end(bed.generator(config), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let engines = bed.variants("m").await;
    assert!(
        engines
            .iter()
            .all(|it| it.spec.precision == Precision::Fp32)
    );
    let pruned = &job.result.expect("a result")["pruned"];
    let pruned = pruned.as_object().expect("names");
    let names: Vec<&str> = pruned.keys().map(String::as_str).collect();
    assert_eq!(names, ["ort-int8d-all-t1", "ort-int8s-all-t1"]);
    for reason in pruned.values() {
        assert!(
            reason
                .as_str()
                .is_some_and(|it| it.contains("variants.budget_s"))
        );
    }
}

/// What is given back says nothing against a model, however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_that_is_given_back_again_and_again_is_not_left() {
    let measured = "measure:ort-fp32-all-t1";
    let bed = Bed::new().await;
    let job = bed.submit("m", &model(1), &validation(1)).await.job;
    let lives = [("inspect", 4), (measured, 4)];
    for (step, times) in lives {
        for life in 0..times {
            let trap = Trap::new(step, Phase::Worked, Action::Hang);
            let generator = bed.watched(quick(), Arc::clone(&trap) as _);
            let service = RegistrationService::new(generator, format!("life-{life}-{step}"));
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let running = tokio::spawn(service.run(async move {
                stopped.await.ok();
            }));
            trap.reached.notified().await;
            stop.send(()).expect("runs");
            running.await.expect("ends");
        }
    }
    let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    assert_eq!(bed.visible().await.len(), 9);
}
