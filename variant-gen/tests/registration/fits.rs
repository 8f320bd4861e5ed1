//! Models of several libraries in one application.

use std::{fs, path::Path};

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest};
use sextant_onnx::{
    builder::{self, BATCH, Dim, ModelBuilder},
    inspect,
    proto::AttributeProto,
};
use sextant_registry::{Job, JobKind, JobState, NewJob, NewModel};
use sextant_types::{
    Code, DataType, Metric, NamedTensor, Names, Optimization, Precision, Renames, Tensor,
};

use crate::bed::{Bed, CLASSES, WIDTH, model, ort, quick, validation};

/// The classifier of [`model`] as another library writes it: other names, and a second output.
fn foreign(seed: u64, columns: [i64; CLASSES]) -> Bytes {
    let mut builder = ModelBuilder::new("foreign", seed);
    let row = [BATCH, Dim::Fixed(WIDTH as u64)];
    builder.input("X", DataType::Fp32, &row);
    builder.output("label", DataType::Int64, &[BATCH]);
    let scores = [BATCH, Dim::Fixed(CLASSES as u64)];
    builder.output("scores", DataType::Fp32, &scores);
    builder.random("w", &[WIDTH, CLASSES], 1.0);
    builder.constant("order", &[CLASSES], &columns);
    // The application's name for its scores is taken by something else in here.
    builder.node("MatMul", &["X", "w"], &["output"]);
    let last = || vec![AttributeProto::int("axis", 1)];
    builder.node_with("Gather", &["output", "order"], &["scores"], last());
    let kept = AttributeProto::int("keepdims", 0);
    let of_last = [last(), vec![kept]].concat();
    builder.node_with("ArgMax", &["scores"], &["label"], of_last);
    builder.build()
}

fn renamed(records: &Bytes, from: &str, to: &str) -> Bytes {
    let text = String::from_utf8_lossy(records);
    text.replace(&format!("\"{from}\""), &format!("\"{to}\""))
        .into()
}

async fn end(bed: &Bed, new: &NewModel) -> Job {
    let job = bed.submit_new(new).await.job;
    bed.run_to_end(bed.generator(quick()), &job.id).await
}

async fn well(bed: &Bed, new: &NewModel) -> String {
    let job = end(bed, new).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    job.result.expect("a result")["changes"].to_string()
}

async fn refused(bed: &Bed, new: &NewModel) -> (Code, String) {
    let job = end(bed, new).await;
    assert_eq!(job.state, JobState::Failed, "{:?}", job.result);
    let failure = job.error.expect("a reason");
    (failure.code, failure.message)
}

/// What the single-precision variant of a model answers to some rows, its outputs one after the other.
async fn answers(bed: &Bed, name: &str, rows: &[f32], shape: Vec<usize>) -> Vec<NamedTensor> {
    let variants = bed.variants(name).await;
    let single = variants
        .iter()
        .find(|it| it.spec.precision == Precision::Fp32);
    let variant = single.expect("it runs");
    let file = bed
        .objects
        .get_blob(&variant.artefact)
        .await
        .expect("is there");
    let engine = ort();
    let request = LoadRequest {
        artefact: variant.artefact,
        model: file.into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    let loaded = engine.load(&request).expect("loads");
    let input = &variant.signature.inputs[0].name;
    let tensor = Tensor::from_elements(shape, rows).expect("a tensor");
    let inputs = [NamedTensor::new(input.clone(), tensor)];
    let outputs = loaded.run(&inputs).expect("runs").into_iter();
    let named = variant.signature.outputs.iter().zip(outputs);
    named
        .map(|(spec, tensor)| NamedTensor::new(spec.name.clone(), tensor))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_called_otherwise_takes_the_names_of_its_application() {
    let bed = Bed::new().await;
    bed.register_well("m", &model(1), &validation(1)).await;
    let file = foreign(7, [0, 1, 2]);
    for (name, called) in [("own", "X"), ("theirs", "input")] {
        let records = renamed(&validation(1), "input", called);
        let new = bed.new_model(("app", name), (&file, &records)).await;
        let changes = well(&bed, &new).await;
        for told in [
            "input `X` is called `input`",
            "output `scores` is called `output`",
            "no output `label`",
        ] {
            assert!(changes.contains(told), "{changes}");
        }
    }
    let rows: Vec<f32> = (0..2 * WIDTH).map(|at| at as f32 / 10.0).collect();
    let named = answers(&bed, "own", &rows, vec![2, WIDTH]).await;
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].name, "output");
    bed.application("alone", Metric::Top1).await;
    let records = renamed(&validation(1), "input", "X");
    let alone = bed.new_model(("alone", "alone"), (&file, &records)).await;
    well(&bed, &alone).await;
    let as_it_was = answers(&bed, "alone", &rows, vec![2, WIDTH]).await;
    let scores = as_it_was.iter().find(|it| it.name == "scores");
    assert_eq!(named[0].tensor, scores.expect("an output").tensor);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_stated_are_taken_and_checked() {
    let bed = Bed::new().await;
    let name = |pairs: &[(&str, &str)]| -> Names {
        let owned = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        owned.collect()
    };
    let file = foreign(7, [0, 1, 2]);
    let records = renamed(&validation(1), "input", "X");
    let state = async |model: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]| {
        let names = Renames {
            inputs: name(inputs),
            outputs: name(outputs),
        };
        let new = bed.new_model(("app", model), (&file, &records)).await;
        NewModel { names, ..new }
    };
    let (code, why) = refused(&bed, &state("m", &[("x", "input")], &[]).await).await;
    assert_eq!(code, Code::InvalidModel);
    assert!(why.contains("its inputs are `X`"), "{why}");
    let (code, why) = refused(&bed, &state("m", &[], &[("scores", "label")]).await).await;
    assert_eq!(code, Code::InvalidModel);
    assert!(why.contains("two outputs would be called `label`"), "{why}");

    let swapped = [("scores", "label"), ("label", "output")];
    let new = state("m", &[("X", "rows")], &swapped).await;
    let changes = well(&bed, &new).await;
    assert!(changes.contains("input `X` is called `rows`"), "{changes}");
    let signature = &bed.variants("m").await[0].signature;
    let names: Vec<_> = signature
        .outputs
        .iter()
        .map(|it| (it.name.as_str(), it.data_type))
        .collect();
    assert_eq!(
        names,
        [("output", DataType::Int64), ("label", DataType::Fp32)]
    );
    // The same again is the same registration; without the names it is another one.
    assert!(!bed.submit_new(&new).await.created);
    let unnamed = NewModel {
        version: Some(1),
        names: Renames::default(),
        ..new.clone()
    };
    let job = NewJob::new(JobKind::Register, new.application, serde_json::json!({}));
    let job = job.for_model(new.name);
    let other = bed.registry.register_model(&unnamed, &job, 1).await;
    other.expect_err("is another model");
}

/// A real export beside this crate's tests, and its validation set.
fn export(name: &str) -> (Bytes, Bytes) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/exports");
    let read = |suffix: &str| fs::read(folder.join(format!("{name}.{suffix}"))).expect("is there");
    (read("onnx").into(), read("npz").into())
}

const NAMES: [&str; 3] = ["setosa", "versicolor", "virginica"];

fn classes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libraries_share_an_application_and_labels_have_one_type() {
    let bed = Bed::new().await;
    for (application, order) in [
        ("numbers", ["lightgbm", "catboost", "sklearn-class-names"]),
        ("words", ["sklearn-class-names", "lightgbm", "catboost"]),
    ] {
        bed.application(application, Metric::Top1).await;
        for name in order {
            let (file, set) = export(name);
            let model = format!("{application}-{name}");
            let new = bed.new_model((application, &model), (&file, &set)).await;
            let is_other = (name == "sklearn-class-names") != (application == "words");
            if is_other {
                let (code, why) = refused(&bed, &new).await;
                assert_eq!(code, Code::SignatureMismatch, "{why}");
                assert!(why.contains("`setosa`, `versicolor`, `virginica`"), "{why}");
                assert!(
                    why.contains("`0`, `1`, `2`") && why.contains("--classes"),
                    "{why}"
                );
            }
            let new = NewModel {
                classes: match is_other {
                    true => classes(&NAMES),
                    false => Vec::new(),
                },
                ..new
            };
            well(&bed, &new).await;
            let variants = bed.variants(&model).await;
            assert!(variants[0].accuracy.value > 0.9, "{:?}", variants[0]);
            let scored = bed.registry.scored_output(&new.name).await.expect("reads");
            let known = match application {
                "words" => classes(&NAMES),
                _ => classes(&["0", "1", "2"]),
            };
            assert_eq!(scored.expect("is known").classes, known, "{model}");
        }
        let row = [5.1, 3.5, 1.4, 0.2];
        let first = answers(
            &bed,
            &format!("{application}-{}", order[0]),
            &row,
            vec![1, 4],
        )
        .await;
        for name in &order[1..] {
            let other = answers(&bed, &format!("{application}-{name}"), &row, vec![1, 4]).await;
            let names = |of: &[NamedTensor]| -> Vec<String> {
                of.iter().map(|it| it.name.clone()).collect()
            };
            assert_eq!(names(&first), names(&other), "{name}");
            let labels = |of: &[NamedTensor]| {
                let found = of.iter().find(|it| it.tensor.shape().len() == 1);
                found.map(|it| it.tensor.clone()).expect("labels")
            };
            assert_eq!(labels(&first), labels(&other), "{application} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_take_the_order_of_the_applications_classes() {
    let bed = Bed::new().await;
    let lines = |class: [&str; CLASSES]| -> Bytes {
        let records = validation(3);
        let text = String::from_utf8_lossy(&records).into_owned();
        let named = class.iter().enumerate().fold(text, |text, (at, name)| {
            text.replace(&format!("\"label\":{at}"), &format!("\"label\":\"{name}\""))
        });
        named.replace("\"input\"", "\"X\"").into()
    };
    let names = ["a", "b", "c"];
    let first = bed
        .new_model(("app", "first"), (&foreign(5, [0, 1, 2]), &lines(names)))
        .await;
    let first = NewModel {
        classes: classes(&names),
        ..first
    };
    well(&bed, &first).await;
    let turned = bed
        .new_model(("app", "turned"), (&foreign(5, [2, 0, 1]), &lines(names)))
        .await;
    let turned = NewModel {
        classes: classes(&["c", "a", "b"]),
        ..turned
    };
    let changes = well(&bed, &turned).await;
    assert!(
        changes.contains("order of classes: `a`, `b`, `c`"),
        "{changes}"
    );
    let rows: Vec<f32> = (0..3 * WIDTH).map(|at| (at as f32).sin()).collect();
    let first = answers(&bed, "first", &rows, vec![3, WIDTH]).await;
    let turned = answers(&bed, "turned", &rows, vec![3, WIDTH]).await;
    for name in ["scores", "label"] {
        let tensor = |of: &[NamedTensor]| {
            let found = of.iter().find(|it| it.name == name);
            found.map(|it| it.tensor.clone()).expect("an output")
        };
        assert_eq!(tensor(&first), tensor(&turned), "{name}");
    }
    assert!(changes.contains("in output `label`"), "{changes}");
    let accuracy = |variants: &[sextant_types::Variant]| variants[0].accuracy.value;
    let (one, other) = (bed.variants("first").await, bed.variants("turned").await);
    assert_eq!(accuracy(&one), accuracy(&other));

    let other = bed
        .new_model(("app", "other"), (&foreign(5, [0, 1, 2]), &lines(names)))
        .await;
    let other = NewModel {
        classes: classes(&["a", "b", "d"]),
        ..other
    };
    let (code, why) = refused(&bed, &other).await;
    assert_eq!(code, Code::SignatureMismatch);
    assert!(
        why.contains("`a`, `b`, `d`") && why.contains("`a`, `b`, `c`"),
        "{why}"
    );
}

/// A classifier of images whose shape a plain export has written into the graph, in one of several ways.
fn exported(batch: Dim, reshape: &[i64]) -> Bytes {
    let mut builder = ModelBuilder::new("exported", 3);
    let side = Dim::Fixed(2);
    builder.input("image", DataType::Fp32, &[batch, side, Dim::Fixed(4)]);
    builder.output(
        "scores",
        DataType::Fp32,
        &[batch, Dim::Fixed(CLASSES as u64)],
    );
    builder.constant("shape", &[reshape.len()], reshape);
    builder.random("w", &[8, CLASSES], 1.0);
    builder.node("Relu", &["image"], &["positive"]);
    builder.node("Reshape", &["positive", "shape"], &["flat"]);
    builder.node("MatMul", &["flat", "w"], &["scores"]);
    builder.build()
}

fn images() -> Bytes {
    let line = |at: usize| {
        let of = |it: usize| (((at * 8 + it) as f32) * 0.7).sin();
        let rows: Vec<Vec<f32>> = (0..2)
            .map(|row| (0..4).map(|it| of(row * 4 + it)).collect())
            .collect();
        format!(
            "{}\n",
            serde_json::json!({"inputs": {"image": rows}, "label": at % CLASSES})
        )
    };
    (0..30).map(line).collect::<String>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_export_takes_batches_and_its_corrected_one_fits_beside_it() {
    let bed = Bed::new().await;
    let one = Dim::Fixed(1);
    for (application, shape) in [("known", vec![1, 8]), ("rest", vec![1, -1])] {
        bed.application(application, Metric::Top1).await;
        let file = exported(one, &shape);
        let plain = format!("{application}-plain");
        let new = bed
            .new_model((application, &plain), (&file, &images()))
            .await;
        let changes = well(&bed, &new).await;
        assert!(changes.contains("served in batches"), "{changes}");
        assert!(bed.variants(&plain).await[0].signature.batched);
        let again = exported(BATCH, &[-1, 8]);
        let new = bed
            .new_model(
                (application, &format!("{application}-again")),
                (&again, &images()),
            )
            .await;
        well(&bed, &new).await;
    }
}

/// The same without labels.
fn unlabelled() -> Bytes {
    let images = images();
    let lines = images
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let lines = lines.map(|line| {
        let line: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        format!("{}\n", serde_json::json!({"inputs": line["inputs"]}))
    });
    lines.collect::<String>().into()
}

/// As readers of text are exported that come out of PyTorch with the time first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_whose_records_come_second_is_why_a_file_takes_no_batches() {
    let bed = Bed::new().await;
    let mut builder = ModelBuilder::new("time-first", 4);
    let shape = [Dim::Fixed(1), Dim::Fixed(2), Dim::Fixed(4)];
    builder.input("image", DataType::Fp32, &shape);
    let scores = [Dim::Fixed(2), Dim::Fixed(1), Dim::Fixed(CLASSES as u64)];
    builder.output("scores", DataType::Fp32, &scores);
    builder.random("w", &[4, CLASSES], 1.0);
    builder.node("MatMul", &["image", "w"], &["by_record"]);
    let turned = vec![AttributeProto::ints("perm", &[1, 0, 2])];
    builder.node_with("Transpose", &["by_record"], &["scores"], turned);
    bed.application("read", Metric::Cosine).await;
    let new = bed
        .new_model(("read", "time-first"), (&builder.build(), &unlabelled()))
        .await;
    let new = NewModel {
        unlabelled: true,
        ..new
    };
    let changes = well(&bed, &new).await;
    let why = "it takes no batches: output `scores` is [2, 1, 3]";
    assert!(changes.contains(why), "{changes}");
    assert!(!bed.variants("time-first").await[0].signature.batched);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_no_batches_says_how_it_would_and_takes_wider_models_beside_it() {
    let bed = Bed::new().await;
    // A constant of one record stands beside each, as a token that an exporter has repeated once.
    let mut builder = ModelBuilder::new("mixed", 3);
    let shape = [Dim::Fixed(1), Dim::Fixed(2), Dim::Fixed(4)];
    builder.input("image", DataType::Fp32, &shape);
    builder.output(
        "scores",
        DataType::Fp32,
        &[Dim::Fixed(1), Dim::Fixed(CLASSES as u64)],
    );
    builder.random("token", &[1, 1, 4], 1.0);
    builder.constant("shape", &[2], &[1i64, 12]);
    builder.random("w", &[12, CLASSES], 1.0);
    let rows = vec![AttributeProto::int("axis", 1)];
    builder.node_with("Concat", &["token", "image"], &["with_token"], rows);
    builder.node("Reshape", &["with_token", "shape"], &["flat"]);
    builder.node("MatMul", &["flat", "w"], &["scores"]);
    let new = bed
        .new_model(("app", "mixed"), (&builder.build(), &images()))
        .await;
    let changes = well(&bed, &new).await;
    assert!(
        changes.contains("takes no batches") && changes.contains("dynamic_shapes"),
        "{changes}"
    );
    let wider = exported(BATCH, &[-1, 8]);
    let new = bed.new_model(("app", "wider"), (&wider, &images())).await;
    let changes = well(&bed, &new).await;
    assert!(
        changes.contains("dimension `0` of input `image`"),
        "{changes}"
    );
    let variants = bed.variants("wider").await;
    assert_eq!(
        variants[0].signature,
        bed.variants("mixed").await[0].signature
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dimensions_that_a_file_leaves_open_are_those_of_the_application() {
    let bed = Bed::new().await;
    bed.register_well("m", &model(1), &validation(1)).await;
    let mut builder = ModelBuilder::new("open", 3);
    let open = [BATCH, Dim::Dynamic("features")];
    builder.input("input", DataType::Fp32, &open);
    builder.output("output", DataType::Fp32, &[BATCH, Dim::Dynamic("classes")]);
    builder.random("w", &[WIDTH, CLASSES], 1.0);
    builder.node("MatMul", &["input", "w"], &["output"]);
    let new = bed
        .new_model(("app", "open"), (&builder.build(), &validation(1)))
        .await;
    let changes = well(&bed, &new).await;
    assert!(
        changes.contains("dimension `1` of input `input`"),
        "{changes}"
    );
    // The other way round nothing may be taken for granted: queries of any width would be refused.
    let bed = Bed::new().await;
    bed.application("wide", Metric::Top1).await;
    let mut builder = ModelBuilder::new("any", 3);
    builder.input("input", DataType::Fp32, &open);
    builder.output("output", DataType::Fp32, &open);
    builder.node("Relu", &["input"], &["output"]);
    let new = bed
        .new_model(("wide", "any"), (&builder.build(), &validation(1)))
        .await;
    well(&bed, &new).await;
    let narrow = builder::mlp(&[WIDTH, CLASSES], 1);
    let new = bed
        .new_model(("wide", "narrow"), (&narrow, &validation(1)))
        .await;
    let (code, why) = refused(&bed, &new).await;
    assert_eq!(code, Code::SignatureMismatch, "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_is_declared_wrong_is_found_by_running() {
    let bed = Bed::new().await;
    bed.application("tags", Metric::Exact).await;
    let mut builder = ModelBuilder::new("tags", 3);
    builder.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(3)]);
    // As skl2onnx declares the labels of a classifier of several.
    builder.output("tags", DataType::Int64, &[BATCH]);
    builder.constant("zero", &[], &[0.0f32]);
    builder.node("Greater", &["x", "zero"], &["positive"]);
    let to = vec![AttributeProto::int("to", 7)];
    builder.node_with("Cast", &["positive"], &["tags"], to);
    let file = builder.build();
    let declared = inspect(&file).expect("a model").signature;
    assert_eq!(declared.outputs[0].shape_text(), "[?]");
    let line = |at: i32| {
        let x = [at - 5, 5 - at, at % 3 - 1];
        let tags = x.map(|it| i32::from(it > 0));
        format!(
            "{}\n",
            serde_json::json!({"inputs": {"x": x}, "label": tags})
        )
    };
    let records: Bytes = (0..20).map(line).collect::<String>().into();
    let new = bed.new_model(("tags", "m"), (&file, &records)).await;
    let changes = well(&bed, &new).await;
    assert!(
        changes.contains("[?, 3] was found by running it"),
        "{changes}"
    );
    let variants = bed.variants("m").await;
    assert_eq!(variants[0].signature.outputs[0].shape_text(), "[?, 3]");
    assert_eq!(variants[0].accuracy.value, 1.0);
    bed.application("several", Metric::F1MultiLabel).await;
    let new = bed.new_model(("several", "n"), (&file, &records)).await;
    well(&bed, &new).await;
    assert_eq!(bed.variants("n").await[0].accuracy.value, 1.0);
    let twice = String::from_utf8_lossy(&records).replace("\"label\":[1", "\"label\":[2");
    let new = bed
        .new_model(("several", "two"), (&file, &twice.into()))
        .await;
    let (code, why) = refused(&bed, &new).await;
    assert_eq!(code, Code::InvalidValidationSet, "{why}");
    assert!(why.contains("1 for a label"), "{why}");
}
