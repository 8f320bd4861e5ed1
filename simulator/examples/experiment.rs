//! Runs an experiment without the rest of the service and prints its figures as JSON lines.
//!
//! `cargo run --release -p sextant-simulator --example experiment -- NAME [quick|full|sample=N] [POLICY,..] [CELL,..] [SEEDS]`
#![expect(clippy::print_stdout, reason = "prints its figures")]

use std::path::Path;

use sextant_schedule::Policy;
use sextant_simulator::{
    Error,
    experiment::{self, Event, Experiment, Plan},
};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    let split = |at: usize| argument(at).split(',').filter(|part| !part.is_empty());
    let policies: Result<Vec<Policy>, _> = split(2).map(str::parse::<Policy>).collect();
    let name = argument(0);
    let experiment = match name.ends_with(".toml") {
        true => Experiment::load(Path::new(name))?,
        false => Experiment::named(name)?,
    };
    let sample = argument(1).strip_prefix("sample=");
    let plan = Plan {
        quick: argument(1) == "quick",
        full: argument(1) == "full",
        sample: sample.and_then(|count| count.parse().ok()),
        seeds: argument(4).parse().unwrap_or(0),
        policies: policies.map_err(|unknown| Error::Setting(unknown.to_string()))?,
        cells: split(3).map(str::to_owned).collect(),
        ..Plan::default()
    };
    experiment::run(&experiment, &plan, &mut |event| {
        if let Event::Record(record) = event {
            println!("{}", record.to_json());
        }
    })?;
    Ok(())
}
