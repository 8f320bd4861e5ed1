//! Rules about replicas (`hpa`, `kpa`, `keda-queue`) that decide how many devices there are.
//!
//! A type of device is a deployment in their terms, and its devices are the replicas: each has all the variants that
//! are pinned to run on the type. The inputs of the rules are expressed per device, because a request that shares a
//! batch occupies less than a whole device:
//!
//! - `hpa`: the utilisation that the queries of the last 20 s would cause with the largest batches that are in time;
//! - `kpa`: the number of concurrent queries, over those that a device works on at the same time in such batches;
//! - `keda-queue`: the number of queries that wait for a device.
//!
//! Types to which nothing is pinned have the least number of devices.

use sextant_scaling::{
    autoscale,
    autoscale::{Autoscaler, Observation, Service, TICK_S},
};

use super::{Setting, variants::Presences};

/// Time of a device is counted in thousandths of a second.
const COUNTED_S: f64 = 0.001;

/// Queries of a class since the last tick, and concurrent queries now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Traffic {
    /// Queries that came since the last reading.
    pub(super) arrived: f64,
    /// Concurrent queries now, and those of them that wait.
    pub(super) inside: u64,
    pub(super) waiting: u64,
    /// Mean number of concurrent queries since the last reading.
    pub(super) mean_inside: f64,
}

/// Decides by a rule about replicas; see the module.
#[derive(Debug)]
pub(super) struct Replicas {
    rule: Box<dyn Autoscaler>,
    /// By class: where its queries run; `None` if nothing answers them.
    runs: Vec<Option<Runs>>,
    /// Types that have something to run.
    jobs: Vec<Job>,
}

/// The load that a query of a class puts on a device.
#[derive(Debug, Clone, Copy)]
struct Runs {
    kind: usize,
    /// Time of a device that it takes, s.
    seconds: f64,
    /// The number of queries that a device works on at the same time.
    together: f64,
}

#[derive(Debug)]
struct Job {
    kind: usize,
    desired: u32,
    arrivals: Vec<u32>,
    concurrency: Vec<f64>,
    waiting: u32,
}

// === impl Replicas ===

impl Replicas {
    pub(super) fn new(setting: &Setting, policy: autoscale::Policy) -> Self {
        let classes = 0..setting.classes.len();
        let runs: Vec<Option<Runs>> = classes.map(|class| runs(setting, class)).collect();
        let kinds = 0..setting.types.len();
        let used = kinds.filter(|kind| runs.iter().flatten().any(|of| of.kind == *kind));
        let jobs = used.map(|kind| Job {
            kind,
            desired: setting.types[kind].initial,
            arrivals: Vec::new(),
            concurrency: Vec::new(),
            waiting: 0,
        });
        let most = setting.types.iter().map(|of| of.most).sum();
        let rule = policy.build(&autoscale::Setting {
            processors: most,
            target_ms: 0.0,
            service: Service {
                mean_s: COUNTED_S,
                deviation_s: 0.0,
            },
        });
        Self {
            rule,
            jobs: jobs.collect(),
            runs,
        }
    }

    /// A tick has ended. `traffic` is its traffic, by class.
    pub(super) fn observe(&mut self, traffic: &[Traffic]) {
        for job in &mut self.jobs {
            let of = self.runs.iter().zip(traffic);
            let here = of.filter_map(|(runs, traffic)| Some((runs.as_ref()?, traffic)));
            let (mut busy_s, mut inside, mut waiting) = (0.0, 0.0, 0);
            for (runs, traffic) in here.filter(|(runs, _)| runs.kind == job.kind) {
                busy_s += traffic.arrived * runs.seconds;
                inside += traffic.mean_inside / runs.together;
                waiting += traffic.waiting;
            }
            // The casts saturate.
            job.arrivals.push((busy_s / COUNTED_S).round() as u32);
            job.concurrency.push(inside);
            job.waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        }
    }

    /// The desired number of devices at `now_s`, by type.
    pub(super) fn decide(
        &mut self,
        now_s: u32,
        setting: &Setting,
        there: &Presences<'_>,
    ) -> Vec<u32> {
        let mut devices: Vec<u32> = setting.types.iter().map(|of| of.least).collect();
        if now_s > 0 && now_s.is_multiple_of(TICK_S) {
            let jobs = self.jobs.iter();
            let seen: Vec<Observation<'_>> = jobs
                .map(|job| Observation {
                    desired: job.desired,
                    running: there.up(job.kind).count() as u32,
                    busy: false,
                    mean_latency_ms: 0.0,
                    arrivals: &job.arrivals,
                    concurrency: &job.concurrency,
                    waiting: job.waiting,
                })
                .collect();
            for change in self.rule.decide(now_s, &seen) {
                self.jobs[change.job].desired = change.target;
            }
        }
        for job in &mut self.jobs {
            let of = &setting.types[job.kind];
            job.desired = job.desired.clamp(of.least, of.most.max(of.least));
            devices[job.kind] = job.desired;
        }
        devices
    }
}

/// Where the queries of a class run: on the type on which its application's pinned variant is cheapest.
fn runs(setting: &Setting, class: usize) -> Option<Runs> {
    let of = &setting.classes[class];
    let pinned = setting.applications[of.application].pinned?;
    let variant = &setting.variants[pinned];
    let able = (0..setting.types.len()).filter(|kind| setting.types[*kind].most > 0);
    let priced = able.filter_map(|kind| Some((kind, setting.cost_per_1k_usd(variant, kind)?)));
    let (kind, _) = priced.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let latency = variant.on[kind].as_ref()?;
    let run_ms = |rows: u32| latency.of(rows) as f64 / 1e6;
    let rps = setting.rate_in_time(pinned, kind, of.latency_ms);
    let rps = rps.unwrap_or(1000.0 / run_ms(1).max(1e-6));
    let in_time = |rows: &u32| of.latency_ms.is_none_or(|ms| 2.0 * run_ms(*rows) <= ms);
    let rows = (1..=latency.measured_rows()).filter(in_time).max();
    Some(Runs {
        kind,
        seconds: 1.0 / rps,
        // The number that arrive while a batch of them runs.
        together: (rps * run_ms(rows.unwrap_or(1)) / 1000.0).max(1.0),
    })
}
