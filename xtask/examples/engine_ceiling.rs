//! Throughput of the engine in this process, without Sextant around it, on as many cores.
//!
//! Usage: `engine_ceiling LIBRARY MODEL SECONDS CORES`. Prints one line of JSON for each batch size
//! and each way to use the cores, a session on each or one on all:
//! `{"batch":8,"sessions":2,"threads":1,"rows_per_s":104.2}`.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_engine_ort::OrtEngine;
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Tensor, TensorSpec};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, model, seconds, cores] = arguments.as_slice() else {
        anyhow::bail!("usage: engine_ceiling LIBRARY MODEL SECONDS CORES");
    };
    let engine = OrtEngine::new(Path::new(library))?;
    let file = std::fs::read(model).with_context(|| format!("cannot read `{model}`"))?;
    let load = |threads: u16| {
        engine.load(&LoadRequest {
            artefact: Digest::from_bytes([0; 32]),
            model: file.clone().into(),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads,
        })
    };
    let time = Duration::from_secs_f64(seconds.parse()?);
    let cores: u16 = cores.parse()?;
    let mut ways = vec![(cores, 1), (1, cores)];
    ways.dedup();
    for (sessions, threads) in ways {
        let models = (0..sessions).map(|_| load(threads));
        let models = models.collect::<Result<Vec<_>, _>>()?;
        for batch in [1, 2, 4, 8, 16, 32] {
            let rows_per_s = together(&models, batch, time)?;
            println!(
                "{{\"batch\":{batch},\"sessions\":{sessions},\"threads\":{threads},\"rows_per_s\":{rows_per_s}}}"
            );
        }
    }
    Ok(())
}

/// Rows per second of all sessions side by side.
fn together(models: &[Arc<dyn LoadedModel>], batch: usize, time: Duration) -> Result<f64> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = models
            .iter()
            .map(|model| scope.spawn(move || measure(&**model, batch, time)))
            .collect();
        let rates = runs.into_iter().map(|run| {
            run.join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a session panicked")))
        });
        rates.sum()
    })
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
