//! Runs an experiment with a fleet without the rest of the service and prints its figures as JSON lines.
//!
//! `cargo run --release -p sextant-lab --example fleet -- NAME|FILE [quick|counts] [POLICY,..] [CELL,..] [SEEDS]`
//!
//! `counts` prints the data behind the figures instead: queries, late queries and refused queries of each class, and
//! changes of the number of devices.
#![expect(clippy::print_stdout, reason = "prints its figures")]

use std::path::Path;

use sextant_lab::fleets;
use sextant_simulator::{
    Error,
    fleet::{Experiment, Plan, Policy, run_by},
};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    let split = |at: usize| argument(at).split(',').filter(|part| !part.is_empty());
    let policies: Result<Vec<Policy>, _> = split(2).map(str::parse::<Policy>).collect();
    let experiment = match fleets::named(argument(0))? {
        Some(experiment) => experiment,
        None => Experiment::load(Path::new(argument(0)))?,
    };
    let plan = Plan {
        policies: policies.map_err(|unknown| Error::Setting(unknown.to_string()))?,
        seeds: argument(4).parse().unwrap_or(0),
        cells: split(3).map(str::to_owned).collect(),
        quick: argument(1) == "quick",
        threads: 0,
    };
    if argument(1) == "counts" {
        return counts(&experiment, &plan);
    }
    for record in fleets::play(&experiment, &plan, &mut |_, _| {})? {
        println!("{}", record.to_json());
    }
    Ok(())
}

fn counts(experiment: &Experiment, plan: &Plan) -> Result<(), Error> {
    let policies = match plan.policies.is_empty() {
        true => &experiment.policies,
        false => &plan.policies,
    };
    for cell in &experiment.cells {
        if !plan.cells.is_empty() && !plan.cells.contains(&cell.name) {
            continue;
        }
        for policy in policies {
            let report = run_by(&cell.setting, *policy, &fleets::schedulers(*policy))?;
            for (class, of) in cell.setting.classes.iter().zip(&report.classes) {
                let application = &cell.setting.applications[class.application].name;
                let (sent, late, refused) = (of.sent, of.late, of.refused);
                println!(
                    "{} {} {application} {sent} {late} {refused}",
                    cell.name,
                    policy.name()
                );
            }
            for (at_s, kind, count) in &report.counts {
                let (name, of) = (&cell.name, &cell.setting.types[*kind].name);
                println!("{name} {} {at_s:.0} {of} {count}", policy.name());
            }
        }
    }
    Ok(())
}
