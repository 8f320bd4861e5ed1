//! How well run times at sizes that were never measured are predicted: a model is profiled as a
//! registration does it, then batches of random rows and lengths are run and compared.
//!
//! Usage: `shapes MODEL VALIDATION [--json] [--points N] [--seed N]`. The model's dynamic dimensions
//! beside the batch all have one length, as those of a text encoder have. `--json` prints one object
//! per line: `{"experiment":"shapes","metric":"shape_prediction_error_p90_percent","value":9.1,..}`.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Parser;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_engine_ort::OrtEngine;
use sextant_profile::Surface;
use sextant_schedule::{LatencyTable, Nanos};
use sextant_types::{
    Digest, Fill, Metric, NamedTensor, Optimization, Precision, Profile, Signature,
};
use sextant_variant_gen::{
    measure::{Cancel, Effort, Subject, measure},
    validation::{Limits, ScoringTarget, SetRequirements, ValidationSet, read},
};

/// That of the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Predicted against measured run times at random sizes")]
struct Arguments {
    /// The ONNX file.
    model: PathBuf,
    /// Its validation set.
    validation: PathBuf,
    /// One object per line in place of text.
    #[arg(long)]
    json: bool,
    /// Batches that are compared.
    #[arg(long, value_name = "N", default_value_t = 60)]
    points: usize,
    /// Seed of the lengths and rows.
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
}

/// Lengths and rows that are compared.
const LENGTHS: std::ops::RangeInclusive<u64> = 8..=512;
const ROWS: std::ops::RangeInclusive<u16> = 1..=16;

/// Runs of a batch; the median counts.
const RUNS: usize = 3;

/// The error that the ninetieth percentile should keep within, percent.
const GOAL: f64 = 15.0;

/// A model as it is profiled and compared.
struct Bench<'a> {
    engine: &'a OrtEngine,
    signature: &'a Signature,
    validation: &'a ValidationSet,
    arguments: &'a Arguments,
}

/// Distances of predictions, percent.
#[derive(Default)]
struct Errors {
    /// Of the median at the query's own size.
    own: Vec<f64>,
    /// Of what the scheduler expects of the bucket of the size.
    bucket: Vec<f64>,
    /// Of the same batch measured again.
    again: Vec<f64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let library = OrtEngine::find_library(None)
        .context("the ONNX Runtime library is missing: run `cargo xtask provision`")?;
    let engine = OrtEngine::new(&library)?;
    let file =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("`{}`", path.display()));
    let model = Bytes::from(file(&arguments.model)?);
    let signature = sextant_onnx::inspect(&model)?.signature;
    let scored = ScoringTarget::by(Metric::Top1, &signature);
    let expected = SetRequirements {
        signature: &signature,
        metric: Metric::Top1,
        scored: &scored,
        limits: Limits::default(),
    };
    let validation = read(&Bytes::from(file(&arguments.validation)?), expected)?;
    let bench = Bench {
        engine: &engine,
        signature: &signature,
        validation: &validation,
        arguments: &arguments,
    };
    for threads in [1, 2] {
        let request = LoadRequest {
            artefact: Digest::from_bytes([0; 32]),
            model: model.clone().into(),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads,
        };
        bench.compare(&request)?;
    }
    Ok(())
}

// === impl Bench ===

impl Bench<'_> {
    fn compare(&self, request: &LoadRequest) -> Result<()> {
        let subject = Subject {
            engine: self.engine,
            request: request.clone(),
            signature: self.signature,
            validation: self.validation,
            metric: Metric::Top1,
            padding: None,
            rivals: &[],
            judge: None,
            accuracy: None,
            uploaded: None,
            is_half: false,
            in_own_process: true,
        };
        let begun = Instant::now();
        let measured = measure(&subject, &Effort::default(), &Cancel::default())?;
        let took = begun.elapsed();
        let profile = measured.profile(u16::MAX);
        ensure!(
            !profile.sizes.dims.is_empty(),
            "the model's inputs have one size only"
        );
        for shape in &profile.sizes.shapes {
            let points = shape.batches.iter();
            let points = points.map(|of| format!("{} rows {:.2} ms", of.batch, of.p50_ms));
            let points: Vec<String> = points.collect();
            eprintln!("{:?}: {}", shape.dims, points.join(", "));
        }
        let rows = u32::from(*ROWS.end());
        let median = self.surface(&profile, rows, |tail| tail.0)?;
        let tail = self.surface(&profile, rows, |tail| tail.1)?;
        let errors = self.errors(request, &median, &tail)?;
        let cell = format!("t{}", request.threads);
        let line = |metric: &str, value: f64, unit: &str| self.line(&cell, (metric, unit), value);
        let p90 = |values: &[f64]| quantile(values, 0.9);
        line(
            "shape_prediction_error_p90_percent",
            p90(&errors.own),
            "percent",
        );
        line(
            "shape_prediction_error_mean_percent",
            mean(&errors.own),
            "percent",
        );
        line(
            "shape_bucket_error_p90_percent",
            p90(&errors.bucket),
            "percent",
        );
        line(
            "shape_noise_floor_p90_percent",
            p90(&errors.again),
            "percent",
        );
        line(
            "shape_sizes",
            profile.sizes.shapes.len() as f64 + 1.0,
            "sizes",
        );
        line("shape_profile_s", took.as_secs_f64(), "s");
        let verdict = match () {
            () if p90(&errors.own) <= GOAL => "met",
            () if p90(&errors.again) > GOAL => "inconclusive: the machine is too noisy",
            () => "missed",
        };
        eprintln!("prediction within {GOAL} %, {cell}: {verdict}");
        Ok(())
    }

    fn surface(
        &self,
        profile: &Profile,
        rows: u32,
        which: impl Fn((f64, f64)) -> f64,
    ) -> Result<Surface> {
        let table = |of: &dyn Fn(u32) -> (f64, f64)| {
            LatencyTable::rising(rows, |rows| (which(of(rows)) * 1e6) as Nanos)
        };
        let base = |rows| (profile.latency_ms(rows), profile.tail_latency_ms(rows));
        let mut tables = vec![(
            self.signature.row_elements(&profile.sizes.dims),
            table(&base),
        )];
        for shape in &profile.sizes.shapes {
            let of = |rows| (shape.latency_ms(rows), shape.tail_latency_ms(rows));
            tables.push((self.signature.row_elements(&shape.dims), table(&of)));
        }
        Surface::new(tables, rows).context("nothing was measured")
    }

    fn errors(&self, request: &LoadRequest, median: &Surface, tail: &Surface) -> Result<Errors> {
        let model = self.engine.load(request)?;
        let mut random = ChaCha8Rng::seed_from_u64(self.arguments.seed);
        let axes = self.signature.dynamic_axes().count();
        let mut errors = Errors::default();
        for _ in 0..self.arguments.points {
            let (length, rows) = (random.random_range(LENGTHS), random.random_range(ROWS));
            let dims = vec![length; axes];
            let inputs = self.inputs(rows, &dims)?;
            model.run(&inputs)?;
            let (first, again) = (timed(&*model, &inputs)?, timed(&*model, &inputs)?);
            let size = self.signature.row_elements(&dims);
            let own = median.of(rows.into(), size) as f64 / 1e6;
            let bucket = tail.table(tail.bucket(size).1).of(rows.into()) as f64 / 1e6;
            eprintln!(
                "{rows} rows of {length}: {own:.2} ms predicted, {first:.2} and {again:.2} ms measured"
            );
            let percent = |predicted: f64| 100.0 * (predicted - first).abs() / first;
            errors.own.push(percent(own));
            errors.bucket.push(percent(bucket));
            errors.again.push(percent(again));
        }
        Ok(errors)
    }

    fn inputs(&self, rows: u16, dims: &[u64]) -> Result<Vec<NamedTensor>> {
        let records = self.validation.repeated(usize::from(rows))?;
        let resized = self.signature.resized(&records, dims, |_| Fill::Repeated);
        resized.map_err(|(input, error)| anyhow::anyhow!("input `{input}`: {error}"))
    }

    fn line(&self, cell: &str, (metric, unit): (&str, &str), value: f64) {
        if self.arguments.json {
            println!(
                "{{\"experiment\":\"shapes\",\"cell\":\"{cell}\",\"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\"}}"
            );
        } else {
            println!("{cell} {metric} {value:.2} {unit}");
        }
    }
}

/// The median of some runs, ms.
fn timed(model: &dyn LoadedModel, inputs: &[NamedTensor]) -> Result<f64> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begun = Instant::now();
        model.run(inputs)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(quantile(&times, 0.5))
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((share * last as f64).round() as usize)
        .copied()
        .unwrap_or(0.0)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
