//! ONNX Runtime as the engine of a device of its own: the suite runs on the processor in a GPU's place.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use sextant_engine::{
    DeviceMemory, Engine, Error, LoadRequest,
    conformance::{Fixture, Fixtures, random_inputs},
};
use sextant_engine_ort::{Gpu, GpuEngine, OrtEngine, Provider};
use sextant_onnx::builder::{Dim, ModelBuilder};
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Tensor};

#[path = "../../engine/tests/support/fixtures.rs"]
mod fixtures;

#[path = "../../engine/tests/support/indices.rs"]
mod indices;

#[path = "../../engine/tests/support/mapped.rs"]
mod mapped;

#[path = "../../engine/tests/support/rows.rs"]
mod rows;

const MB: u64 = 1_000_000;

fn library() -> PathBuf {
    OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`")
}

fn gpu(free_bytes: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Gpu {
    Gpu {
        ordinal: 0,
        model: "A processor".to_owned(),
        is_ampere: true,
        memory: DeviceMemory {
            page_bytes: 16 << 20,
            pages: 64,
        },
        free_bytes: Arc::new(free_bytes),
        largest_batch: 64,
        timings: None,
    }
}

fn engine() -> Arc<dyn Engine> {
    match GpuEngine::new(&library(), Provider::Cpu, gpu(|| None)) {
        Ok(engine) => Arc::new(engine),
        Err(error) => panic!("{error}"),
    }
}

fn all() -> Fixtures {
    fixtures::fixtures(
        &DataType::ALL,
        rows::one_at_a_time(engine, Optimization::All),
    )
}

sextant_engine::bind_conformance!(engine(), all());

#[test]
fn mapped_models_are_answered_alike() {
    mapped::answers_alike(engine().as_ref());
}

#[test]
fn numbers_beyond_a_table_are_refused() {
    indices::numbers_beyond_a_table_are_refused(engine().as_ref());
}

/// The kernels of a GPU answer zeros where the processor's refuse.
#[test]
fn numbers_beyond_a_table_are_found_before_a_kernel_runs() {
    let any = [Dim::Dynamic("N"), Dim::Dynamic("T")];
    let mut model = ModelBuilder::new("embeddings", 3);
    model
        .input("tokens", DataType::Int64, &any)
        .output("each", DataType::Fp32, &[any[0], any[1], Dim::Fixed(8)])
        .random("words", &[32, 8], 1.0)
        .node("Gather", &["words", "tokens"], &["each"]);
    let request = LoadRequest {
        artefact: Digest::from_bytes([92; 32]),
        model: model.build().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    let model = engine().load(&request).expect("loads");
    let tokens = Tensor::from_elements(vec![1, 2], &[0i64, 32]).expect("two");
    let refused = model.run(&[NamedTensor::new("tokens", tokens)]);
    let refused = refused.expect_err("the table has no 32").to_string();
    assert!(
        refused.contains("`tokens` has `32`, the model takes `-32` to `31`"),
        "{refused}"
    );
}

#[test]
fn a_library_without_the_provider_is_refused_with_what_to_install() {
    for provider in [Provider::Cuda, Provider::TensorRt] {
        let error = GpuEngine::new(&library(), provider, gpu(|| None)).expect_err("no provider");
        let Error::Unavailable { engine, reason } = error else {
            panic!("{error}");
        };
        assert_eq!(engine, provider.engine());
        for part in ["onnxruntime_library", "onnxruntime-gpu", "cuDNN 9"] {
            assert!(reason.contains(part), "{reason}");
        }
    }
}

fn request(fixture: &Fixture) -> LoadRequest {
    LoadRequest {
        artefact: fixture.artefact,
        model: fixture.model.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

/// What the driver says is free less than before was taken by the model.
#[test]
fn the_memory_that_a_model_takes_is_what_the_device_misses() {
    let free = AtomicU64::new(1000 * MB);
    // Every look finds 10 MB less than the one before: two looks for a load, two for a run.
    let engine = GpuEngine::new(
        &library(),
        Provider::Cpu,
        gpu(move || Some(free.fetch_sub(10 * MB, Ordering::Relaxed))),
    );
    let engine = engine.expect("usable");
    let fixture = all().dense;
    let model = engine.load(&request(&fixture)).expect("loads");
    let working = 10 * MB - model.weights_bytes();
    assert_eq!(model.working_bytes(), Some(working));
    let inputs = random_inputs(&fixture.signature, &[2], 1);
    let _ = model.run(&inputs).expect("runs");
    assert_eq!(model.working_bytes(), Some(working + 10 * MB));
    assert_eq!(engine.resident_weights_bytes(), model.weights_bytes());
}

/// What is done when somebody next looks at the memory.
type Next = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

#[test]
fn what_a_load_takes_is_not_counted_for_a_model_that_runs_meanwhile() {
    let (free, next) = (AtomicU64::new(1000 * MB), Next::default());
    let asked = Arc::clone(&next);
    let engine = GpuEngine::new(
        &library(),
        Provider::Cpu,
        gpu(move || {
            let now = asked.lock().expect("whole").take();
            if let Some(now) = now {
                now();
            }
            Some(free.fetch_sub(10 * MB, Ordering::Relaxed))
        }),
    );
    let (engine, fixtures) = (engine.expect("usable"), all());
    let model = engine.load(&request(&fixtures.dense)).expect("loads");
    let working = model.working_bytes();
    let (running, inputs) = (
        Arc::clone(&model),
        random_inputs(&fixtures.dense.signature, &[2], 1),
    );
    // A load looks at the memory first when it has begun.
    *next.lock().expect("whole") = Some(Box::new(move || {
        let _ = running.run(&inputs).expect("runs");
    }));
    let other = engine.load(&request(&fixtures.dynamic)).expect("loads");
    assert!(next.lock().expect("whole").is_none(), "it has run");
    assert_eq!(model.working_bytes(), working);
    drop(other);
}
