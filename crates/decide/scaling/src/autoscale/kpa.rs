//! The Knative Pod Autoscaler, by the rule and the defaults of its documentation (knative.dev, Serving,
//! Autoscaling: "Configuring concurrency" and "Additional autoscaling configuration for Knative Pod
//! Autoscaler").
//!
//! - *Rule*: the mean number of requests inside over the stable window of 60 s, over the target for each
//!   replica, rounded up. A replica runs one request at a time, of which 70 % are aimed at. As in
//!   Knative those that wait for a replica are inside too.
//! - *Panic*: if the panic window calls for twice as many replicas as serve, or more, the larger of both
//!   windows' numbers counts and nothing is taken away until that was not so for 60 s. The panic window
//!   has 6 s, a tenth of the stable one. It is the last tick here, 10 s: decisions come no more often, and
//!   what is seen is counted by tick.
//! - *Rates*: at most 1000 times as many as serve, and not less than half of them.

use super::{Autoscaler, Change, Observation, TICK_S, hpa::changes};

/// Requests inside for each replica that are aimed at: 70 % of the one that it runs.
const TARGET: f64 = 0.7;

/// The stable window, s.
const STABLE_S: u32 = 60;

/// Ticks of the stable window.
const STABLE: usize = (STABLE_S / TICK_S) as usize;

/// Ticks of the panic window.
const PANIC: usize = 1;

/// What the panic window calls for, over the replicas that serve, from which on there is panic.
const THRESHOLD: f64 = 2.0;

/// Most replicas over those that serve.
const UP: u32 = 1000;

/// Replicas that serve over the least ones.
const DOWN: u32 = 2;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Kpa {
    /// By job: its panic, if there is one.
    panics: Vec<Option<Panic>>,
}

#[derive(Debug, Clone, Copy)]
struct Panic {
    /// When there was last a reason for it, s.
    at_s: u32,
    /// Most replicas that were desired since it began.
    most: u32,
}

// === impl Kpa ===

impl Autoscaler for Kpa {
    fn decide(&mut self, now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        self.panics.resize(jobs.len(), None);
        let desired = self.panics.iter_mut().zip(jobs);
        let desired = desired.map(|(panic, seen)| desired_of(panic, now_s, seen));
        changes(desired.collect(), jobs)
    }
}

fn desired_of(panic: &mut Option<Panic>, now_s: u32, seen: &Observation<'_>) -> u32 {
    let serving = seen.running.max(1);
    let within = |desired: u32| desired.clamp(serving / DOWN, serving.saturating_mul(UP));
    let urgent = replicas(seen.concurrency, PANIC);
    let stable = within(replicas(seen.concurrency, STABLE)).max(1);
    if f64::from(urgent) / f64::from(serving) >= THRESHOLD {
        let most = panic.map_or(0, |of| of.most);
        *panic = Some(Panic { at_s: now_s, most });
    } else if panic.is_some_and(|of| of.at_s + STABLE_S < now_s) {
        *panic = None;
    }
    let Some(panic) = panic else { return stable };
    panic.most = panic.most.max(stable).max(within(urgent));
    panic.most
}

/// What the requests inside over the last ticks call for.
fn replicas(concurrency: &[f64], ticks: usize) -> u32 {
    let window = &concurrency[concurrency.len().saturating_sub(ticks)..];
    let mean = window.iter().sum::<f64>() / window.len().max(1) as f64;
    // The cast saturates.
    (mean / TARGET).ceil() as u32
}
