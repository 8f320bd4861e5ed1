//! The phases of the test, in order. Queries come during each phase, and each phase leaves the stack healthy, with two
//! workers.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::stack::{Container, Stack};
use crate::containers::engine::docker;
use crate::shell;

/// How long networks are cut and processes are stopped.
const AWAY: Duration = Duration::from_secs(8);
/// Workers of `docker-compose.yml`.
const WORKERS: usize = 2;

/// One phase.
pub struct Phase {
    /// Its name in tables.
    pub name: &'static str,
    /// Carries the phase out, and returns when it is done.
    pub act: fn(&Stack) -> Result<()>,
    /// What clients may see besides answers.
    pub allowed: Tolerance,
}

/// What clients may see of a phase besides answers. Lost queries and wrong answers are never allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// Nothing: every query is answered.
    Nothing,
    /// Refusals with a code.
    Refusals,
    /// Refusals, and connections that are refused or end without an answer, because there is only one front end.
    BrokenConnections,
}

/// All phases.
pub const PHASES: [Phase; 16] = [
    phase("steady", |_| Ok(()), Tolerance::Nothing),
    phase(
        "scale workers to 4",
        |stack| scale(stack, 4),
        Tolerance::Nothing,
    ),
    phase(
        "scale workers to 1",
        |stack| scale(stack, 1),
        Tolerance::Refusals,
    ),
    phase(
        "scale workers to 2",
        |stack| scale(stack, 2),
        Tolerance::Nothing,
    ),
    phase("kill -9 a worker", kill_worker, Tolerance::Refusals),
    phase("cut a worker off", cut_worker, Tolerance::Refusals),
    phase("pause a worker", pause_worker, Tolerance::Refusals),
    phase(
        "restart redis",
        |stack| restart(stack, "redis"),
        Tolerance::Refusals,
    ),
    phase(
        "restart postgres",
        |stack| restart(stack, "postgres"),
        Tolerance::Nothing,
    ),
    phase(
        "restart s3",
        |stack| restart(stack, "s3"),
        Tolerance::Nothing,
    ),
    phase("add a dispatcher", add_dispatcher, Tolerance::Nothing),
    phase("kill -9 the leader", kill_leader, Tolerance::Refusals),
    phase("upgrade the workers", upgrade_workers, Tolerance::Refusals),
    phase(
        "upgrade the dispatchers",
        upgrade_dispatchers,
        Tolerance::Refusals,
    ),
    phase("upgrade the others", upgrade_others, Tolerance::Nothing),
    phase(
        "upgrade the front end",
        |stack| recreate(stack, "api"),
        Tolerance::BrokenConnections,
    ),
];

const fn phase(name: &'static str, act: fn(&Stack) -> Result<()>, allowed: Tolerance) -> Phase {
    Phase { name, act, allowed }
}

fn scale(stack: &Stack, count: usize) -> Result<()> {
    let scale = format!("worker={count}");
    stack.up_one("worker", &["--no-recreate", "--scale", &scale])?;
    stack.await_workers(count)
}

fn kill_worker(stack: &Stack) -> Result<()> {
    stack.crash(&first(stack, "worker")?)?;
    restored(stack)
}

fn cut_worker(stack: &Stack) -> Result<()> {
    let worker = first(stack, "worker")?;
    stack.network(&worker, false)?;
    shell::pause(AWAY);
    stack.network(&worker, true)?;
    restored(stack)
}

fn pause_worker(stack: &Stack) -> Result<()> {
    let worker = first(stack, "worker")?;
    shell::run(&mut docker(&["pause", &worker.id]))?;
    shell::pause(AWAY);
    shell::run(&mut docker(&["unpause", &worker.id]))?;
    restored(stack)
}

fn restart(stack: &Stack, service: &str) -> Result<()> {
    shell::run(&mut stack.compose(&["restart", "--no-deps", service]))?;
    restored(stack)
}

fn add_dispatcher(stack: &Stack) -> Result<()> {
    stack.up_one("dispatcher-standby", &[])
}

fn kill_leader(stack: &Stack) -> Result<()> {
    let services = ["dispatcher", "dispatcher-standby"];
    for service in services {
        let dispatcher = first(stack, service)?;
        let metrics = stack.get_inside(&dispatcher, "/metrics")?;
        if metrics
            .lines()
            .any(|line| line.trim() == "sextant_dispatcher_leading 1.0")
        {
            stack.crash(&dispatcher)?;
            return restored(stack);
        }
    }
    bail!("none of {services:?} leads")
}

/// Starts new workers, then ends the old ones, one by one.
fn upgrade_workers(stack: &Stack) -> Result<()> {
    let old = stack.containers("worker")?;
    scale(stack, WORKERS + old.len())?;
    for worker in old {
        shell::run(&mut docker(&["stop", &worker.id]))?;
        shell::run(&mut docker(&["rm", "--volumes", &worker.id]))?;
    }
    stack.await_workers(WORKERS)
}

fn upgrade_dispatchers(stack: &Stack) -> Result<()> {
    recreate(stack, "dispatcher")?;
    recreate(stack, "dispatcher-standby")
}

fn upgrade_others(stack: &Stack) -> Result<()> {
    recreate(stack, "autoscaler")?;
    recreate(stack, "variant-gen")
}

fn recreate(stack: &Stack, service: &str) -> Result<()> {
    stack.up_one(service, &["--force-recreate"])?;
    restored(stack)
}

/// Waits until everything is as before.
fn restored(stack: &Stack) -> Result<()> {
    stack.await_healthy()?;
    stack.await_workers(WORKERS)
}

fn first(stack: &Stack, service: &str) -> Result<Container> {
    let containers = stack.containers(service)?;
    containers.into_iter().next().context("a container")
}
