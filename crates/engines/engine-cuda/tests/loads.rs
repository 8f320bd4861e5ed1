//! The loads of the GPU suite, into the same pages, into others and for the first time, observed through the driver's
//! calls.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use sextant_engine::{LoadRequest, conformance::random_inputs};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Call, Mapping, Pretence, RecordingDriver},
    suite::loads,
};
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision};

const TIMES: u32 = 4;
/// Graphs of 1, 2, 4 and 8 rows.
const GRAPHS: usize = 4;

fn config() -> Config {
    Config {
        page_bytes: 16 << 10,
        pages: Some(24),
        workspace_bytes: 1 << 20,
        io_bytes: 64 << 10,
        scratch_bytes: 0,
        largest_batch: 8,
        host_bytes: 1 << 20,
    }
}

fn start(config: Config) -> (CudaEngine, Arc<RecordingDriver>) {
    start_with(config, Pretence::default())
}

fn start_with(config: Config, pretence: Pretence) -> (CudaEngine, Arc<RecordingDriver>) {
    let driver = Arc::new(RecordingDriver::new(pretence));
    let engine = CudaEngine::new(driver.clone(), config).expect("the memory is there");
    (engine, driver)
}

fn named(file: &Bytes, name: u32) -> LoadRequest {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&name.to_le_bytes());
    LoadRequest {
        artefact: Digest::from_bytes(digest),
        model: file.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

/// The number of captured graphs, and of filled pages.
fn seen(driver: &RecordingDriver) -> (usize, usize) {
    let calls = driver.calls();
    let count = |is: fn(&Call) -> bool| calls.iter().filter(|call| is(call)).count();
    (
        count(|call| matches!(call, Call::EndCapture { .. })),
        count(|call| matches!(call, Call::CopyIn { .. })),
    )
}

#[test]
fn pages_are_the_same_or_others_as_was_asked_for() {
    let file = builder::mlp(&[32, 96, 64, 10], 1);
    let request = |name| named(&file, name);
    let times = TIMES as usize;
    let (engine, driver) = start(config());
    let pages = loads::pages(&engine, &request).expect("it loads");
    assert!(pages > 1, "{pages}");
    let copies = pages as usize;
    assert_eq!(seen(&driver), (GRAPHS, copies));
    let same = loads::same_pages(&engine, &request, TIMES).expect("it loads");
    assert_eq!(same.len(), times);
    let loaded = copies * (times + 2);
    assert_eq!(seen(&driver), (GRAPHS, loaded), "nothing but copies");
    let first = loads::first_time(&engine, &request, TIMES).expect("it loads");
    assert_eq!(first.len(), times);
    let (graphs, copied) = (GRAPHS * (times + 1), loaded + copies * times);
    assert_eq!(seen(&driver), (graphs, copied));
}

/// Captures of loads into other pages: none if pages are mapped into the model's window, otherwise all graphs again.
#[test]
fn a_model_moves_with_its_graphs_where_pages_can_be_mapped() {
    let file = builder::mlp(&[32, 96, 64, 10], 1);
    let request = |name| named(&file, name);
    let pages = loads::pages(&start(config()).0, &request).expect("it loads");
    let times = TIMES as usize;
    for mapping in [
        Mapping::Granularity(1 << 10),
        Mapping::None,
        Mapping::Refused,
    ] {
        let pretence = Pretence {
            mapping,
            ..Pretence::default()
        };
        let room = loads::room_to_move(config(), pages);
        let (engine, driver) = start_with(room, pretence);
        let is_mapped = matches!(mapping, Mapping::Granularity(_));
        assert_eq!(engine.has_windows(), is_mapped);
        let mut answers = Vec::new();
        let moves = loads::other_pages(&engine, &request, TIMES, &mut |model| {
            answers.push(model.run(&random_inputs(model.signature(), &[3], 5))?);
            Ok(())
        });
        let moves = moves.expect("it loads");
        assert_eq!((moves.loads.len(), moves.mapping.len()), (times, times));
        assert_eq!(answers.len(), times + 1);
        assert!(answers.iter().all(|it| *it == answers[0]), "{answers:?}");
        // Two blockers and the model are captured once; if pages cannot be mapped, the model is captured each time.
        let again = if is_mapped { 0 } else { times };
        assert_eq!(seen(&driver).0, GRAPHS * (3 + again), "{mapping:?}");
        assert_eq!(engine.free_pages(), 2 * pages, "nothing stays");
        let moved = driver.calls().into_iter().filter_map(|call| match call {
            Call::Map { moved, .. } => Some(moved as u64),
            _ => None,
        });
        // The blockers come back to their own pages.
        let turns = (0..=TIMES).flat_map(|_| [0, pages]);
        let expected = [pages, pages].into_iter().chain(turns);
        let expected: Vec<u64> = expected.filter(|_| is_mapped).collect();
        assert_eq!(moved.collect::<Vec<_>>(), expected, "{mapping:?}");
    }
}

/// The thread of the GPU suite that loads beside a running model.
#[test]
fn a_model_that_keeps_moving_ends_when_it_is_told() {
    let file = builder::mlp(&[32, 96, 64, 10], 1);
    let request = |name| named(&file, name);
    let pages = loads::pages(&start(config()).0, &request).expect("it loads");
    let (engine, driver) = start(loads::room_to_move(config(), pages));
    let (over, asked) = (AtomicBool::new(false), Cell::new(0));
    let until = |name| {
        asked.set(asked.get() + 1);
        over.store(asked.get() == 2 + 2 * TIMES, Ordering::Relaxed);
        request(name)
    };
    let loads = loads::keep_moving(&engine, &until, &over);
    // Two blockers are loaded once, then one of them and the model by turns.
    assert_eq!(loads, Ok(2 * TIMES));
    assert_eq!(seen(&driver).0, GRAPHS * 3);
    assert_eq!(engine.free_pages(), 2 * pages, "nothing stays");
}
