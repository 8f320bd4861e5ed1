//! Workers that the autoscaler starts and ends as containers, by load: `deploy/compose/autoscale.yml`.
//!
//! Devices are emulated (`emulated.toml`), so that a load for three workers leaves the machine its cores; they
//! compute nothing, so nobody looks at the digit. Everything else is as users have it: the image, the engine, the
//! containers, their settings. Clients ask again when they are told to, so that in the end all is answered.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::{Arrivals, Manners};
use super::phases::{Phase, Tolerance};
use super::stack::{Kind, Stack};
use super::{register, under_load};
use crate::containers::engine::docker;
use crate::shell::{self, say};

/// The type of the workers, as `emulated.toml` has it.
pub const POOL: &str = "small";
/// Most workers, and how long those stay that are not needed, for the Compose file.
pub const SETTINGS: [(&str, &str); 4] = [
    ("AUTOSCALE_POOL", POOL),
    ("AUTOSCALE_MOST", "3"),
    ("AUTOSCALE_HOLD_S", "10"),
    ("AUTOSCALE_MEMORY_BYTES", "1073741824"),
];
/// A model that takes its time.
const MODEL: &str = "cnn-large";
/// Queries a second for which one worker is too few, and two with little to spare.
const MANY: f64 = 90.0;
/// Queries a second for which one is enough.
const FEW: f64 = 3.0;
/// How long the number of workers may take to be what it should be. What was asked counts for a minute.
const WITHIN: Duration = Duration::from_secs(300);
/// Clients do as they are told.
const MANNERS: Manners = Manners {
    asks_again: true,
    digit: None,
};

/// What is done, and how many queries a second come meanwhile.
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

/// Three workers, of which one is killed and replaced.
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

/// One worker again, and no container of the others.
fn fall(stack: &Stack) -> Result<()> {
    settle(stack, 1)?;
    await_until(stack, "containers of one worker", |stack| {
        Ok(stack.autoscaled()?.len() == 1)
    })
}

/// Waits until so many workers are desired and up; says what was decided.
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

/// Waits until a variant was measured on the pool's devices: until then plans rest on what was measured elsewhere,
/// where it runs a hundred times as fast.
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
