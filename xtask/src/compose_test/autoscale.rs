//! Tests that the autoscaler starts and ends workers as containers, by load: `deploy/compose/autoscale.yml`.
//!
//! Devices are emulated (`emulated.toml`), so that a load for three workers leaves the machine its cores. Emulated
//! devices compute nothing, so the digit in the answer is not checked. Everything else is as users have it: the image,
//! the engine, the containers, their settings. Clients ask again when they are told to, so that in the end every query
//! is answered.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::{Arrivals, Manners};
use super::phases::{Phase, Tolerance};
use super::stack::{Kind, Stack};
use super::{register, under_load};
use crate::containers::engine::docker;
use crate::shell::{self, say};

/// The type of the workers in `emulated.toml`.
pub const POOL: &str = "small";
/// Settings for the Compose file: most workers, and how long unneeded workers stay.
pub const SETTINGS: [(&str, &str); 4] = [
    ("AUTOSCALE_POOL", POOL),
    ("AUTOSCALE_MOST", "3"),
    ("AUTOSCALE_HOLD_S", "10"),
    ("AUTOSCALE_MEMORY_BYTES", "1073741824"),
];
/// A slow model.
const MODEL: &str = "cnn-large";
/// Queries a second that are too many for one worker and that two can barely answer.
const MANY: f64 = 90.0;
/// Queries a second that one worker can answer.
const FEW: f64 = 3.0;
/// Longest time until the number of workers is right. Past queries count for a minute.
const WITHIN: Duration = Duration::from_secs(300);
/// Clients ask again when they are told to.
const MANNERS: Manners = Manners {
    asks_again: true,
    digit: None,
};

/// The phases, each with its queries a second.
pub const PHASES: [(Phase, f64); 2] = [
    (
        Phase {
            name: "autoscale: load rises, a worker dies",
            act: rise,
            allowed: Tolerance::Nothing,
        },
        MANY,
    ),
    (
        Phase {
            name: "autoscale: load falls",
            act: fall,
            allowed: Tolerance::Nothing,
        },
        FEW,
    ),
];

/// Runs the phases whose name contains `only`.
pub fn exercise(stack: &Stack, seed: u64, report: &mut super::Report, only: &str) -> Result<()> {
    ensure!(stack.kind == Kind::Autoscaled, "another stack is up");
    stack.up(&["--no-build"])?;
    settle(stack, 1)?;
    register(stack, MODEL)?;
    super::await_answer(stack)?;
    measured(stack)?;
    for (phase, rate) in PHASES.iter().filter(|(phase, _)| phase.name.contains(only)) {
        say(format!("--- {} (seed {seed})", phase.name));
        let arrivals = Arrivals { rate: *rate, seed };
        report.phase(phase, &under_load(stack, phase, arrivals, MANNERS)?);
    }
    Ok(())
}

/// Three workers run; one of them is killed and replaced.
fn rise(stack: &Stack) -> Result<()> {
    settle(stack, 3)?;
    let before = stack.autoscaled()?;
    let victim = before.first().context("a worker")?;
    say(format!("killing {victim}"));
    shell::run(&mut docker(&["kill", victim]))?;
    await_until(stack, "another one in its place", |stack| {
        let now = stack.autoscaled()?;
        Ok(now.len() == 3 && !now.contains(victim))
    })?;
    settle(stack, 3)
}

/// One worker is left, and no container of the others.
fn fall(stack: &Stack) -> Result<()> {
    settle(stack, 1)?;
    await_until(stack, "containers of one worker", |stack| {
        Ok(stack.autoscaled()?.len() == 1)
    })
}

/// Waits until `count` workers are desired and ready; prints the decisions.
fn settle(stack: &Stack, count: u64) -> Result<()> {
    await_until(stack, &format!("{count} workers"), |stack| {
        let body = stack.get("/v1/scaling")?;
        let pools = body["pools"].as_array().into_iter().flatten();
        let pool = pools.into_iter().find(|it| it["device_type"] == POOL);
        let pool = pool.cloned().unwrap_or_default();
        Ok(pool["up"] == count && pool["desired"] == count)
    })?;
    let body = stack.get("/v1/scaling/decisions?limit=1&subject=small")?;
    let newest = &body["decisions"][0];
    say(format!(
        "{count} workers: decision #{}, {} -> {}: {}",
        newest["number"],
        newest["from"],
        newest["to"],
        newest["reason"].as_str().unwrap_or_default()
    ));
    Ok(())
}

/// Waits until a variant was measured on the pool's devices. Until then, plans use measurements from elsewhere, where
/// the variant runs a hundred times as fast.
fn measured(stack: &Stack) -> Result<()> {
    await_until(stack, "a measurement on the pool's devices", |stack| {
        let body = stack.get(&format!("/v1/models/{MODEL}/variants"))?;
        let variants = body["variants"].as_array().into_iter().flatten();
        let mut profiles = variants.flat_map(|it| it["profiles"].as_array().into_iter().flatten());
        let is_real = |of: &Value| of["device_type"] == POOL && of["estimated"] == false;
        Ok(profiles.any(is_real))
    })
}

fn await_until(stack: &Stack, what: &str, holds: impl Fn(&Stack) -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let seen = holds(stack);
        if matches!(seen, Ok(true)) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "not within {} s: {what} ({seen:?})",
            WITHIN.as_secs()
        );
        shell::pause(Duration::from_millis(250));
    }
}
