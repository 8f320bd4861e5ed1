//! What the GPU suite calls a load into the same pages, into others, and for the first time, seen through the driver's
//! calls.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{LoadRequest, conformance::random_inputs};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Call, Pretence, RecordingDriver},
    suite::loads,
};
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision};

const TIMES: u32 = 4;
/// Of 1, 2, 4 and 8 rows.
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
    let driver = Arc::new(RecordingDriver::new(Pretence::default()));
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

/// Graphs that were captured, and pages that were filled.
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

    let (engine, driver) = start(loads::room_to_move(config(), pages));
    let mut answers = Vec::new();
    let other = loads::other_pages(&engine, &request, TIMES, &mut |model| {
        answers.push(model.run(&random_inputs(model.signature(), &[3], 5))?);
        Ok(())
    });
    assert_eq!(other.expect("it loads").len(), times);
    assert_eq!(answers.len(), times + 1);
    assert!(answers.iter().all(|it| *it == answers[0]), "{answers:?}");
    // Two blockers once; the model each time, and once before it is measured.
    assert_eq!(seen(&driver).0, GRAPHS * (times + 3));
    assert_eq!(engine.free_pages(), 2 * pages, "nothing stays");
}
