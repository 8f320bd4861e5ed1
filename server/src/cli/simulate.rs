//! `sextant simulate`: a user's own what-if questions, in virtual time.
//!
//! Figures go to standard output, as tables or as one JSON object per line; progress goes to standard error.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use sextant_simulator::{
    fleet::{Experiment, Policy},
    report::Progress,
};

use super::{Client, Error, output::Output};

mod fleet;
mod registered;
mod what_if;

/// Replay recorded requests on emulated devices, or on a fleet that an autoscaler scales, in virtual time.
///
/// All figures are simulated: requests, devices and network are modelled, and the policies are those that the service
/// runs. The same seeds give the same figures. See docs/simulator.md.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("task").required(true).args(["what_if", "fleet"]))]
#[command(group = clap::ArgGroup::new("on").multiple(true).args(["devices", "registered"]))]
pub struct Simulate {
    /// Simulate a fleet that a TOML file describes, such as `--save` writes.
    #[arg(long, value_name = "TOML")]
    fleet: Option<PathBuf>,
    /// Replay recorded requests: on a number of devices under several scheduling policies (`--devices`), or on a
    /// fleet that an autoscaler scales (`--registered`).
    #[arg(long, requires = "workload", requires = "on")]
    what_if: bool,
    /// Requests to replay: CSV with the columns `timestamp` (s) and `model`; with `--registered`, `application`
    /// instead of `model`.
    #[arg(long, value_name = "CSV", requires = "what_if")]
    workload: Option<PathBuf>,
    /// Types of devices and models with run times: TOML. With `--registered`: types of devices instead of those of
    /// the service.
    #[arg(long, value_name = "TOML", requires = "what_if")]
    devices: Option<PathBuf>,
    /// Take the variants of the applications, their profiles and the types of devices from the service; compare
    /// autoscalers.
    #[arg(long, requires = "what_if")]
    registered: bool,
    /// Latency targets to try instead of the applications' own, ms, separated by commas.
    #[arg(
        long,
        value_name = "MS,..",
        value_delimiter = ',',
        requires = "registered"
    )]
    latency_ms: Vec<f64>,
    /// Accuracy targets to try instead of the applications' own, separated by commas.
    #[arg(
        long,
        value_name = "A,..",
        value_delimiter = ',',
        requires = "registered"
    )]
    min_accuracy: Vec<f64>,
    /// Write the simulated fleet into this file, which can be changed and simulated again with `--fleet`.
    #[arg(long, value_name = "TOML", requires = "registered")]
    save: Option<PathBuf>,
    /// Most devices to try [default: twice as many as there are].
    #[arg(long, value_name = "N", requires = "what_if", conflicts_with = "registered", value_parser = clap::value_parser!(u32).range(1..))]
    max_devices: Option<u32>,
    /// Only these planners, separated by commas.
    #[arg(long, value_name = "P,..", value_delimiter = ',', conflicts_with = "max_devices", value_parser = planners())]
    policy: Vec<String>,
    /// Number of seeds to use instead of the file's own.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Only these cells of the file, separated by commas.
    #[arg(
        long,
        value_name = "CELL,..",
        value_delimiter = ',',
        requires = "fleet"
    )]
    cells: Vec<String>,
    /// Run the file's reduced version: seconds instead of minutes.
    #[arg(long, requires = "fleet")]
    quick: bool,
    /// Simulations that run at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// The names of planners that a service may have.
fn planners() -> PossibleValuesParser {
    PossibleValuesParser::new(Policy::OF_SERVICE.map(Policy::name))
}

impl Simulate {
    /// Whether the service has to be asked.
    pub fn asks_service(&self) -> bool {
        self.registered
    }

    /// Answers a question about what is registered.
    pub async fn run_registered(&self, client: &Client, output: Output) -> Result<(), Error> {
        match &self.workload {
            Some(workload) => registered::run(self, workload, client, output).await,
            None => self.run(output),
        }
    }

    /// Does what is asked for.
    pub fn run(&self, output: Output) -> Result<(), Error> {
        if let Some(file) = &self.fleet {
            return fleet::run(self, &Experiment::load(file)?, output);
        }
        match (&self.workload, &self.devices) {
            (Some(workload), Some(devices)) => what_if::run(self, workload, devices, output),
            _ => Err(Error::Usage(
                "`--what-if` needs `--workload`, and `--devices` or `--registered`".to_owned(),
            )),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}
