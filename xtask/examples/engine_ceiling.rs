//! Throughput of the engine in this process, without Sextant around it, on one thread.
//!
//! Usage: `engine_ceiling LIBRARY MODEL SECONDS`. Prints one line of JSON for each batch size:
//! `{"batch":8,"rows_per_s":104.2}`.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_engine_ort::OrtEngine;
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Tensor, TensorSpec};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, model, seconds] = arguments.as_slice() else {
        anyhow::bail!("usage: engine_ceiling LIBRARY MODEL SECONDS");
    };
    let engine = OrtEngine::new(Path::new(library))?;
    let model = engine.load(&LoadRequest {
        artefact: Digest::from_bytes([0; 32]),
        model: std::fs::read(model)
            .with_context(|| format!("cannot read `{model}`"))?
            .into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    })?;
    let time = Duration::from_secs_f64(seconds.parse()?);
    for batch in [1, 2, 4, 8, 16, 32] {
        let rows_per_s = measure(&*model, batch, time)?;
        println!("{{\"batch\":{batch},\"rows_per_s\":{rows_per_s}}}");
    }
    Ok(())
}

fn measure(model: &dyn LoadedModel, batch: usize, time: Duration) -> Result<f64> {
    let inputs = inputs(model, batch)?;
    model.run(&inputs)?;
    let (started, mut runs) = (Instant::now(), 0_usize);
    while started.elapsed() < time {
        model.run(&inputs)?;
        runs += 1;
    }
    Ok((runs * batch) as f64 / started.elapsed().as_secs_f64())
}

/// Inputs of ones in fp32, with `batch` for the first dimension.
fn inputs(model: &dyn LoadedModel, batch: usize) -> Result<Vec<NamedTensor>> {
    let inputs = &model.signature().inputs;
    let ones = |input: &TensorSpec| {
        let mut shape: Vec<usize> = input
            .shape
            .iter()
            .map(|size| size.map_or(1, |size| size as usize))
            .collect();
        shape[0] = batch;
        let count = shape.iter().product();
        let tensor = Tensor::from_elements(shape, &vec![1_f32; count])?;
        Ok(NamedTensor {
            name: input.name.clone(),
            tensor,
        })
    };
    inputs.iter().map(ones).collect()
}
