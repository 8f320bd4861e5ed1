//! Parallelism on the cores of this machine: predicted against measured latencies, and what
//! switching under load costs.
//!
//! A request is a batch of as many rows as take 20 ms on one thread.
//!
//! Usage: `serf [--json] [--seconds N] [--model FILE]`. `--json` prints one object per line:
//! `{"experiment":"serf","metric":"serf_vector_error","value":4.7e-6,"unit":"s"}`.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Parser;
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_engine_ort::OrtEngine;
use sextant_policies::parallelism::{
    Backlog, Choose, Configuration, Profile, Random, Sextant, SextantOptions, Summary, Unit,
    configurations,
};
use sextant_types::{Digest, NamedTensor, Optimization, Precision, Signature, Tensor};
use sextant_worker::parallelism::{
    Handles, Plan, Progress, Request, Runner, RunnerOptions, cores, evaluate, sample_inputs,
};

#[derive(Parser)]
#[command(about = "Predicted against measured latencies on the cores of this machine")]
struct Arguments {
    /// One object per line in place of text.
    #[arg(long)]
    json: bool,
    /// Time of each run, s.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    seconds: f64,
    /// Runs of each load on each configuration.
    #[arg(long, value_name = "N", default_value_t = 2)]
    repetitions: usize,
    /// The ONNX file [default: the large network of examples/digits].
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The ONNX Runtime library.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

/// A trained model of a millisecond or so for a row.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../examples/digits/cnn-large.onnx"
);

const SEED: u64 = 11;

/// Least run time of a request on one thread, s: where runs are short, what the operating system does
/// between them counts for as much as what is predicted.
const LEAST_RUN_S: f64 = 0.020;

/// Most rows of a request.
const MOST_ROWS: usize = 1024;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let library = OrtEngine::find_library(arguments.library.as_deref())
        .context("the ONNX Runtime library is missing: run `cargo xtask provision`")?;
    let engine = OrtEngine::new(&library)?;
    let path = arguments.model.unwrap_or_else(|| PathBuf::from(MODEL));
    let model = std::fs::read(&path).with_context(|| format!("`{}`", path.display()))?;
    let model = Bytes::from(model);
    let signature = sextant_onnx::inspect(&model)?.signature;
    let cores = cores()?;
    let request = LoadRequest {
        artefact: Digest::from_bytes([0; 32]),
        model,
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    let alone = engine.load(&request)?;
    let inputs = long_enough(&*alone, &signature)?;
    drop(alone);
    let rows = inputs.first().map_or(0, |input| input.tensor.rows());
    let inputs = Arc::new(inputs);
    let handles = Handles::load(&engine, &request, &cores, &inputs)?;
    let weights = engine.resident_weights_bytes();

    let plan = Plan {
        seconds: arguments.seconds,
        repetitions: arguments.repetitions,
        seed: SEED,
        ..Plan::default()
    };
    let evaluation = evaluate(&handles, &inputs, &cores, &plan, &mut |progress| {
        if let Progress::Run { done, total, .. } = progress {
            eprintln!("{done}/{total}");
        }
    })?;
    let report = Report {
        json: arguments.json,
    };
    for metric in evaluation.metrics() {
        report.line(&metric.name, metric.value, metric.unit);
    }
    if let Some(floor) = evaluation.noise_floor() {
        report.line(
            "serf_noise_floor_mean_percent",
            100.0 * floor.mean,
            "percent",
        );
        report.line("serf_noise_floor_p90_percent", 100.0 * floor.p90, "percent");
    }
    eprintln!("prediction by equation 12: {}", evaluation.verdict().name());
    report.line("request_rows", rows as f64, "rows");
    report.line("weights_mib", weights as f64 / f64::from(1 << 20), "MiB");
    let per_s = 0.6 * evaluation.capacity_per_s;
    let lost = switches(&handles, &inputs, &cores, per_s)?;
    report.line("switches_lost", lost as f64, "requests");
    let (mean_us, longest_us) = decisions()?;
    report.line("decision_mean_us", mean_us, "us");
    report.line("decision_longest_us", longest_us, "us");
    Ok(())
}

/// Inputs of a request that takes [`LEAST_RUN_S`], or of [`MOST_ROWS`].
fn long_enough(model: &dyn LoadedModel, signature: &Signature) -> Result<Vec<NamedTensor>> {
    let mut rows = 1;
    loop {
        let inputs = sample_inputs(signature, rows, SEED)?;
        model.run(&inputs)?;
        let began = Instant::now();
        model.run(&inputs)?;
        let is_long = began.elapsed().as_secs_f64() >= LEAST_RUN_S;
        if is_long || !signature.batched || rows >= MOST_ROWS {
            return Ok(inputs);
        }
        rows *= 2;
    }
}

/// What a decision costs among the 50 configurations of 16 cores, with bursty arrivals: mean and
/// longest of a thousand, us.
fn decisions() -> Result<(f64, f64)> {
    const DECISIONS: u32 = 1000;
    let mut profile = Profile::default();
    for configuration in configurations(16, 1) {
        let Configuration { service, intra, .. } = configuration;
        let slow_down = 1.0 + 0.02 * f64::from(service * intra);
        let summary = Summary {
            samples: 10,
            mean_s: 0.005 * slow_down / f64::from(intra).powf(0.8),
            scv: 0.05,
            half_width: 0.01,
        };
        profile.insert(configuration.full(), summary);
    }
    let unit = Unit::of(&profile)?.context("a profile without configurations")?;
    let mut policy = Sextant::new(unit, SextantOptions::default());
    let mut random = Random::new(SEED);
    let (mut now_s, mut next_s, mut took) = (0.0, 0.1, Vec::new());
    while took.len() < DECISIONS as usize {
        now_s += random.gamma(4.0) / 1000.0;
        policy.arrived((now_s * 1e9) as u64);
        if now_s >= next_s {
            next_s += 0.1;
            let backlog = Backlog {
                running: 8,
                queued: 20,
            };
            let began = Instant::now();
            policy.choose((now_s * 1e9) as u64, backlog);
            took.push(began.elapsed());
        }
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let sum: Duration = took.iter().sum();
    let longest = took.iter().max().copied().unwrap_or_default();
    Ok((us(sum) / f64::from(DECISIONS), us(longest)))
}

/// A hundred switches under load: requests without exactly one right answer.
fn switches(
    handles: &Handles,
    inputs: &Arc<Vec<NamedTensor>>,
    cores: &[usize],
    per_s: f64,
) -> Result<u64> {
    const SWITCHES: usize = 100;
    const REQUESTS: usize = 1000;
    let mut expected = Vec::new();
    for intra in 1..=cores.len() as u16 {
        let model = handles
            .get(intra)
            .context("a model that was loaded is gone")?;
        expected.push(model.run(inputs)?);
    }
    let all = configurations(cores.len() as u16, 1);
    let options = RunnerOptions {
        cores: cores.to_vec(),
        configuration: Configuration::local(1, 1),
        spin: Duration::from_micros(100),
    };
    let runner = Runner::start(handles.clone(), options)?;
    let (sender, receiver) = mpsc::channel();
    let mut random = Random::new(SEED);
    let gaps_s = random.gaps(REQUESTS, 1.0 / per_s, 1.0);
    let mut arrival = Instant::now();
    for (number, gap_s) in gaps_s.iter().enumerate() {
        arrival += Duration::from_secs_f64(*gap_s);
        let sender = sender.clone();
        runner.submit(Request {
            inputs: Arc::clone(inputs),
            arrival,
            done: Box::new(move |completed| drop(sender.send((number, completed)))),
        });
    }
    drop(sender);
    let mut answers = vec![0_u64; REQUESTS];
    for (count, (number, completed)) in receiver.into_iter().enumerate() {
        // Switches are spread over the answers.
        if count % (REQUESTS / SWITCHES) == 0 {
            runner.configure(all[random.below(all.len())])?;
        }
        let right = completed
            .outputs
            .is_ok_and(|outputs| expected.iter().any(|known| same(known, &outputs)));
        answers[number] += if right { 1 } else { 2 };
    }
    let counters = runner.counters();
    anyhow::ensure!(
        counters.most_threads <= cores.len(),
        "more threads than cores were granted"
    );
    Ok(answers.iter().filter(|count| **count != 1).count() as u64)
}

/// Equal but for the order in which threads add up.
fn same(known: &[Tensor], found: &[Tensor]) -> bool {
    let close = |(a, b): (&Tensor, &Tensor)| match (a.to_vec::<f32>(), b.to_vec::<f32>()) {
        (Some(a), Some(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(&b)
                    .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
        }
        _ => a == b,
    };
    known.len() == found.len() && known.iter().zip(found).all(close)
}

struct Report {
    json: bool,
}

impl Report {
    fn line(&self, metric: &str, value: f64, unit: &str) {
        match self.json {
            true => println!(
                "{}",
                serde_json::json!({"experiment": "serf", "metric": metric, "value": value, "unit": unit})
            ),
            false => println!("{metric}: {value:.6} {unit}"),
        }
    }
}
