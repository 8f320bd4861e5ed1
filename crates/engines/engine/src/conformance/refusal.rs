//! Wrong inputs and files are refused, and harm nothing.

use bytes::Bytes;
use sextant_types::{DataType, Digest, NamedTensor, Tensor};

use super::{Fixtures, assert_close, load, random_inputs, request, run};
use crate::{Engine, Error, Interrupt, LoadRequest};

/// Inputs that do not fit the signature are [`Error::InvalidInput`].
pub fn wrong_inputs_are_refused(engine: &dyn Engine, fixtures: &Fixtures) {
    let model = load(engine, &fixtures.dense);
    for (what, inputs) in wrong(fixtures) {
        match model.run(&inputs) {
            Err(Error::InvalidInput(_)) => {}
            Err(other) => panic!("{what}: refused as `{other}`"),
            Ok(_) => panic!("{what}: accepted"),
        }
    }
}

/// After runs that fail, a good one answers as before.
pub fn failed_runs_leave_the_model_usable(engine: &dyn Engine, fixtures: &Fixtures) {
    let model = load(engine, &fixtures.dense);
    let good = random_inputs(&fixtures.dense.signature, &[3], 3);
    let before = run(&*model, &good);
    for (what, inputs) in wrong(fixtures) {
        assert!(model.run(&inputs).is_err(), "{what}: accepted");
        assert_close(&run(&*model, &good), &before, what);
    }
}

/// A run that is asked to end, before or while it runs, fails with [`Error::Interrupted`] or answers as any other, and
/// the next run answers as before. A run that has ended is not interrupted.
pub fn interrupted_runs_leave_the_model_usable(engine: &dyn Engine, fixtures: &Fixtures) {
    let model = load(engine, &fixtures.dense);
    let good = random_inputs(&fixtures.dense.signature, &[3], 3);
    let before = run(&*model, &good);
    for round in 0..20 {
        let interrupt = Interrupt::default();
        let ran = std::thread::scope(|scope| {
            if round == 0 {
                interrupt.raise();
            } else {
                scope.spawn(|| interrupt.raise());
            }
            model.run_interruptible(&good, &interrupt)
        });
        match ran {
            Ok(outputs) => assert_close(&outputs, &before, "a run that was not ended"),
            Err(Error::Interrupted) => {}
            Err(other) => panic!("ended as `{other}`"),
        }
        assert!(!interrupt.raise(), "what has ended can be ended");
        assert_close(&run(&*model, &good), &before, "after a run that was ended");
    }
}

/// Files that are cut short, empty or of another kind are [`Error::InvalidModel`].
pub fn broken_files_are_refused(engine: &dyn Engine, fixtures: &Fixtures) {
    let whole = &fixtures.dense.model;
    let cuts = [1, 10, whole.len() / 2, whole.len() - 1].map(|end| whole.slice(..end));
    let others = [
        Bytes::new(),
        Bytes::from_static(b"GIF89a, not a model"),
        noise(),
    ];
    for (index, model) in cuts.into_iter().chain(others).enumerate() {
        let request = LoadRequest {
            artefact: Digest::from_bytes([200 + index as u8; 32]),
            model: model.into(),
            ..request(engine, &fixtures.dense)
        };
        match engine.load(&request) {
            Err(Error::InvalidModel(_)) => {}
            Err(other) => panic!("broken file {index}: refused as `{other}`"),
            Ok(_) => panic!("broken file {index}: accepted"),
        }
    }
}

/// An operator that the engine does not have is [`Error::Unsupported`], and the text names it.
pub fn unknown_operators_are_named(engine: &dyn Engine, fixtures: &Fixtures) {
    let (model, operator) = &fixtures.unknown_operator;
    let request = LoadRequest {
        artefact: Digest::from_bytes([199; 32]),
        model: model.clone().into(),
        ..request(engine, &fixtures.dense)
    };
    match engine.load(&request) {
        Err(Error::Unsupported(text)) => {
            assert!(
                text.contains(operator),
                "`{text}` does not name `{operator}`"
            );
        }
        Err(other) => panic!("refused as `{other}`"),
        Ok(_) => panic!("accepted"),
    }
}

/// An engine says which files are for it; a manifest for no engine is for none, and is [`Error::InvalidModel`].
pub fn files_of_others_are_refused(engine: &dyn Engine, fixtures: &Fixtures) {
    for fixture in [&fixtures.dense, &fixtures.convolution, &fixtures.dynamic] {
        assert!(engine.reads(&fixture.model), "its own files are not for it");
    }
    let nobody = br#"{"format":"sextant-remote/1","runtime":"nobody","model":"nothing"}"#;
    let model = Bytes::from_static(nobody);
    assert!(!engine.reads(&model), "a manifest for nobody is for it");
    let request = LoadRequest {
        artefact: Digest::from_bytes([198; 32]),
        model: model.into(),
        ..request(engine, &fixtures.dense)
    };
    match engine.load(&request) {
        Err(Error::InvalidModel(_)) => {}
        Err(other) => panic!("refused as `{other}`"),
        Ok(_) => panic!("accepted"),
    }
}

pub(super) fn wrong(fixtures: &Fixtures) -> Vec<(&'static str, Vec<NamedTensor>)> {
    let good = random_inputs(&fixtures.dense.signature, &[2], 1);
    let input = &good[0];
    let with = |tensor: Tensor| vec![NamedTensor::new(input.name.clone(), tensor)];
    let wide = input.tensor.shape()[1] + 1;
    let zeros = |shape: &[usize]| {
        let count = shape.iter().product();
        Tensor::from_elements(shape.to_vec(), &vec![0f32; count]).expect("as many zeros")
    };
    let whole = Tensor::from_elements(vec![1, wide - 1], &vec![0i64; wide - 1]);
    vec![
        ("no inputs", Vec::new()),
        ("an input too many", [good.clone(), good.clone()].concat()),
        ("a wrong width", with(zeros(&[2, wide]))),
        ("a wrong rank", with(zeros(&[wide - 1]))),
        ("a rank too high", with(zeros(&[1, 1, wide - 1]))),
        ("a scalar", with(zeros(&[]))),
        ("a wrong type", with(whole.expect("as many zeros"))),
        ("strings", with(strings(wide - 1))),
        (
            "a wrong name",
            vec![NamedTensor::new("nobody", input.tensor.clone())],
        ),
    ]
}

fn strings(width: usize) -> Tensor {
    let tensor = Tensor::from_strings(vec![1, width], vec![b"1"; width]);
    let tensor = tensor.expect("as many strings");
    assert_eq!(tensor.data_type(), DataType::Bytes);
    tensor
}

/// Bytes without meaning, always the same.
fn noise() -> Bytes {
    let byte = |at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..4096).map(byte).collect()
}
