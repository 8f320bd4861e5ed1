//! Batches whose inputs are copied to the device first. Engines that read the host's memory have none, and pass.

use std::thread;

use sextant_types::{DataType, NamedTensor, Tensor};

use super::{Fixture, Fixtures, assert_close, load, random_inputs, refusal, run};
use crate::{Engine, Error, LoadedModel, StagedBatch};

/// INPUT, EXEC and OUTPUT one by one give the answer of a run.
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

/// Queries whose inputs are joined on the way to the device get the answers of their batch.
pub fn joined_parts_equal_reference(engine: &dyn Engine, fixtures: &Fixtures) {
    for fixture in [&fixtures.dense, &fixtures.convolution] {
        let model = load(engine, fixture);
        for rows in [vec![1, 1], vec![2, 1, 3], vec![1; 9]] {
            let total: usize = rows.iter().sum();
            let whole = random_inputs(&fixture.signature, &[total], total as u64);
            let mut start = 0;
            let parts: Vec<Vec<NamedTensor>> = rows
                .iter()
                .map(|count| {
                    start += count;
                    cut(&whole, start - count, *count)
                })
                .collect();
            let parts: Vec<&[NamedTensor]> = parts.iter().map(Vec::as_slice).collect();
            match model.stage_joined(&parts) {
                Ok(Some(staged)) => check(staged, fixture, total),
                Ok(None) => {}
                Err(error) => panic!("good parts of {rows:?} rows cannot be staged: {error}"),
            }
        }
        // A query that differs in more than its rows is not joined with others.
        let good = random_inputs(&fixture.signature, &[2], 3);
        let mut other = good.clone();
        let shape = [1, 1, 1, 1, 1];
        let value = Tensor::from_bytes(DataType::Fp32, shape.to_vec(), vec![0; 4].into());
        other[0].tensor = value.unwrap_or_else(|error| panic!("a tensor: {error}"));
        match model.stage_joined(&[&good, &other]) {
            Ok(None) | Err(Error::InvalidInput(_)) => {}
            Err(other) => panic!("refused as `{other}`"),
            Ok(Some(_)) => panic!("parts of different shapes are accepted"),
        }
    }
}

fn cut(inputs: &[NamedTensor], start: usize, count: usize) -> Vec<NamedTensor> {
    let cut = |input: &NamedTensor| match input.tensor.slice_rows(start, count) {
        Ok(rows) => NamedTensor::new(input.name.clone(), rows),
        Err(error) => panic!("rows cannot be cut: {error}"),
    };
    inputs.iter().map(cut).collect()
}

/// Batches may wait on the device beside each other, run in any order, and be staged and collected while another one
/// runs.
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

fn stage(model: &dyn LoadedModel, fixture: &Fixture, rows: usize) -> Option<Box<dyn StagedBatch>> {
    match model.stage(&random_inputs(&fixture.signature, &[rows], rows as u64)) {
        Ok(staged) => staged,
        Err(error) => panic!("a good batch of {rows} rows cannot be staged: {error}"),
    }
}

fn check(mut staged: Box<dyn StagedBatch>, fixture: &Fixture, rows: usize) {
    exec(&mut *staged);
    collect_and_check(staged, fixture, rows);
}

fn exec(staged: &mut dyn StagedBatch) {
    if let Err(error) = staged.exec() {
        panic!("a staged batch fails: {error}");
    }
}

fn collect_and_check(staged: Box<dyn StagedBatch>, fixture: &Fixture, rows: usize) {
    let outputs: Vec<Tensor> = match staged.collect() {
        Ok(outputs) => outputs,
        Err(error) => panic!("the outputs of a batch cannot be taken: {error}"),
    };
    let inputs = random_inputs(&fixture.signature, &[rows], rows as u64);
    let context = format!("staged, {rows} rows");
    assert_close(&outputs, &(fixture.reference)(&inputs), &context);
}
