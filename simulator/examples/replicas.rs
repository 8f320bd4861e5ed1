//! Runs one of the shipped experiments with autoscalers and prints its figures as JSON lines.
//!
//! Usage: `replicas NAME [POLICY,..] [SEEDS]`.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use sextant_simulator::replicas::{self, Experiment, Plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "faro-32".to_owned());
    let policies = arguments.next().unwrap_or_default();
    let policies = policies.split(',').filter(|name| !name.is_empty());
    let plan = Plan {
        policies: policies.map(str::parse).collect::<Result<_, _>>()?,
        seeds: arguments.next().map_or(Ok(0), |seeds| seeds.parse())?,
        ..Plan::default()
    };
    let experiment = Experiment::named(&name)?.ok_or("there is no such experiment")?;
    for record in replicas::run(&experiment, &plan, &mut |_, _| {}) {
        println!("{}", record.to_json());
    }
    Ok(())
}
