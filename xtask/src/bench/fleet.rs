//! The figures of a fleet: the cost of several processes over Redis, PostgreSQL and S3 compared with one process over
//! embedded stores; how fast a dispatcher follows the metadata and what that costs Redis; and the outcomes of queries
//! while the leading dispatcher is killed. Everything runs on this machine's loopback interface.

mod failover;
pub(super) mod members;
mod overhead;
mod tensors;

use anyhow::{Context, Result};

use super::bed::Bench;
use super::report::{Figure, Report};
use super::{Arguments, example};
use crate::{provision, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 4] = ["overhead", "tensors", "feed", "failover"];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("feed") {
        feed(report)?;
    }
    if !["overhead", "tensors", "failover"]
        .iter()
        .any(|part| arguments.wants(part))
    {
        return Ok(());
    }
    let bench = Bench::prepare(arguments, provision::stores()?, "bench-fleet")?;
    if arguments.wants("overhead") {
        overhead::run(&bench, report)?;
    }
    if arguments.wants("tensors") {
        tensors::run(&bench, report)?;
    }
    if arguments.wants("failover") {
        failover::run(&bench, report)?;
    }
    Ok(())
}

/// A thousand instances that report, and a follower, over a Redis server of their own.
fn feed(report: &mut Report) -> Result<()> {
    provision::stores()?;
    let program = example("sextant-metadata-redis", "load")?;
    let mut command = shell::command(program);
    eprintln!("$ {}", shell::show(&command));
    let record: serde_json::Value = serde_json::from_str(&shell::output(&mut command)?)?;
    for (metric, unit, goal) in [
        ("redis_core_percent", "percent", "<= 5"),
        ("feed_delay_p99_ms", "ms", "<= 50"),
    ] {
        let value = record[metric].as_f64();
        let value = value.with_context(|| format!("the example reports no `{metric}`"))?;
        report.add(figure(metric, value, unit, Some(goal)));
    }
    Ok(())
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("fleet", metric, value, unit, goal)
}
