//! `sextant-lab what-if`: with which scheduling policy, and how many devices, are recorded requests served?

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use sextant_baselines::{Options, Policy};
use sextant_simulator::{
    report::{Progress, page},
    what_if::{Question, Trials},
};

use super::{Error, named, output::Output};

/// What is asked.
#[derive(Debug, clap::Args)]
pub struct WhatIf {
    /// Requests to replay: CSV with the columns `timestamp` (s) and `model`.
    #[arg(long, value_name = "CSV")]
    workload: PathBuf,
    /// Kinds of devices and models with run times: TOML.
    #[arg(long, value_name = "TOML")]
    devices: PathBuf,
    /// Only these policies, separated by commas.
    #[arg(long, value_name = "P,..", value_delimiter = ',', value_parser = policies())]
    policy: Vec<String>,
    /// Most devices to try [default: twice as many as there are].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_devices: Option<u32>,
    /// Policies tried at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(Policy::ALL.iter().map(|policy| policy.name()))
}

impl WhatIf {
    /// Answers it.
    pub fn run(&self, output: Output) -> Result<(), Error> {
        let question = Question::load(&self.workload, &self.devices)?;
        let policies = match named::<Policy>(&self.policy)? {
            none if none.is_empty() => Policy::ALL.to_vec(),
            some => some,
        };
        let policies = policies.into_iter();
        let trials = Trials {
            policies: policies.map(|it| (it.name(), Options::of(it))).collect(),
            most_devices: self.max_devices.unwrap_or(0),
            threads: self.threads.unwrap_or(0),
        };
        let progress = Progress::new(output.json);
        let answer = question.answer(&trials, &|done, total| {
            progress.show(done, total, "policies tried");
        });
        progress.finish();
        if !output.json {
            return output.text(&page(&question, &answer));
        }
        let records = answer.records();
        let mut lines = records.iter().map(|record| record.to_json());
        lines.try_for_each(|line| output.text(&line))
    }
}
