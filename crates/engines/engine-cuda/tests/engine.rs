//! The engine's use of memory, graphs and faults, observed through the driver's calls.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sextant_engine::{
    Device, Engine, Error, LoadRequest, LoadedModel, ModelFile,
    conformance::{assert_close, random_inputs},
};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Call, Pretence, RecordingDriver},
    suite::networks::{Encoder, encoder},
};
use sextant_onnx::{
    builder::{self, BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Tensor};

const PAGE_BYTES: u64 = 32 << 10;

fn config() -> Config {
    Config {
        page_bytes: PAGE_BYTES,
        pages: Some(12),
        workspace_bytes: 1 << 20,
        io_bytes: 64 << 10,
        scratch_bytes: 0,
        largest_batch: 8,
        host_bytes: 1 << 20,
    }
}

fn start(config: Config) -> (CudaEngine, Arc<RecordingDriver>) {
    let driver = Arc::new(RecordingDriver::new(Pretence::default()));
    let engine = CudaEngine::new(driver.clone(), config).expect("the memory is there");
    (engine, driver)
}

fn request(artefact: u8, model: &Bytes) -> LoadRequest {
    LoadRequest {
        artefact: Digest::from_bytes([artefact; 32]),
        model: model.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

fn load(engine: &CudaEngine, artefact: u8, model: &Bytes) -> Arc<dyn LoadedModel> {
    match engine.load(&request(artefact, model)) {
        Ok(model) => model,
        Err(error) => panic!("a good model is refused: {error}"),
    }
}

fn run(model: &dyn LoadedModel, rows: usize) -> Vec<Tensor> {
    let inputs = random_inputs(model.signature(), &[rows], 5);
    model.run(&inputs).expect("a good batch runs")
}

/// A model of about the given number of pages.
fn model(pages: usize, seed: u64) -> Bytes {
    builder::mlp(&vec![64; 2 * pages], seed)
}

/// How often each operation was launched, captures included.
fn launches(driver: &RecordingDriver) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for call in driver.calls() {
        if let Call::Launch { operation, .. } = call {
            *counts.entry(operation).or_default() += 1;
        }
    }
    counts
}

fn captures(driver: &RecordingDriver) -> usize {
    let capture = |call: &&Call| matches!(call, Call::EndCapture { .. });
    driver.calls().iter().filter(capture).count()
}

/// A model `x` `[batch, 4]` to `y` of one node.
fn single(op_type: &str, attributes: Vec<AttributeProto>, extra: &[(&str, &[i64])]) -> Bytes {
    let mut model = ModelBuilder::new("single", 1);
    model.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    model.output("y", DataType::Fp32, &[BATCH, Dim::Dynamic("width")]);
    for (name, values) in extra {
        model.constant(name, &[values.len()], values);
    }
    let names = extra.iter().map(|(name, _)| *name);
    let inputs: Vec<&str> = ["x"].into_iter().chain(names).collect();
    model.node_with(op_type, &inputs, &["y"], attributes);
    model.build()
}

#[test]
fn the_device_is_told() {
    let (engine, driver) = start(config());
    let Device::Dedicated { name, memory } = engine.device() else {
        panic!("a device of its own");
    };
    assert_eq!(
        (name.as_str(), memory.page_bytes, memory.pages),
        ("cuda:0", PAGE_BYTES, 12)
    );
    let first = driver.calls()[0];
    let Call::Start(reservation) = first else {
        panic!("the device is started first, not {first:?}");
    };
    assert_eq!(
        reservation.arena_bytes,
        12 * PAGE_BYTES + (1 << 20) + (64 << 10)
    );
}

#[test]
fn pages_are_counted_from_free_memory() {
    let (engine, _) = start(Config {
        pages: None,
        ..config()
    });
    let Device::Dedicated { memory, .. } = engine.device() else {
        panic!("a device of its own");
    };
    let rest = (1 << 20) + (64 << 10);
    assert_eq!(memory.pages, ((256u64 << 20) / 10 * 9 - rest) / PAGE_BYTES);
}

#[test]
fn loads_succeed_while_there_are_pages() {
    let (engine, _) = start(config());
    let seed = 77;
    let mut random = random_numbers(seed);
    let models: Vec<Bytes> = (0..6).map(|it| model(1 + it % 4, it as u64)).collect();
    let needed: Vec<u64> = models.iter().map(pages_of).collect();
    let mut answers: Vec<Option<Vec<Tensor>>> = vec![None; models.len()];
    let mut held: Vec<Option<Arc<dyn LoadedModel>>> = vec![None; models.len()];
    for step in 0..120 {
        let index = random(models.len());
        let context = format!("seed {seed}, step {step}, model {index}");
        if held[index].take().is_some() {
            continue;
        }
        let free = engine.free_pages();
        match engine.load(&request(index as u8, &models[index])) {
            Ok(model) => {
                assert!(free >= needed[index], "{context}: {free} pages are free");
                assert_eq!(engine.free_pages(), free - needed[index], "{context}");
                let answer = run(&*model, 2);
                let before = answers[index].get_or_insert_with(|| answer.clone());
                assert_eq!(*before, answer, "{context}: in other pages");
                held[index] = Some(model);
            }
            Err(Error::OutOfMemory(_)) => {
                assert!(free < needed[index], "{context}: {free} pages are free");
                assert_eq!(engine.free_pages(), free, "{context}");
            }
            Err(error) => panic!("{context}: {error}"),
        }
        for (other, model) in held.iter().enumerate() {
            if let Some(model) = model {
                assert_eq!(Some(run(&**model, 2)), answers[other], "{context}: {other}");
            }
        }
    }
    drop(held);
    assert_eq!(engine.free_pages(), 12);
}

/// The pages that a model takes on a device with many pages.
fn pages_of(model: &Bytes) -> u64 {
    let (engine, _) = start(Config {
        pages: Some(64),
        ..config()
    });
    let _model = load(&engine, 1, model);
    64 - engine.free_pages()
}

fn random_numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn precisions_of_one_artefact_have_weights_of_their_own() {
    let (engine, _) = start(config());
    let file = model(2, 1);
    let full = load(&engine, 1, &file);
    let half = LoadRequest {
        precision: Precision::Fp16,
        ..request(1, &file)
    };
    let half = engine.load(&half).expect("there is room for both");
    assert_eq!(half.weights_bytes() * 2, full.weights_bytes());
    let both = full.weights_bytes() + half.weights_bytes();
    assert_eq!(engine.resident_weights_bytes(), both);
    let again = load(&engine, 1, &file);
    assert_eq!(engine.resident_weights_bytes(), both);
    drop((full, again));
    assert_eq!(engine.resident_weights_bytes(), half.weights_bytes());
}

#[test]
fn weights_above_a_page_lie_in_several() {
    let mut model = ModelBuilder::new("wide", 3);
    model.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(96)]);
    model.input("at", DataType::Int64, &[BATCH, Dim::Fixed(1)]);
    model.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(300)]);
    model.random("w", &[96, 300], 0.3).random("b", &[300], 0.3);
    model
        .random("v", &[300, 300], 0.3)
        .random("table", &[300, 300], 0.5);
    model
        .node("MatMul", &["x", "w"], &["p"])
        .node("Add", &["p", "b"], &["q"]);
    model.node("Relu", &["q"], &["r"]);
    let turned = vec![AttributeProto::int("transB", 1)];
    model.node_with("Gemm", &["r", "v", "b"], &["s"], turned);
    model.node("Gather", &["table", "at"], &["g"]);
    let axes = [1i64];
    model
        .constant("axes", &[1], &axes)
        .node("Squeeze", &["g", "axes"], &["h"]);
    let model = model.node("Add", &["s", "h"], &["y"]).build();
    let small = Config {
        pages: Some(40),
        ..config()
    };
    let large = Config {
        page_bytes: 1 << 20,
        ..config()
    };
    let [small, large] = [small, large].map(|config| start(config).0);
    let [split, whole] = [&small, &large].map(|engine| load(engine, 1, &model));
    assert!(40 - small.free_pages() > 20, "the weights are 820 KiB");
    assert_eq!(12 - large.free_pages(), 1);
    for seed in 0..4 {
        let inputs = random_inputs(split.signature(), &[5], seed);
        let [split, whole] = [&split, &whole].map(|it| it.run(&inputs).expect("it runs"));
        assert_close(&split, &whole, &format!("seed {seed}"));
    }
}

#[test]
fn known_batches_need_no_new_graph() {
    let (engine, driver) = start(config());
    let model = load(&engine, 1, &model(1, 1));
    assert_eq!(captures(&driver), 4, "of 1, 2, 4 and 8 rows");
    (1..=8).for_each(|rows| drop(run(&*model, rows)));
    assert_eq!(captures(&driver), 4);
    // A larger batch has a graph of its own, made when it first comes.
    run(&*model, 9);
    run(&*model, 9);
    assert_eq!(captures(&driver), 5);
}

#[test]
fn models_load_without_pinned_memory_too() {
    let file = model(5, 1);
    let (pinned, _) = start(config());
    let (ordinary, driver) = start(Config {
        host_bytes: 0,
        ..config()
    });
    let answers = [&pinned, &ordinary].map(|engine| run(&*load(engine, 1, &file), 2));
    assert_eq!(answers[0], answers[1]);
    // The four chunks are used in turn.
    let sources = driver.calls().into_iter().filter_map(|call| match call {
        Call::CopyIn { from, .. } if from.get() >= 64 << 10 => Some(from.get()),
        _ => None,
    });
    let sources: Vec<u64> = sources.collect();
    assert!(sources.len() > 4, "{sources:?}");
    assert_eq!(sources[0], sources[4]);
}

#[test]
fn a_model_too_large_for_pinned_memory_costs_no_other_its_place() {
    let (small, large) = (model(2, 1), model(5, 2));
    let (engine, driver) = start(Config {
        host_bytes: pages_of(&small) * PAGE_BYTES,
        ..config()
    });
    drop(load(&engine, 1, &small));
    drop(load(&engine, 2, &large));
    let before = captures(&driver);
    load(&engine, 1, &small);
    assert_eq!(captures(&driver), before, "its graphs were kept");
}

#[test]
fn a_model_that_is_prepared_loads_without_its_file() {
    let file = model(2, 1);
    let (engine, _) = start(Config {
        host_bytes: pages_of(&file) * PAGE_BYTES,
        ..config()
    });
    let absent = LoadRequest {
        model: ModelFile::absent(),
        ..request(1, &file)
    };
    let has = || engine.has_prepared(&absent.artefact, Precision::Fp32);
    assert!(!has() && engine.load(&absent).is_err());
    let answers = run(&*load(&engine, 1, &file), 2);
    assert!(has() && !engine.has_prepared(&absent.artefact, Precision::Fp16));
    let again = engine.load(&absent).expect("it is prepared");
    assert_eq!(run(&*again, 2), answers);
    drop(again);
    // This load makes one model give up its place.
    drop(load(&engine, 2, &file));
    assert!(!has() && engine.load(&absent).is_err());
}

#[test]
fn what_is_on_the_device_is_not_forgotten_for_others() {
    let file = model(2, 1);
    let (engine, driver) = start(Config {
        host_bytes: 2 * pages_of(&file) * PAGE_BYTES,
        ..config()
    });
    let first = load(&engine, 1, &file);
    drop(load(&engine, 2, &file));
    // One of the two earlier models gives up its place.
    drop(load(&engine, 3, &file));
    drop(first);
    let before = captures(&driver);
    load(&engine, 1, &file);
    assert_eq!(captures(&driver), before, "its graphs were kept");
    load(&engine, 2, &file);
    assert_eq!(captures(&driver), before + 4, "it was forgotten");
}

#[test]
fn a_batch_answers_the_same_in_every_graph() {
    let (engine, _) = start(config());
    let model = load(&engine, 1, &model(1, 1));
    let inputs = random_inputs(model.signature(), &[9], 3);
    let whole = model.run(&inputs).expect("it runs");
    for rows in 1..9 {
        let part = inputs[0]
            .tensor
            .slice_rows(0, rows)
            .expect("there are nine");
        let part = model
            .run(&[NamedTensor::new("input", part)])
            .expect("it runs");
        let wanted = vec![whole[0].slice_rows(0, rows).expect("there are nine")];
        assert_close(&part, &wanted, &format!("{rows} rows"));
    }
}

#[test]
fn a_batch_is_one_copy_one_graph_one_copy() {
    let (engine, driver) = start(config());
    let model = load(&engine, 1, &model(1, 1));
    let before = driver.calls().len();
    run(&*model, 3);
    let calls = driver.calls();
    let kinds: Vec<&str> = calls[before..]
        .iter()
        .map(|call| match call {
            Call::CopyIn { .. } => "in",
            Call::CopyWithin { .. } => "within",
            Call::LaunchGraph { .. } => "graph",
            Call::CopyOut { .. } => "out",
            other => panic!("{other:?} while a batch runs"),
        })
        .collect();
    assert_eq!(kinds, ["in", "within", "graph", "within", "out"]);
}

#[test]
fn formulas_become_operators() {
    let (engine, driver) = start(Config {
        largest_batch: 1,
        ..config()
    });
    let model = load(&engine, 1, &encoder(&Encoder::SMALL, 4));
    let inputs = random_inputs(model.signature(), &[1, 6], 1);
    model.run(&inputs).expect("it runs");
    let counts = launches(&driver);
    // For each of the two layers one product for queries, keys and values, two batched and three others; and the pool.
    assert_eq!(counts["Gemm"], 2 * 6 + 1);
    assert_eq!(counts["LayerNorm"], 2 * 2 + 1);
    assert_eq!(counts["Softmax"], 2);
    // There is one Gelu for each layer, and the hyperbolic tangent.
    assert_eq!(counts["Unary"], 2 + 1);
    assert_eq!(counts["Gather"], 3 + 1);
    assert_eq!(counts.get("Reduce"), None);
}

#[test]
fn convolutions_take_over_what_follows() {
    let (engine, driver) = start(Config {
        largest_batch: 1,
        ..config()
    });
    let model = builder::conv_net(4, 3, 1);
    load(&engine, 1, &model);
    let counts = launches(&driver);
    assert_eq!(counts["Im2col"], 3);
    assert_eq!(counts["Affine"], 3, "bias and activation in one");
    assert_eq!(counts["Binary"], 1, "the sum and its activation in one");
    assert_eq!(counts.get("Unary"), None);
}

#[test]
fn batches_that_mix_rows_run_as_they_are() {
    let model = single("Reshape", Vec::new(), &[("shape", &[-1, 2])]);
    let (engine, _) = start(config());
    let model = load(&engine, 1, &model);
    assert_eq!(run(&*model, 3)[0].shape(), [6, 2]);
}

#[test]
fn what_is_not_supported_is_named() {
    let (engine, _) = start(config());
    let reflect = vec![AttributeProto::string("mode", "reflect")];
    let cases = [
        (
            single("Pad", reflect, &[("pads", &[0, 1, 0, 1])]),
            "operator `Pad` (node `y_node`)",
        ),
        (
            single("Einsum", Vec::new(), &[]),
            "operator `Einsum` (node `y_node`)",
        ),
    ];
    for (model, named) in cases {
        match engine.load(&request(9, &model)) {
            Err(Error::Unsupported(text)) => assert!(text.contains(named), "{text}"),
            Err(other) => panic!("refused as `{other}`"),
            Ok(_) => panic!("accepted"),
        }
    }
    assert_eq!(engine.free_pages(), 12);
}

#[test]
fn precisions_follow_the_device() {
    let pretence = Pretence {
        compute_capability: (7, 5),
        ..Pretence::default()
    };
    let driver = Arc::new(RecordingDriver::new(pretence));
    let engine = CudaEngine::new(driver, config()).expect("the memory is there");
    let precisions = engine.capabilities().precisions;
    assert_eq!(precisions, [Precision::Fp32, Precision::Fp16]);
    for precision in [Precision::Bf16, Precision::Int8Static] {
        let request = LoadRequest {
            precision,
            ..request(1, &model(1, 1))
        };
        assert!(matches!(engine.load(&request), Err(Error::Unsupported(_))));
    }
}

#[test]
fn large_masks_do_not_become_infinite() {
    let mut model = ModelBuilder::new("mask", 1);
    model.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    model.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    model
        .constant("lowest", &[], &[f32::MIN])
        .constant("zero", &[], &[0f32]);
    model.node("Mul", &["x", "zero"], &["z"]);
    let model = model.node("Mul", &["z", "lowest"], &["y"]).build();
    let (engine, _) = start(config());
    for precision in [Precision::Fp16, Precision::Bf16] {
        let request = LoadRequest {
            precision,
            ..request(1, &model)
        };
        let model = engine.load(&request).expect("the model loads");
        let answer = run(&*model, 2)[0].to_vec::<f32>().expect("32-bit floats");
        assert!(answer.iter().all(|value| *value == 0.0), "{answer:?}");
    }
}

#[test]
fn too_many_batches_at_once_are_refused_and_forgotten() {
    let (engine, _) = start(config());
    let model = load(&engine, 1, &model(1, 1));
    let inputs = random_inputs(model.signature(), &[8], 1);
    let mut staged = Vec::new();
    let refused = loop {
        match model.stage(&inputs) {
            Ok(batch) => staged.push(batch.expect("the device has memory of its own")),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    let wanted = {
        let mut batch = staged.pop().expect("some fit");
        batch
            .exec()
            .expect("it runs")
            .expect("the device has a clock");
        batch.collect().expect("it answers")
    };
    drop(staged);
    assert_eq!(model.run(&inputs), Ok(wanted));
}

#[test]
fn too_little_workspace_is_told() {
    let (engine, _) = start(Config {
        workspace_bytes: 1024,
        ..config()
    });
    match engine.load(&request(1, &builder::conv_net(8, 3, 1))) {
        Err(Error::OutOfMemory(shortage)) => {
            let text = shortage.to_string();
            assert!(text.contains("workspace"), "{text}");
            assert!(shortage.is_fixed(), "no unload changes it");
        }
        Err(other) => panic!("refused as `{other}`"),
        Ok(_) => panic!("accepted"),
    }
}

#[test]
fn a_lost_device_is_told() {
    let (engine, driver) = start(config());
    let model = load(&engine, 1, &model(1, 1));
    driver.lose();
    let inputs = random_inputs(model.signature(), &[1], 1);
    assert!(matches!(model.run(&inputs), Err(Error::Lost(_))));
}

#[test]
fn memory_that_is_not_there_is_told() {
    let driver = Arc::new(RecordingDriver::new(Pretence::default()));
    let greedy = Config {
        workspace_bytes: 1 << 40,
        ..config()
    };
    let refused = CudaEngine::new(driver, greedy)
        .err()
        .expect("there is no terabyte");
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
}
