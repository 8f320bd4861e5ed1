//! Batches whose inputs are brought to the device first. Engines that read the host's memory have
//! none, and pass.

use std::thread;

use sextant_types::Tensor;

use super::{Fixture, Fixtures, assert_close, load, random_inputs, refusal, run};
use crate::{Engine, Error, LoadedModel, Staged};

/// INPUT, EXEC and OUTPUT one by one answer what a run answers.
pub fn staged_batches_equal_reference(engine: &dyn Engine, fixtures: &Fixtures) {
    for fixture in [&fixtures.dense, &fixtures.convolution, &fixtures.dynamic] {
        let model = load(engine, fixture);
        for rows in [1, 6] {
            let Some(staged) = stage(&*model, fixture, rows) else {
                continue;
            };
            check(staged, fixture, rows);
        }
    }
}

/// Batches may wait on the device beside each other, be run in any order, and be staged and
/// collected while another one runs.
pub fn stages_overlap(engine: &dyn Engine, fixtures: &Fixtures) {
    let fixture = &fixtures.dense;
    let model = load(engine, fixture);
    let (Some(first), Some(mut second)) = (stage(&*model, fixture, 2), stage(&*model, fixture, 3))
    else {
        return;
    };
    exec(&mut *second);
    thread::scope(|scope| {
        scope.spawn(|| collect_and_check(second, fixture, 3));
        scope.spawn(|| drop(stage(&*model, fixture, 4)));
        check(first, fixture, 2);
    });
}

/// A batch that is dropped after any stage leaves the model usable and holds nothing.
pub fn staged_batches_may_be_dropped(engine: &dyn Engine, fixtures: &Fixtures) {
    let fixture = &fixtures.dense;
    let model = load(engine, fixture);
    let inputs = random_inputs(&fixture.signature, &[2], 6);
    let before = run(&*model, &inputs);
    for _ in 0..16 {
        drop(stage(&*model, fixture, 5));
        if let Some(mut staged) = stage(&*model, fixture, 5) {
            exec(&mut *staged);
        }
    }
    assert_close(&run(&*model, &inputs), &before, "after dropped batches");
    drop(model);
    assert_eq!(engine.resident_weights_bytes(), 0, "a dropped batch holds");
}

/// Staging refuses the inputs that a run refuses.
pub fn staging_refuses_wrong_inputs(engine: &dyn Engine, fixtures: &Fixtures) {
    let model = load(engine, &fixtures.dense);
    for (what, inputs) in refusal::wrong(fixtures) {
        match model.stage(&inputs) {
            Ok(None) | Err(Error::InvalidInput(_)) => {}
            Err(other) => panic!("{what}: refused as `{other}`"),
            Ok(Some(_)) => panic!("{what}: accepted"),
        }
    }
}

fn stage(model: &dyn LoadedModel, fixture: &Fixture, rows: usize) -> Option<Box<dyn Staged>> {
    match model.stage(&random_inputs(&fixture.signature, &[rows], rows as u64)) {
        Ok(staged) => staged,
        Err(error) => panic!("a good batch of {rows} rows cannot be staged: {error}"),
    }
}

fn check(mut staged: Box<dyn Staged>, fixture: &Fixture, rows: usize) {
    exec(&mut *staged);
    collect_and_check(staged, fixture, rows);
}

fn exec(staged: &mut dyn Staged) {
    if let Err(error) = staged.exec() {
        panic!("a staged batch fails: {error}");
    }
}

fn collect_and_check(staged: Box<dyn Staged>, fixture: &Fixture, rows: usize) {
    let outputs: Vec<Tensor> = match staged.collect() {
        Ok(outputs) => outputs,
        Err(error) => panic!("the outputs of a batch cannot be taken: {error}"),
    };
    let inputs = random_inputs(&fixture.signature, &[rows], rows as u64);
    let context = format!("staged, {rows} rows");
    assert_close(&outputs, &(fixture.reference)(&inputs), &context);
}
