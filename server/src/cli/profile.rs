//! `sextant profile`: what this machine's cores can do with a model.
//!
//! Measures here, not on a server; only a registered model's file comes from there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use bytes::Bytes;
use clap::Subcommand;
use sextant_engine::LoadRequest;
use sextant_engine_ort::OrtEngine;
use sextant_policies::parallelism::StopRule;
use sextant_types::{ModelId, Optimization, Precision};
use sextant_worker::parallelism::{self, Handles, Plan, Progress, cores, evaluate, sample_inputs};

use super::{Client, Error, Output};

mod tables;

/// Measure models on this machine's cores.
#[derive(Debug, Subcommand)]
pub enum Profile {
    Parallelism(Parallelism),
}

/// How many requests to run side by side, and on how many threads each.
///
/// Profiles every combination that fits the cores, predicts mean latencies for several loads, then
/// sends such loads and compares. Takes minutes; other work on the machine spoils the figures. See
/// docs/parallelism.md.
#[derive(Debug, clap::Args)]
pub struct Parallelism {
    /// An ONNX file, or the name of a registered model.
    model: String,
    /// Rows of each request, where the model takes batches.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    rows: u32,
    /// Loads as shares of what the cores complete at most, separated by commas.
    #[arg(
        long,
        value_name = "SHARE,..",
        value_delimiter = ',',
        default_value = "0.2,0.35,0.5,0.65,0.8"
    )]
    loads: Vec<f64>,
    /// Time of each run, s.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    seconds: f64,
    /// Runs of each load on each configuration, with the same arrivals.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    repetitions: u16,
    /// Coefficient of variation of the gaps between arrivals: 1 for Poisson, 2 for bursts.
    #[arg(long, value_name = "CV", default_value_t = 1.0)]
    variation: f64,
    /// Stop sampling when the mean is known this well, percent (95 % interval).
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    precision: f64,
    /// Decides arrivals and inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The ONNX Runtime library [default: where `cargo xtask provision` puts it].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

impl Profile {
    /// Does it; `client` is asked for a registered model's file only.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let Self::Parallelism(subject) = self;
        let model = subject.model(client).await?;
        subject.measure(&model, output)
    }
}

impl Parallelism {
    async fn model(&self, client: &Client) -> Result<Bytes, Error> {
        let path = Path::new(&self.model);
        if path.is_file() {
            let read = std::fs::read(path).map(Bytes::from);
            return read.map_err(|source| Error::Io {
                path: path.to_owned(),
                source,
            });
        }
        let name: ModelId = self.model.parse().map_err(|error| {
            Error::Usage(format!(
                "`{}` is neither a file nor the name of a model: {error}",
                self.model
            ))
        })?;
        let segments = ["v1", "models", name.as_str(), "file"];
        let response = client.send(client.request(reqwest::Method::GET, &segments));
        let bytes = response.await?.bytes().await;
        bytes.map_err(|error| client.failed(error))
    }

    fn measure(&self, model: &Bytes, output: Output) -> Result<(), Error> {
        let engine = self.engine().map_err(Error::Service)?;
        let cores = cores().map_err(Error::Runtime)?;
        let info = sextant_onnx::inspect(model)
            .with_context(|| format!("`{}` is not a usable model", self.model))
            .map_err(Error::Service)?;
        let inputs = sample_inputs(&info.signature, self.rows as usize, self.seed);
        let inputs = Arc::new(inputs.map_err(failed)?);
        let request = LoadRequest {
            artefact: sextant_objects::digest_of(model),
            model: model.clone(),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
        };
        let mut show = |progress| show(&progress);
        let handles = Handles::load(&engine, &request, &cores, &inputs).map_err(failed)?;
        let evaluation = evaluate(&handles, &inputs, &cores, &self.plan(), &mut show);
        let evaluation = evaluation.map_err(failed)?;
        if output.json {
            return tables::lines(&evaluation)
                .iter()
                .try_for_each(|line| output.text(&line.to_string()));
        }
        output.text(&tables::text(&evaluation))
    }

    fn engine(&self) -> anyhow::Result<OrtEngine> {
        let library = OrtEngine::find_library(self.library.as_deref()).with_context(|| {
            "the ONNX Runtime library is missing: run `cargo xtask provision`, or name it with \
             `--library`"
        })?;
        let engine = OrtEngine::new(&library);
        engine.with_context(|| format!("`{}` cannot be used", library.display()))
    }

    fn plan(&self) -> Plan {
        Plan {
            utilizations: self.loads.clone(),
            seconds: self.seconds,
            repetitions: usize::from(self.repetitions),
            cv: self.variation,
            rule: StopRule {
                half_width: self.precision / 100.0,
                ..StopRule::default()
            },
            seed: self.seed,
            ..Plan::default()
        }
    }
}

fn failed(error: parallelism::Error) -> Error {
    match error {
        parallelism::Error::Invalid(reason) => Error::Usage(reason),
        other => Error::Service(anyhow::Error::new(other).context("the model cannot be measured")),
    }
}

/// A line for each step, on standard error.
fn show(progress: &Progress) {
    match progress {
        Progress::Tuple(tuple, summary) => eprintln!(
            "profiled {} side by side, {} threads each: {:.3} ms",
            tuple.running,
            tuple.intra,
            1e3 * summary.mean_s
        ),
        Progress::Run {
            done,
            total,
            load_per_s,
            configuration,
        } => eprintln!("{done}/{total} {load_per_s:.1} requests/s under {configuration}"),
    }
}
