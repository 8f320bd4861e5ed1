//! The command line of the laboratory. Figures go to standard output, as tables or as one JSON object per line;
//! progress goes to standard error. Exit codes: 2 where the caller has to write something else, 1 where a file cannot
//! be read or written.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, builder::PossibleValuesParser};
use sextant_baselines::Policy;
use sextant_partition as division;
use sextant_scaling::autoscale;
use sextant_simulator::fleet;

mod error;
mod fleets;
mod list;
mod output;
mod partition;
mod prices;
mod replicas;
mod schedulers;
mod tables;
mod timeline;
mod what_if;

use error::Error;
use output::Output;

/// Experiments in virtual time that reproduce published settings, with the policies of the service and those of others.
#[derive(Debug, Parser)]
#[command(name = "sextant-lab", version)]
struct Arguments {
    /// Print JSON in place of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run scheduling policies on emulated devices, or autoscalers on replicas or on a fleet; or divide models among
    /// sub-clusters.
    ///
    /// All figures are simulated, but those of partitions, which are computed offline. The same seeds give the same
    /// figures, but for measured times and for `milp`, whose limit is a time. See docs/lab.md.
    Experiment(Experiment),
    /// List the shipped experiments.
    List,
    /// Try recorded requests on a number of devices by scheduling policies.
    WhatIf(what_if::WhatIf),
}

/// What to run of an experiment, and how.
#[derive(Debug, clap::Args)]
struct Experiment {
    /// A shipped experiment by its name, or a TOML file.
    #[arg(value_name = "NAME|FILE")]
    name: String,
    /// Only these policies, separated by commas.
    #[arg(long, value_name = "P,..", value_delimiter = ',', value_parser = policies())]
    policy: Vec<String>,
    /// Number of seeds instead of the experiment's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Only these cells, separated by commas.
    #[arg(long, value_name = "CELL,..", value_delimiter = ',')]
    cells: Vec<String>,
    /// Only so many cells, drawn at random, the same each time.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// The reduced version: seconds instead of minutes.
    #[arg(long)]
    quick: bool,
    /// The published length where the usual one is shorter: hours instead of minutes.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Runs at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Append what is finished to this file, and do not run again what is in it.
    #[arg(long, value_name = "JSONL")]
    resume: Option<PathBuf>,
}

/// The names of scheduling policies, of autoscalers, of ways to divide models and of ways to run a fleet;
/// which of them an experiment has is known later.
fn policies() -> PossibleValuesParser {
    let schedulers = Policy::ALL.iter().map(|policy| policy.name());
    let autoscalers = autoscale::Policy::ALL.iter().map(|policy| policy.name());
    let divisions = division::Policy::ALL.iter().map(|policy| policy.name());
    let fleets = fleet::Policy::ALL.map(fleet::Policy::name).into_iter();
    let mut names: Vec<&'static str> = Vec::new();
    // Some names are those of a policy of several kinds.
    for name in schedulers.chain(autoscalers).chain(divisions).chain(fleets) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    PossibleValuesParser::new(names)
}

/// Does what the arguments of the process ask for.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output {
        json: arguments.json,
    };
    let done = match &arguments.command {
        Command::Experiment(experiment) => experiment.run(output),
        Command::List => list::print(output),
        Command::WhatIf(question) => question.run(output),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report(arguments.json);
            ExitCode::from(error.exit_code())
        }
    }
}

// === impl Experiment ===

impl Experiment {
    fn run(&self, output: Output) -> Result<(), Error> {
        if let Some(experiment) = fleets::find(&self.name)? {
            return fleets::run(self, &experiment, output);
        }
        if let Some(experiment) = partition::find(&self.name)? {
            return partition::run(self, &experiment, output);
        }
        match replicas::find(&self.name)? {
            Some(experiments) => replicas::run(self, &experiments, output),
            None => schedulers::run(self, &schedulers::find(&self.name)?, output),
        }
    }

    /// What of an experiment with a fleet or with partitions to run, and how.
    fn plan<P>(&self) -> Result<fleet::Plan<P>, Error>
    where
        P: std::str::FromStr<Err: std::fmt::Display>,
    {
        Ok(fleet::Plan {
            policies: named(&self.policy)?,
            seeds: self.seeds.unwrap_or(0),
            cells: self.cells.clone(),
            quick: self.quick,
            threads: self.threads.unwrap_or(0),
        })
    }

    /// Refuses options that mean something to experiments with schedulers alone.
    fn refuse_others(&self, what: &str) -> Result<(), Error> {
        let others = [
            ("--sample", self.sample.is_some()),
            ("--full", self.full),
            ("--resume", self.resume.is_some()),
        ];
        refuse(&others, what)
    }
}

/// Fails where an option was given that an experiment of a kind has no use for.
fn refuse(options: &[(&str, bool)], kind: &str) -> Result<(), Error> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Error::Usage(format!("`{option}` means nothing in {kind}"))),
        None => Ok(()),
    }
}

/// The policies of these names.
fn named<P: std::str::FromStr>(names: &[String]) -> Result<Vec<P>, Error>
where
    P::Err: std::fmt::Display,
{
    let policies = names.iter().map(|name| name.parse::<P>());
    let policies: Result<Vec<P>, _> = policies.collect();
    policies.map_err(|error| Error::Usage(error.to_string()))
}
