//! Validation sets without labels: accuracy is agreement with the uploaded file, which tells how much of it a
//! precision keeps.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use sextant_engine::Engine;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    encode,
    proto::{AttributeProto, NodeProto},
};
use sextant_registry::{DataFile, JobState, METRIC_FILE};
use sextant_types::{AccuracyKind, Code, DataType, Digest, Metric, Precision, Variant};
use sextant_variant_gen::Generator;

use crate::bed::{Bed, CLASSES, model, ort, quick, validation};

/// The records of [`validation`] without their labels.
fn unlabelled(seed: u64) -> Bytes {
    let labelled = validation(seed);
    let lines = labelled
        .split(|byte| *byte == b'\n')
        .filter(|it| !it.is_empty());
    let without = lines.map(|line| {
        let mut record: Value = serde_json::from_slice(line).expect("JSON");
        record.as_object_mut().expect("an object").remove("label");
        format!("{record}\n")
    });
    without.collect::<String>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_uploaded_file_agrees_with_itself() {
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    for (application, name, best) in [("app", "classes", 1.0), ("errors", "numbers", 0.0)] {
        let set = unlabelled(3);
        let job = bed.submit_to(application, name, &model(3), &set).await.job;
        let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
        let changes = &job.result.expect("a result")["changes"];
        let changes = changes.as_array().expect("a list");
        let said = |it: &Value| it.as_str().is_some_and(|it| it.contains("no labels"));
        assert!(changes.iter().any(said), "{changes:?}");
        let variants = bed.variants(name).await;
        for variant in &variants {
            assert_eq!(variant.accuracy.records, 70);
            if variant.spec.precision == Precision::Fp32 {
                let value = variant.accuracy.value;
                assert!((value - best).abs() < 1e-6, "{value} for {}", variant.id);
            }
        }
        assert!(
            variants
                .iter()
                .any(|it| it.spec.precision == Precision::Int8Static)
        );
    }
}

/// Whoever forgets the labels is told; so is whoever says that there are none where there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_without_labels_is_declared() {
    let bed = Bed::new().await;
    for (name, set, declared, told) in [
        ("forgotten", unlabelled(1), false, "`--no-labels`"),
        ("mistaken", validation(1), true, "leave `--no-labels`"),
    ] {
        let model = model(1);
        let submitted = bed.submit_as(("app", name), (&model, &set), Vec::new(), declared);
        let job = submitted.await.job;
        let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
        let error = job.error.expect("is refused");
        assert_eq!(error.code, Code::InvalidValidationSet, "{error:?}");
        assert!(
            error.message.contains(told) && error.message.contains("`labels=none`"),
            "{error:?}"
        );
    }
}

/// The same file with and without labels: what agrees with itself is no better than what is measured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agreement_is_marked_and_dominates_no_labelled_model() {
    let bed = Bed::new().await;
    bed.register_well("labelled", &model(3), &validation(3))
        .await;
    let before = frontier(&bed, "labelled").await;
    let job = bed.register("agrees", &model(3), &unlabelled(3)).await;
    let result = job.result.expect("a result");
    assert_eq!(result["measures"], "agreement", "{result}");
    assert_eq!(frontier(&bed, "labelled").await, before);
    for (name, kind) in [
        ("labelled", AccuracyKind::Accuracy),
        ("agrees", AccuracyKind::Agreement),
    ] {
        let variants = bed.variants(name).await;
        assert!(variants.iter().all(|it| it.accuracy.kind == kind));
    }
    assert!(!frontier(&bed, "agrees").await.is_empty());
}

async fn frontier(bed: &Bed, model: &str) -> Vec<String> {
    let variants = bed.variants(model).await.into_iter();
    let best = variants.filter(|it| it.dominated_by.is_none());
    best.map(|it| it.id.to_string()).collect()
}

/// Variants as an earlier version stored them say nothing of labels; what their registration found does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_registered_before_is_marked() {
    let bed = Bed::new().await;
    bed.register_well("labelled", &model(3), &validation(3))
        .await;
    bed.register_well("agrees", &model(4), &unlabelled(4)).await;
    for name in ["labelled", "agrees"] {
        let mut variants = bed.variants(name).await;
        for variant in &mut variants {
            let mut document = serde_json::to_value(&*variant).expect("a document");
            let accuracy = document["accuracy"].as_object_mut().expect("an accuracy");
            accuracy.remove("kind");
            *variant = serde_json::from_value(document).expect("is read");
            assert_eq!(variant.accuracy.kind, AccuracyKind::Unknown);
        }
        bed.registry.put_variants(&variants).await.expect("stored");
    }
    let publisher = bed.generator(quick()).publisher().clone();
    publisher.publish_all().await.expect("is published");
    for (name, kind) in [
        ("labelled", AccuracyKind::Accuracy),
        ("agrees", AccuracyKind::Agreement),
    ] {
        let stored = bed.variants(name).await;
        let shown = bed.metadata.variants().await.expect("reads");
        let shown = shown.iter().filter(|it| it.model.as_str() == name);
        let all = stored.iter().chain(shown.map(|it| &**it));
        assert!(all.into_iter().all(|it| it.accuracy.kind == kind), "{name}");
    }
}

/// Labels that belong to other records are right as often as chance has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_that_say_no_more_than_the_commonest_are_told_of() {
    let bed = Bed::new().await;
    let lines = validation(5);
    let lines: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').collect();
    let mut sets = Vec::new();
    // One label is the commonest by far, and the model does not know it.
    for label in 0..CLASSES {
        let lines = lines.iter().filter(|it| !it.is_empty()).enumerate();
        let labelled = lines.map(|(at, line)| {
            let mut record: Value = serde_json::from_slice(line).expect("JSON");
            record["label"] = (if at % 10 == 0 {
                (label + 1) % CLASSES
            } else {
                label
            })
            .into();
            format!("{record}\n")
        });
        sets.push(Bytes::from(labelled.collect::<String>()));
    }
    let mut warned = 0;
    for (at, set) in sets.iter().enumerate() {
        let name = format!("skewed{at}");
        let job = bed.register(&name, &model(5), set).await;
        let changes = job.result.expect("a result")["changes"].to_string();
        let variants = bed.variants(&name).await;
        let single = variants
            .iter()
            .filter(|it| it.spec.precision == Precision::Fp32);
        let best = single.map(|it| it.accuracy.value).fold(0.0, f64::max);
        let told = changes.contains("always answering the commonest label scores")
            || changes.contains("no record is answered");
        assert_eq!(told, best <= 0.9, "{best}: {changes}");
        warned += usize::from(told);
    }
    assert!(warned >= CLASSES - 1, "{warned}");
}

/// Labels that lie around one number, of which the model knows nothing: that number is a better answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_that_one_number_answers_better_are_told_of() {
    let bed = Bed::new().await;
    let lines = validation(8);
    let lines = lines.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, it)| !it.is_empty());
    let labelled = lines.map(|(at, line)| {
        let mut record: Value = serde_json::from_slice(line).expect("JSON");
        let label = (0..CLASSES).map(|class| 40.0 + ((at + class) % 3) as f64);
        record["label"] = label.collect::<Vec<_>>().into();
        format!("{record}\n")
    });
    let set = Bytes::from(labelled.collect::<String>());
    for (metric, by) in [
        (Metric::MeanAbsoluteError, "the labels' median"),
        (Metric::RootMeanSquareError, "the labels' mean"),
        (
            Metric::MeanAbsolutePercentageError,
            "the number with the least error",
        ),
        (Metric::Cosine, "the labels' mean direction"),
        (Metric::R2, "the labels' mean"),
    ] {
        let name = metric.name();
        bed.application(&name, metric).await;
        let job = bed.submit_to(&name, &name, &model(8), &set).await.job;
        let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
        let result = job
            .result
            .unwrap_or_else(|| panic!("{name}: {:?}", job.error));
        let changes = result["changes"].to_string();
        let told = format!("which always answering {by} scores");
        assert!(changes.contains(&told), "{name}: {changes}");
    }
}

/// Two records tell nearly nothing, and how many would is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_is_too_small_is_told_of() {
    let bed = Bed::new().await;
    let lines = validation(6);
    let two = lines.split_inclusive(|byte| *byte == b'\n').take(2);
    let job = bed
        .register("two", &model(6), &two.collect::<Vec<_>>().concat().into())
        .await;
    let changes = job.result.expect("a result")["changes"].to_string();
    assert!(
        changes.contains("2 records say little") && changes.contains("records would do"),
        "{changes}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_labels_are_refused() {
    let bed = Bed::new().await;
    let some = [validation(1), unlabelled(2)].concat();
    let job = bed.register("m", &model(1), &Bytes::from(some)).await;
    let error = job.error.expect("is refused").message;
    assert!(
        error.contains("record 71") && error.contains("`label`"),
        "{error}"
    );
}

/// A record has one best class: with the others as labels nothing is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_that_fit_nothing_are_told_of() {
    let bed = Bed::new().await;
    let first = validation(4);
    let first = first.split(|byte| *byte == b'\n').next().expect("a record");
    let mut record: Value = serde_json::from_slice(first).expect("JSON");
    let mut right = Vec::new();
    for label in 0..CLASSES {
        record["label"] = label.into();
        let name = format!("label{label}");
        let set = Bytes::from(format!("{record}\n").repeat(8));
        let job = bed.register(&name, &model(4), &set).await;
        let changes = job.result.expect("a result")["changes"].to_string();
        let told = changes.contains("no record is answered as its label says");
        let variants = bed.variants(&name).await;
        assert_eq!(
            told,
            variants.iter().all(|it| it.accuracy.value == 0.0),
            "{changes}"
        );
        right.push(!told);
    }
    assert_eq!(right.iter().filter(|it| **it).count(), 1, "{right:?}");
}

/// Weights alone in 8 and 4 bits agree with the file nearly always, where there are enough of them to matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_matrices_become_small() {
    const WIDE: usize = 512;
    let bed = Bed::new().await;
    let model = sextant_onnx::builder::mlp(&[WIDE, 2048, 3], 5);
    let line = |record: usize| {
        let x = (0..WIDE).map(|at| ((record * WIDE + at) as f32 * 0.37).sin());
        format!(
            "{}\n",
            serde_json::json!({"inputs": {"input": x.collect::<Vec<f32>>()}})
        )
    };
    let set: String = (0..60).map(line).collect();
    let job = bed.submit("wide", &model, &Bytes::from(set)).await.job;
    let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(ort())];
    let generator = Generator::new(bed.stores(), engines, quick());
    let job = bed.run_to_end(generator, &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("wide").await;
    let of = |precision| {
        let found = variants.iter().find(|it| it.spec.precision == precision);
        found.unwrap_or_else(|| panic!("no {precision:?}: {:?}", job.result))
    };
    assert!(of(Precision::Int8Weights).accuracy.value >= 0.95);
    assert!(of(Precision::Int4Weights).accuracy.value >= 0.7);
    let bytes = async |precision| {
        let artefact = of(precision).artefact;
        bed.objects.get_blob(&artefact).await.expect("reads").len()
    };
    let (whole, half, least) = (
        bytes(Precision::Fp32).await,
        bytes(Precision::Int8Weights).await,
        bytes(Precision::Int4Weights).await,
    );
    assert!(
        half * 3 < whole && least * 5 < whole,
        "{whole}, {half}, {least}"
    );
}

/// A number for each row of `x`, though it takes one `state`: nothing says how many numbers there are at once.
fn open_ended() -> Bytes {
    let mut builder = ModelBuilder::new("open", 1);
    builder.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    builder.input("state", DataType::Fp32, &[Dim::Fixed(2), Dim::Fixed(1)]);
    builder.output("y", DataType::Fp32, &[BATCH]);
    builder.random("w", &[4, 1], 1.0);
    builder.constant("flat", &[1], &[-1i64]);
    builder.node("MatMul", &["x", "w"], &["columns"]);
    builder.node("Reshape", &["columns", "flat"], &["numbers"]);
    let whole = AttributeProto::int("keepdims", 0);
    builder.node_with("ReduceMean", &["state"], &["level"], vec![whole]);
    builder.node("Add", &["numbers", "level"], &["y"]);
    builder.build()
}

/// One number has no best class, however the model declares it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metric_that_calls_everything_right_is_refused_when_it_shows() {
    let bed = Bed::new().await;
    bed.application("errors", Metric::MeanAbsoluteError).await;
    let lines = (0..20).map(|at| {
        let at = f64::from(at);
        format!(r#"{{"inputs": {{"x": [{at}, 1, 2, -{at}], "state": [[{at}], [1]]}}}}"#)
    });
    let set = Bytes::from(lines.collect::<Vec<_>>().join("\n"));
    let register = async |application, name| {
        let job = bed.submit_to(application, name, &open_ended(), &set).await;
        bed.run_to_end(bed.generator(quick()), &job.job.id).await
    };
    let refused = register("app", "classes").await;
    let error = refused.error.expect("is refused");
    assert_eq!(error.code, Code::InvalidValidationSet, "{error:?}");
    assert!(
        error
            .message
            .contains("calls every answer of output `y` right"),
        "{error:?}"
    );
    let measured = register("errors", "numbers").await;
    assert_eq!(measured.state, JobState::Succeeded, "{:?}", measured.error);
}

/// A graph that says 1 where the greatest output is the label's, and 0 elsewhere.
fn top1() -> Bytes {
    let mut builder = ModelBuilder::new("metric", 1);
    builder.input(
        "outputs",
        DataType::Fp32,
        &[BATCH, Dim::Fixed(CLASSES as u64)],
    );
    builder.input("labels", DataType::Int64, &[BATCH]);
    builder.output("score", DataType::Fp32, &[BATCH]);
    let mut model = builder.model();
    let nodes = &mut model.graph.as_mut().expect("a graph").node;
    let best = NodeProto::new("ArgMax", "best", &["outputs"], &["best"]);
    let best = best.with(AttributeProto::int("axis", 1));
    nodes.push(best.with(AttributeProto::int("keepdims", 0)));
    nodes.push(NodeProto::new(
        "Equal",
        "equal",
        &["best", "labels"],
        &["equal"],
    ));
    let cast = NodeProto::new("Cast", "score", &["equal"], &["score"]);
    nodes.push(cast.with(AttributeProto::int("to", 1)));
    encode(&model)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metric_may_be_a_graph_of_the_owners() {
    let bed = Bed::new().await;
    bed.application("own", Metric::Custom).await;
    bed.register_well("plain", &model(3), &validation(3)).await;
    let digest = bed.objects.put_blob(top1()).await.expect("stored");
    let register = async |application: &str, name: &str, digest: Option<Digest>| {
        let data = digest.map(|digest| DataFile {
            name: METRIC_FILE.to_owned(),
            digest,
            size_bytes: 1,
        });
        let data = data.into_iter().collect();
        let job = bed
            .submit_with(application, name, (&model(3), &validation(3)), data)
            .await
            .job;
        bed.run_to_end(bed.generator(quick()), &job.id).await
    };
    let job = register("own", "judged", Some(digest)).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let (plain, judged) = (bed.variants("plain").await, bed.variants("judged").await);
    let single = |of: &[Variant]| {
        let found = of.iter().find(|it| it.spec.precision == Precision::Fp32);
        found.expect("single precision").accuracy.value
    };
    assert_eq!(single(&plain), single(&judged));
    for (application, digest) in [("own", None), ("app", Some(digest))] {
        let refused = register(application, "refused", digest).await;
        let error = refused.error.expect("is refused").message;
        assert!(error.contains("`--metric-model"), "{error}");
    }
    let wrong = bed.objects.put_blob(model(1)).await.expect("stored");
    let error = register("own", "refused", Some(wrong))
        .await
        .error
        .expect("is refused");
    assert!(
        error.message.contains("`input`") && error.message.contains("`labels`"),
        "{error:?}"
    );
}
