//! Models whose files are mapped in place of being read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sextant_engine::Engine;
use sextant_engine_rten::RtenEngine;
use sextant_onnx::{
    builder, decode, encode, inspect,
    proto::{EXTERNAL, StringStringEntryProto},
};
use sextant_registry::{DataFile, JobState};
use sextant_types::Variant;
use sextant_variant_gen::{Config, Generator};

use crate::bed::{Bed, CLASSES, WIDTH, ort, quick, validation};

/// With two matrices that stay in the file, and one that is small.
fn model() -> Bytes {
    builder::mlp(&[WIDTH, 2100, 200, CLASSES], 5)
}

/// Every file is mapped.
fn mapping() -> Config {
    Config {
        map_from_bytes: 1,
        ..quick()
    }
}

/// The model with its weights in a file beside it.
fn apart() -> (Bytes, Bytes) {
    let (mut model, mut data) = (decode(&model()).expect("a model"), vec![1, 2, 3]);
    for tensor in &mut model.graph.as_mut().expect("a graph").initializer {
        let raw = tensor.raw_data.take().expect("raw data");
        let entry = |key: &str, value: String| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value),
        };
        tensor.data_location = Some(EXTERNAL);
        tensor.external_data = vec![
            entry("location", "weights.bin".to_owned()),
            entry("offset", data.len().to_string()),
            entry("length", raw.len().to_string()),
        ];
        data.extend_from_slice(&raw);
    }
    (encode(&model), data.into())
}

/// Accuracies by the names of variants, without the model's.
fn accuracies(variants: &[Variant]) -> BTreeMap<String, String> {
    let of = |it: &Variant| (it.spec.name(), format!("{:?}", it.accuracy));
    variants.iter().map(of).collect()
}

async fn register(bed: &Bed, name: &str, config: Config) -> Vec<Variant> {
    let job = bed.submit(name, &model(), &validation(3)).await.job;
    let job = bed.run_to_end(bed.generator(config), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    bed.variants(name).await
}

#[tokio::test]
async fn a_mapped_model_has_the_variants_of_one_in_memory() {
    let bed = Bed::new().await;
    let mut usual = mapping();
    usual.map_from_bytes = u64::MAX;
    let (read, mapped) = (
        register(&bed, "read", usual).await,
        register(&bed, "mapped", mapping()).await,
    );
    assert!(read.len() > 3, "{read:?}");
    assert_eq!(accuracies(&mapped), accuracies(&read));
    for variant in mapped {
        // The artefact is a whole file again, whatever it was put together from.
        let file = bed.objects.get_blob(&variant.artefact).await;
        let file = file.expect("it is stored");
        inspect(&file).expect("a model with its data inside");
    }
    let scratch = bed.objects.scratch().expect("a local store has one");
    let left = std::fs::read_dir(scratch).expect("it was used");
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn weights_beside_a_model_are_put_together_without_being_read() {
    let bed = Bed::new().await;
    let (graph, data) = apart();
    for (name, map_from_bytes) in [("mapped", 1), ("read", u64::MAX)] {
        let data = DataFile {
            name: "weights.bin".to_owned(),
            digest: bed.objects.put_blob(data.clone()).await.expect("stored"),
            size_bytes: data.len() as u64,
        };
        let files = (&graph, &validation(3));
        let job = bed.submit_with("app", name, files, vec![data]).await.job;
        let config = Config {
            map_from_bytes,
            ..mapping()
        };
        let job = bed.run_to_end(bed.generator(config), &job.id).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
        let changes = job.result.expect("a result")["changes"].to_string();
        assert!(changes.contains("files beside the model"), "{changes}");
    }
    let (mapped, read) = (bed.variants("mapped").await, bed.variants("read").await);
    assert_eq!(accuracies(&mapped), accuracies(&read));
}

#[tokio::test]
async fn what_is_wrong_with_files_beside_a_model_is_said_the_same() {
    let bed = Bed::new().await;
    let (graph, data) = apart();
    let cut = data.slice(..data.len() - 1);
    for (name, file, file_name, says) in [
        ("short", cut, "weights.bin", "beyond the"),
        ("other", data.clone(), "other.bin", "send that file too"),
    ] {
        for (kind, map_from_bytes) in [("mapped", 1), ("read", u64::MAX)] {
            let data = DataFile {
                name: file_name.to_owned(),
                digest: bed.objects.put_blob(file.clone()).await.expect("stored"),
                size_bytes: file.len() as u64,
            };
            let (name, files) = (format!("{name}-{kind}"), (&graph, &validation(3)));
            let job = bed.submit_with("app", &name, files, vec![data]).await.job;
            let config = Config {
                map_from_bytes,
                ..mapping()
            };
            let job = bed.run_to_end(bed.generator(config), &job.id).await;
            assert_eq!(job.state, JobState::Failed, "{name}");
            let said = job.error.expect("an error").message;
            assert!(said.contains(says), "{name}: {said}");
        }
    }
}

#[tokio::test]
async fn engines_that_hold_a_large_file_are_left_to_those_who_have_no_other() {
    let bed = Bed::new().await;
    let both: Vec<Arc<dyn Engine>> = vec![Arc::new(ort()), Arc::new(RtenEngine::new())];
    let alone: Vec<Arc<dyn Engine>> = vec![Arc::new(RtenEngine::new())];
    for (name, engines, engine) in [("both", both, "ort"), ("alone", alone, "rten")] {
        let job = bed.submit(name, &model(), &validation(3)).await.job;
        let config = Config {
            cores: 2,
            ..mapping()
        };
        let generator = Generator::new(bed.stores(), engines, config);
        let job = bed.run_to_end(generator, &job.id).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
        let variants = bed.variants(name).await;
        assert!(!variants.is_empty());
        for variant in variants {
            // One session holds the weights: it has all cores.
            assert_eq!(
                (variant.spec.engine.0.as_str(), variant.spec.threads),
                (engine, 2)
            );
        }
    }
}

/// Numbers of threads double: there is none for all of six cores, nor of three.
#[tokio::test]
async fn a_large_model_has_variants_whatever_the_number_of_cores_is() {
    let bed = Bed::new().await;
    for (name, cores, threads) in [("three", 3, 2), ("six", 6, 4)] {
        let job = bed.submit(name, &model(), &validation(3)).await.job;
        let config = Config { cores, ..mapping() };
        let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(ort())];
        let generator = Generator::new(bed.stores(), engines, config);
        let job = bed.run_to_end(generator, &job.id).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
        let variants = bed.variants(name).await;
        assert!(!variants.is_empty());
        for variant in variants {
            assert_eq!(variant.spec.threads, threads, "{}", variant.id);
        }
    }
}
