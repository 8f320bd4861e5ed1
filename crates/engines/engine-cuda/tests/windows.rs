//! The places of models and what they keep there, observed through the driver's calls.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Device, Engine, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Call, Mapping, Pretence, RecordingDriver},
};
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision, Tensor};

const PAGE_BYTES: u64 = 32 << 10;
/// Graphs of 1, 2, 4 and 8 rows.
const GRAPHS: usize = 4;

fn config() -> Config {
    Config {
        page_bytes: PAGE_BYTES,
        pages: Some(12),
        workspace_bytes: 1 << 20,
        io_bytes: 64 << 10,
        scratch_bytes: 0,
        largest_batch: 8,
        host_bytes: 4 << 20,
    }
}

fn start(config: Config, pretence: Pretence) -> (CudaEngine, Arc<RecordingDriver>) {
    let driver = Arc::new(RecordingDriver::new(pretence));
    let engine = CudaEngine::new(driver.clone(), config).expect("the memory is there");
    (engine, driver)
}

fn mapping(mapping: Mapping) -> Pretence {
    Pretence {
        mapping,
        ..Pretence::default()
    }
}

fn load(engine: &CudaEngine, artefact: u8, model: &Bytes) -> Arc<dyn LoadedModel> {
    let request = LoadRequest {
        artefact: Digest::from_bytes([artefact; 32]),
        model: model.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    match engine.load(&request) {
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

fn count(driver: &RecordingDriver, is: fn(&Call) -> bool) -> usize {
    driver.calls().iter().filter(|call| is(call)).count()
}

fn captures(driver: &RecordingDriver) -> usize {
    count(driver, |call| matches!(call, Call::EndCapture { .. }))
}

fn destroyed(driver: &RecordingDriver) -> usize {
    count(driver, |call| matches!(call, Call::DestroyGraph(_)))
}

#[test]
fn a_model_that_comes_back_finds_its_pages_and_graphs() {
    for (it, captured_again) in [(Mapping::Granularity(256), 0), (Mapping::None, GRAPHS)] {
        let (engine, driver) = start(config(), mapping(it));
        let (file, other) = (model(2, 1), model(4, 2));
        let first = load(&engine, 1, &file);
        let copies = 12 - engine.free_pages();
        let answer = run(&*first, 3);
        drop(first);
        let before = driver.calls().len();
        let again = load(&engine, 1, &file);
        let mut calls = driver.calls().split_off(before);
        // The call that maps the pages finds them already mapped.
        calls.retain(|call| !matches!(call, Call::Map { moved: 0, .. }));
        assert_eq!(
            calls.len() as u64,
            copies,
            "nothing but one copy for each page: {calls:?}"
        );
        assert!(calls.iter().all(|call| matches!(call, Call::CopyIn { .. })));
        assert_eq!(run(&*again, 3), answer);
        drop(again);
        // Other models take its pages meanwhile.
        let mut others = Vec::new();
        while engine.free_pages() >= 4 {
            let artefact = others.len() as u8 + 2;
            others.push(load(&engine, artefact, &other));
        }
        assert!(
            engine.free_pages() < copies,
            "the other models are too small"
        );
        drop(others.remove(0));
        let captured = captures(&driver);
        let moved = load(&engine, 1, &file);
        assert_eq!(captures(&driver), captured + captured_again, "{it:?}");
        assert_eq!(run(&*moved, 3), answer);
        let answers = others.iter().map(|it| run(&**it, 3));
        let answers: Vec<Vec<Tensor>> = answers.collect();
        assert!(answers.iter().all(|it| *it == answers[0]), "{it:?}");
    }
}

/// Of the pages that a model had, the free ones are used again at the same place.
#[test]
fn only_pages_that_others_have_move() {
    let (engine, driver) = start(config(), Pretence::default());
    let file = model(6, 1);
    let first = load(&engine, 1, &file);
    let pages = 12 - engine.free_pages();
    assert!(pages > 3, "{pages}");
    let answer = run(&*first, 2);
    drop(first);
    // The others begin with the pages that were free all the time.
    let mut others = Vec::new();
    while engine.free_pages() >= pages {
        let artefact = others.len() as u8 + 2;
        others.push(load(&engine, artefact, &model(1, u64::from(artefact))));
    }
    // One more model than there is room for beside it.
    drop(others.remove(0));
    let again = load(&engine, 1, &file);
    let last = driver
        .calls()
        .into_iter()
        .rev()
        .find_map(|call| match call {
            Call::Map { moved, .. } => Some(moved as u64),
            _ => None,
        });
    assert_eq!(last, Some(1), "one page is another model's");
    assert_eq!(run(&*again, 2), answer);
}

#[test]
fn pages_are_as_large_as_the_device_maps_them() {
    let told = |it| {
        let (engine, _) = start(config(), mapping(it));
        let answer = run(&*load(&engine, 1, &model(2, 1)), 3);
        let Device::Dedicated { memory, .. } = engine.device() else {
            panic!("a device of its own");
        };
        (memory.page_bytes, memory.pages, answer)
    };
    let small = told(Mapping::Granularity(4 << 10));
    assert_eq!((small.0, small.1), (PAGE_BYTES, 12));
    let large = told(Mapping::Granularity(2 * PAGE_BYTES));
    assert_eq!((large.0, large.1), (2 * PAGE_BYTES, 12));
    assert_eq!(small.2, large.2);
}

/// There are more known models than addresses: the last models have no window.
#[test]
fn models_without_a_window_are_loaded_as_well() {
    let files: Vec<Bytes> = (0..110).map(|seed| model(1, seed)).collect();
    let (windowed, driver) = start(config(), Pretence::default());
    let (plain, _) = start(config(), mapping(Mapping::None));
    for round in 0..2 {
        for (artefact, file) in files.iter().enumerate() {
            let [first, second] =
                [&windowed, &plain].map(|it| run(&*load(it, artefact as u8, file), 2));
            assert_eq!(first, second, "round {round}, model {artefact}");
        }
    }
    let mapped = driver.calls().into_iter().filter_map(|call| match call {
        Call::Map { window, .. } => Some(window),
        _ => None,
    });
    let mut windows: Vec<_> = mapped.collect();
    windows.sort_unstable();
    windows.dedup();
    assert!(windows.len() <= 96, "{} of eight times 12", windows.len());
    assert_eq!(windowed.free_pages(), 12);
}

/// The memory that a device keeps for graphs of unloaded models is bounded by what is left of its memory.
#[test]
fn graphs_of_models_that_are_away_make_room_for_others() {
    let graph_bytes = 64 << 10;
    let taken = 12 * PAGE_BYTES + (1 << 20) + (64 << 10);
    let pretence = Pretence {
        memory_bytes: taken + 40 * graph_bytes,
        graph_bytes,
        ..Pretence::default()
    };
    let (engine, driver) = start(config(), pretence);
    let files: Vec<Bytes> = (0..12).map(|seed| model(1, seed)).collect();
    let held = load(&engine, 0, &files[0]);
    let answer = run(&*held, 2);
    for (artefact, file) in files.iter().enumerate().skip(1) {
        drop(load(&engine, artefact as u8, file));
        let alive = captures(&driver) - destroyed(&driver);
        assert!(alive <= 20 + GRAPHS, "{alive} graphs after {artefact}");
    }
    let captured = captures(&driver);
    assert_eq!(captured, 12 * GRAPHS);
    assert!(destroyed(&driver) > 0);
    drop(load(&engine, 11, &files[11]));
    assert_eq!(
        captures(&driver),
        captured,
        "the last that went has its own"
    );
    drop(load(&engine, 1, &files[1]));
    assert_eq!(captures(&driver), captured + GRAPHS, "the first has none");
    assert_eq!(
        run(&*held, 2),
        answer,
        "what is on the device keeps its own"
    );
    assert_eq!(captures(&driver), captured + GRAPHS);
}

/// A device that fails to map pages costs captures, not loads.
#[test]
fn a_model_whose_pages_cannot_be_mapped_lives_where_they_lie() {
    let (engine, driver) = start(config(), Pretence::default());
    let file = model(2, 1);
    let mut answers = Vec::new();
    // Each case: whether mapping fails, and how many graphs are captured: first for the pages themselves, later for the
    // window.
    for (refuse, captured) in [(false, 1), (true, 1), (true, 0), (false, 1), (false, 0)] {
        driver.refuse_mapping(refuse);
        let before = captures(&driver);
        let model = load(&engine, 1, &file);
        answers.push(run(&*model, 3));
        let step = answers.len();
        assert_eq!(captures(&driver), before + captured * GRAPHS, "step {step}");
    }
    assert!(answers.iter().all(|it| *it == answers[0]), "{answers:?}");
}
