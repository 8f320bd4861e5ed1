//! Models whose weights lie in a file.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU8, Ordering},
};

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, ModelFile, conformance::random_inputs, sweep};
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision, Tensor};

/// Names that were given.
static MADE: AtomicU8 = AtomicU8::new(1);

fn answers(engine: &dyn Engine, model: ModelFile, optimization: Optimization) -> Vec<Tensor> {
    let loaded = engine
        .load(&LoadRequest {
            // An engine shares what it has by this name, and may keep some of it.
            artefact: Digest::from_bytes([MADE.fetch_add(1, Ordering::Relaxed); 32]),
            model,
            precision: Precision::Fp32,
            optimization,
            threads: 1,
        })
        .expect("the model loads");
    let inputs = random_inputs(loaded.signature(), &[3], 5);
    let first = loaded.run(&inputs).expect("the batch runs");
    assert_eq!(loaded.run(&inputs).expect("it runs again"), first);
    first
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Models are answered alike, whether their files are in memory or mapped, and nothing is left of a mapped one.
pub fn answers_alike(engine: &dyn Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let (stored, scratch) = (folder.path().join("stored"), folder.path().join("scratch"));
    for file in [
        builder::mlp(&[300, 257, 310, 7], 4),
        builder::conv_net(64, 5, 2),
    ] {
        fs::write(&stored, &file).expect("it is written");
        for optimization in engine.capabilities().optimizations {
            let whole = answers(engine, file.clone().into(), optimization);
            let mapped = ModelFile::open(&stored, &scratch).expect("it is a model");
            assert!(mapped.graph.len() < file.len());
            assert_eq!(entries(&scratch), 1);
            // Others do not take it for one that was left behind.
            sweep(&scratch).expect("the folder is there");
            assert_eq!(answers(engine, mapped, optimization), whole);
            assert_eq!(entries(&scratch), 0, "it goes with the model");
        }
        // The store may have given its file up meanwhile.
        let mapped = ModelFile::open(&stored, &scratch).expect("it is a model");
        fs::remove_file(&stored).expect("it is there");
        let optimization = engine.capabilities().optimizations[0];
        let whole = answers(engine, Bytes::clone(&file).into(), optimization);
        assert_eq!(answers(engine, mapped, optimization), whole);
    }
    // What a process leaves that was killed.
    fs::create_dir_all(scratch.join("4000000-0")).expect("a folder");
    fs::write(scratch.join("4000000-0/lock"), "").expect("a file");
    sweep(&scratch).expect("the folder is there");
    assert_eq!(entries(&scratch), 0);
}
