//! Running models.

use std::thread;

use sextant_types::{DataType, NamedTensor, Tensor};

use super::{Fixture, Fixtures, assert_close, load, loaded, random_inputs, request, run};
use crate::{Device, Engine, LoadedModel};

/// Batches of several sizes get the answers of the reference.
pub fn runs_equal_reference(engine: &dyn Engine, fixtures: &Fixtures) {
    for fixture in [&fixtures.dense, &fixtures.convolution] {
        let model = load(engine, fixture);
        for rows in [1, 2, 7, 33] {
            check(&*model, fixture, &[rows], rows as u64);
        }
    }
}

/// A row gets the same answer alone and in the middle of a batch.
pub fn rows_are_independent(engine: &dyn Engine, fixtures: &Fixtures) {
    for fixture in [&fixtures.dense, &fixtures.convolution] {
        let model = load(engine, fixture);
        let batch = random_inputs(&fixture.signature, &[5], 11);
        let together = run(&*model, &batch);
        for row in 0..5 {
            let alone: Vec<NamedTensor> = batch
                .iter()
                .map(|input| NamedTensor::new(input.name.clone(), cut(&input.tensor, row)))
                .collect();
            let wanted: Vec<Tensor> = together.iter().map(|output| cut(output, row)).collect();
            assert_close(&run(&*model, &alone), &wanted, &format!("row {row}"));
        }
    }
}

/// Several threads use one handle at once.
pub fn runs_are_concurrent(engine: &dyn Engine, fixtures: &Fixtures) {
    let fixture = &fixtures.dense;
    let model = load(engine, fixture);
    thread::scope(|scope| {
        for worker in 0..4 {
            let model = &*model;
            scope.spawn(move || {
                for round in 0..8 {
                    check(model, fixture, &[1 + worker], (worker * 100 + round) as u64);
                }
            });
        }
    });
}

/// Neither optimisation nor threads change the answers.
pub fn optimizations_and_threads_agree(engine: &dyn Engine, fixtures: &Fixtures) {
    let capabilities = engine.capabilities();
    let threads: &[u16] = if capabilities.threads { &[1, 2] } else { &[1] };
    for fixture in [&fixtures.dense, &fixtures.convolution] {
        for optimization in &capabilities.optimizations {
            for threads in threads {
                let mut request = request(engine, fixture);
                request.optimization = *optimization;
                request.threads = *threads;
                let model = loaded(engine.load(&request));
                check(&*model, fixture, &[9], 5);
            }
        }
    }
}

/// Dimensions other than the batch may change from run to run.
pub fn shapes_are_dynamic(engine: &dyn Engine, fixtures: &Fixtures) {
    let model = load(engine, &fixtures.dynamic);
    for (seed, sizes) in [[1, 1], [3, 7], [5, 2], [1, 300], [3, 7]]
        .iter()
        .enumerate()
    {
        check(&*model, &fixtures.dynamic, sizes, seed as u64);
    }
}

/// Every type that the engine claims passes as input and output.
pub fn data_types_pass(engine: &dyn Engine, fixtures: &Fixtures) {
    let covered: Vec<DataType> = fixtures.identities.iter().map(|(it, _)| *it).collect();
    for data_type in engine.capabilities().data_types {
        assert!(covered.contains(&data_type), "no fixture for {data_type}");
    }
    for (data_type, fixture) in &fixtures.identities {
        let model = load(engine, fixture);
        let inputs = random_inputs(&fixture.signature, &[3], 2);
        let context = format!("type {data_type}");
        assert_close(
            &run(&*model, &inputs),
            &(fixture.reference)(&inputs),
            &context,
        );
        let shifted: Vec<NamedTensor> = inputs.iter().map(misaligned).collect();
        assert_close(
            &run(&*model, &shifted),
            &(fixture.reference)(&inputs),
            &context,
        );
    }
}

/// A loaded model has the signature that the file declares.
pub fn signatures_follow_the_file(engine: &dyn Engine, fixtures: &Fixtures) {
    for fixture in [&fixtures.dense, &fixtures.convolution, &fixtures.dynamic] {
        assert_eq!(*load(engine, fixture).signature(), fixture.signature);
    }
}

/// A device does not change, and one with memory of its own has pages.
pub fn devices_have_pages(engine: &dyn Engine, _fixtures: &Fixtures) {
    assert_eq!(engine.device(), engine.device());
    if let Device::Dedicated { name, memory } = engine.device() {
        assert!(!name.is_empty(), "the device has no name");
        assert!(memory.page_bytes > 0, "`{name}`: pages of no bytes");
        assert!(memory.pages > 0, "`{name}`: no pages");
    }
}

fn check(model: &dyn LoadedModel, fixture: &Fixture, dynamic: &[usize], seed: u64) {
    let inputs = random_inputs(&fixture.signature, dynamic, seed);
    let context = format!("sizes {dynamic:?}, seed {seed}");
    assert_close(
        &run(model, &inputs),
        &(fixture.reference)(&inputs),
        &context,
    );
}

fn cut(tensor: &Tensor, row: usize) -> Tensor {
    tensor.slice_rows(row, 1).expect("the row exists")
}

/// The same tensor at an odd address, as if cut out of a request's body.
fn misaligned(input: &NamedTensor) -> NamedTensor {
    let sextant_types::Data::Plain(bytes) = input.tensor.data() else {
        return input.clone();
    };
    let mut moved = vec![0; bytes.len() + 16];
    let start = 1 + moved.as_ptr().align_offset(16) % 8;
    moved[start..start + bytes.len()].copy_from_slice(bytes);
    let bytes = bytes::Bytes::from(moved).slice(start..start + bytes.len());
    let (data_type, shape) = (input.tensor.data_type(), input.tensor.shape().to_vec());
    let tensor = Tensor::from_bytes(data_type, shape, bytes).expect("the same length");
    NamedTensor::new(input.name.clone(), tensor)
}
