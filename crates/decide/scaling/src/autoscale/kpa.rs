//! The Knative Pod Autoscaler, by the rule and the defaults of its documentation (knative.dev, Serving,
//! Autoscaling: "Configuring concurrency" and "Additional autoscaling configuration for Knative Pod
//! Autoscaler").
//!
//! - *Rule*: the mean number of concurrent requests over the stable window of 60 s, over the target for each replica,
//!   rounded up. A replica runs one request at a time, and the target is 70 % of that. As in Knative, requests that
//!   wait for a replica count as concurrent.
//! - *Panic*: if the panic window requires at least twice as many replicas as serve, the larger number of the two
//!   windows counts. No replica is then removed until the condition has not held for 60 s. The panic window has 6 s, a
//!   tenth of the stable one. Here it is the last tick, 10 s, because decisions come no more often and observations are
//!   counted by tick.
//! - *Rates*: at most 1000 times as many as serve, and not less than half of them.

use super::{Autoscaler, Change, Observation, TICK_S, hpa::changes};

/// The target number of concurrent requests for each replica: 70 % of the one that it runs.
const TARGET: f64 = 0.7;

/// The stable window, s.
const STABLE_S: u32 = 60;

/// Ticks of the stable window.
const STABLE: usize = (STABLE_S / TICK_S) as usize;

/// Ticks of the panic window.
const PANIC: usize = 1;

/// The panic threshold: the replicas that the panic window requires, over those that serve.
const THRESHOLD: f64 = 2.0;

/// The most replicas, as a multiple of those that serve.
const UP: u32 = 1000;

/// The divisor of the replicas that serve which gives the fewest.
const DOWN: u32 = 2;

/// The Knative Pod Autoscaler; see the module.
#[derive(Debug, Clone, Default)]
pub struct Kpa {
    /// By job: its panic, if there is one.
    panics: Vec<Option<Panic>>,
}

#[derive(Debug, Clone, Copy)]
struct Panic {
    /// When the panic condition last held, s.
    at_s: u32,
    /// The most replicas that were desired since it began.
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

/// The number of replicas that the concurrent requests of the last ticks require.
fn replicas(concurrency: &[f64], ticks: usize) -> u32 {
    let window = &concurrency[concurrency.len().saturating_sub(ticks)..];
    let mean = window.iter().sum::<f64>() / window.len().max(1) as f64;
    // The cast saturates.
    (mean / TARGET).ceil() as u32
}
