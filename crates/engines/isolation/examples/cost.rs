//! What a process between costs: the time of a run in this process and in one of its own, measured in
//! turns. Prints JSON.
//!
//! `cargo run --release -p sextant-isolation --example cost -- MODEL.onnx [ROWS]`

#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::{
    env,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_ort::OrtEngine;
use sextant_isolation::{IsolatedEngine, Program};
use sextant_types::{Digest, NamedTensor, Optimization, Precision};

/// Turns of each side.
const ROUNDS: usize = 40;

/// Runs of a turn.
const RUNS: usize = 250;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [host, library] if host == "host" => {
            sextant_isolation::serve(Arc::new(OrtEngine::new(library.as_ref())?))?;
            Ok(())
        }
        [model] => measure(model, 1),
        [model, rows] => measure(model, rows.parse()?),
        _ => Err("name a model, and perhaps a number of rows".into()),
    }
}

fn measure(model: &str, rows: usize) -> Result<(), Failure> {
    let library = OrtEngine::find_library(None).ok_or("run `cargo xtask provision`")?;
    let engine = Arc::new(OrtEngine::new(&library)?);
    let isolated = IsolatedEngine::new(
        Arc::<OrtEngine>::clone(&engine),
        Program {
            program: env::current_exe()?,
            arguments: vec!["host".into(), library.into()],
            memory_bytes: u64::MAX,
        },
    );
    let request = LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: Bytes::from(std::fs::read(model)?).into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    let begun = Instant::now();
    let own = engine.load(&request)?;
    let own_load = begun.elapsed();
    let begun = Instant::now();
    let other = isolated.load(&request)?;
    let other_load = begun.elapsed();
    let inputs = random_inputs(own.signature(), &[rows], 1);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        turn(&*own, &inputs, &mut here)?;
        turn(&*other, &inputs, &mut there)?;
    }
    let bytes: usize = inputs.iter().map(|input| input.tensor.byte_len()).sum();
    println!(
        "{{\"model\": \"{model}\", \"rows\": {rows}, \"input_bytes\": {bytes}, \"load_ms\": [{:.1}, {:.1}], \
         \"p50_us\": [{:.1}, {:.1}], \"p99_us\": [{:.1}, {:.1}], \"added_p50_us\": {:.1}}}",
        own_load.as_secs_f64() * 1e3,
        other_load.as_secs_f64() * 1e3,
        quantile(&mut here, 0.5),
        quantile(&mut there, 0.5),
        quantile(&mut here, 0.99),
        quantile(&mut there, 0.99),
        quantile(&mut there, 0.5) - quantile(&mut here, 0.5),
    );
    Ok(())
}

fn turn(
    model: &dyn LoadedModel,
    inputs: &[NamedTensor],
    times: &mut Vec<Duration>,
) -> Result<(), sextant_engine::Error> {
    for _ in 0..RUNS {
        let begun = Instant::now();
        model.run(inputs)?;
        times.push(begun.elapsed());
    }
    Ok(())
}

/// Microseconds.
fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let at = (share * (times.len() - 1) as f64).round() as usize;
    times.get(at).map_or(0.0, |it| it.as_secs_f64()) * 1e6
}
