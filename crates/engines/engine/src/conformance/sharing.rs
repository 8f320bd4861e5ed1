//! Weights exist once, and are gone after the last handle.

use std::{sync::Arc, thread};

use super::{Fixture, Fixtures, load, loaded, random_inputs, request, run};
use crate::{Engine, LoadedModel};

/// Cycles of loading, running and dropping before and while memory is watched.
const CYCLES: [usize; 2] = [5, 30];

/// Handles of one artefact hold its weights once, whatever their optimisation and threads, as far
/// as optimisation leaves the fixture's weights unchanged.
pub fn loads_share_weights(engine: &dyn Engine, fixtures: &Fixtures) {
    let first = load(engine, &fixtures.dense);
    let one = engine.resident_weights_bytes();
    let bytes = first.weights_bytes();
    assert!(bytes >= 1 << 20, "the fixture is too small: {bytes} bytes");
    assert!(
        one >= bytes / 10 * 9,
        "{one} bytes are held, {bytes} loaded"
    );
    let others = every_way(engine, &fixtures.dense);
    let all = engine.resident_weights_bytes();
    let handles = others.len();
    assert!(
        all < one + bytes / 4,
        "{handles} more handles: {one} -> {all} bytes"
    );
    for other in &others {
        assert_eq!(other.weights_bytes(), bytes);
    }
}

/// Loads of one artefact from several threads share it, too.
pub fn loads_are_concurrent(engine: &dyn Engine, fixtures: &Fixtures) {
    let fixture = &fixtures.dense;
    let models: Vec<Arc<dyn LoadedModel>> = thread::scope(|scope| {
        let load = || scope.spawn(|| load(engine, fixture));
        let started: Vec<_> = (0..4).map(|_| load()).collect();
        started
            .into_iter()
            .map(|thread| thread.join().expect("no load panics"))
            .collect()
    });
    let (held, bytes) = (engine.resident_weights_bytes(), models[0].weights_bytes());
    assert!(held < bytes + bytes / 4, "{held} bytes are held of {bytes}");
    let inputs = random_inputs(&fixture.signature, &[2], 4);
    for model in &models {
        run(&**model, &inputs);
    }
}

/// After the last handle nothing is held, and the artefact can be loaded again.
pub fn dropped_models_are_unloaded(engine: &dyn Engine, fixtures: &Fixtures) {
    for _ in 0..2 {
        let first = load(engine, &fixtures.dense);
        let others = every_way(engine, &fixtures.dense);
        drop(first);
        let inputs = random_inputs(&fixtures.dense.signature, &[2], 4);
        others.iter().for_each(|other| drop(run(&**other, &inputs)));
        assert!(engine.resident_weights_bytes() > 0);
        drop(others);
        assert_eq!(engine.resident_weights_bytes(), 0);
    }
}

/// Loading and dropping again and again needs no more memory each time.
pub fn dropped_models_give_memory_back(engine: &dyn Engine, fixtures: &Fixtures) {
    let inputs = random_inputs(&fixtures.dense.signature, &[16], 4);
    let cycle = || {
        let model = load(engine, &fixtures.dense);
        run(&*model, &inputs);
        model.weights_bytes()
    };
    let mut bytes = 0;
    (0..CYCLES[0]).for_each(|_| bytes = cycle());
    let before = resident_memory();
    (0..CYCLES[1]).for_each(|_| bytes = cycle());
    let after = resident_memory();
    // A leak of a third of the weights in each cycle would show as ten copies.
    let limit = before + 8 * bytes;
    assert!(after < limit, "resident memory: {before} -> {after} bytes");
}

fn every_way(engine: &dyn Engine, fixture: &Fixture) -> Vec<Arc<dyn LoadedModel>> {
    let capabilities = engine.capabilities();
    let threads: &[u16] = if capabilities.threads { &[1, 2] } else { &[1] };
    let mut models = Vec::new();
    for optimization in capabilities.optimizations {
        for threads in threads {
            let mut request = request(engine, fixture);
            request.optimization = optimization;
            request.threads = *threads;
            models.push(loaded(engine.load(&request)));
        }
    }
    models
}

/// The process's resident memory in bytes; 0 if the system does not report it.
fn resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) * 1024
}
