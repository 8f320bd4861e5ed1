//! The emulated engine passes the conformance suite, and takes the time it should.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sextant_engine::{
    Engine, Error, LoadRequest,
    conformance::{Fixture, Fixtures, random_inputs},
    emulated::{EmulatedEngine, EmulatedModel, emulate},
};
use sextant_types::{DataType, Optimization, Precision};

#[path = "support/fixtures.rs"]
mod fixtures;

fn describe(request: &LoadRequest) -> Result<EmulatedModel, Error> {
    let info = sextant_onnx::inspect(&request.model)
        .map_err(|error| Error::InvalidModel(error.to_string()))?;
    if let Some(operator) = info.op_types.iter().find(|it| it.starts_with("Sextant")) {
        return Err(Error::Unsupported(format!("operator `{operator}`")));
    }
    Ok(EmulatedModel {
        signature: info.signature,
        alpha_ms: 0.5,
        beta_ms: 2.0,
        load_ms: 40.0,
        weights_bytes: info.weights_bytes,
    })
}

fn engine() -> Arc<dyn Engine> {
    Arc::new(EmulatedEngine::new(describe).with_sleep(|_| {}))
}

/// The emulated engine's answers are its own.
fn own(mut fixture: Fixture) -> Fixture {
    let signature = fixture.signature.clone();
    fixture.reference = Arc::new(move |inputs| emulate(&signature, inputs).expect("small outputs"));
    fixture
}

fn emulated() -> Fixtures {
    let all = fixtures::fixtures(&DataType::ALL, Arc::new(|_| Vec::new()));
    Fixtures {
        dense: own(all.dense),
        convolution: own(all.convolution),
        dynamic: own(all.dynamic),
        identities: all
            .identities
            .into_iter()
            .map(|(data_type, fixture)| (data_type, own(fixture)))
            .collect(),
        unknown_operator: all.unknown_operator,
    }
}

sextant_engine::bind_conformance!(engine(), emulated());

#[test]
fn time_follows_the_linear_model() {
    let slept = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&slept);
    let engine = EmulatedEngine::new(describe)
        .with_sleep(move |time: Duration| log.lock().unwrap().push(time.as_micros()));
    let fixture = emulated().dense;
    let model = engine
        .load(&LoadRequest {
            artefact: fixture.artefact,
            model: fixture.model.clone(),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
        })
        .unwrap();
    for rows in [1, 8] {
        model
            .run(&random_inputs(&fixture.signature, &[rows], 1))
            .unwrap();
    }
    assert_eq!(*slept.lock().unwrap(), [40_000, 2_500, 6_000]);
}

#[test]
fn answers_depend_on_the_inputs() {
    let fixture = emulated().dense;
    let answer = |seed| (fixture.reference)(&random_inputs(&fixture.signature, &[2], seed));
    assert_eq!(answer(1), answer(1));
    assert_ne!(answer(1), answer(2));
}
