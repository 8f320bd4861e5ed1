//! A user's own question: how many devices do these requests need?
//!
//! Entry points: [`Question::load`], [`Question::answer`]. The requests are replayed as they were
//! recorded. Devices suffice if at least [`SERVED`] of each model's requests are answered within
//! the model's target.

mod devices;
mod trial;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use sextant_schedule::{Options, Schedulers};

use crate::{Error, Record, table::Table, trace::Trace};

pub use devices::{Candidate, Devices, Kind};
pub use trial::Outcome;

/// Share of each model's requests that must be answered in time.
pub const SERVED: f64 = 0.99;

/// The most devices of a kind, and the most that are tried.
const MOST_DEVICES: u32 = 100_000;

/// Name of the experiment in records.
const NAME: &str = "what-if";

/// Requests, and the models and devices that could serve them.
#[derive(Debug, Clone)]
pub struct Question {
    kinds: Vec<Kind>,
    /// By position in the trace.
    models: Vec<Candidate>,
    trace: Trace,
}

/// What to try.
#[derive(Debug, Clone)]
pub struct Trials<S = Options> {
    /// Scheduling policies by name; that of the service by default.
    pub policies: Vec<(&'static str, S)>,
    /// The most devices; 0 for twice as many as there are, but at least 8.
    pub most_devices: u32,
    /// Policies tried at the same time; 0 for one per core.
    pub threads: usize,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The number of devices that there are.
    pub devices: u32,
    /// The most devices that were tried.
    pub most_devices: u32,
    /// By policy, in the order that was asked for.
    pub policies: Vec<PolicyAnswer>,
}

/// The result of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyAnswer {
    /// Its name.
    pub policy: &'static str,
    /// The least number of devices that suffice; `None` if the most that were tried do not.
    pub least_devices: Option<u32>,
    /// Results by number of devices, increasing.
    pub outcomes: Vec<Outcome>,
}

// === impl Trials ===

// Implemented for our policy alone, so that the type of a default is known.
impl Default for Trials {
    fn default() -> Self {
        Self {
            policies: vec![("sextant", Options::default())],
            most_devices: 0,
            threads: 0,
        }
    }
}

// === impl Question ===

impl Question {
    /// Reads a trace (`timestamp,model`) and a devices file.
    ///
    /// # Errors
    /// If a file cannot be read or is malformed, or the trace asks for a model that is not
    /// described: with the file, the line, the value, and the nearest known name.
    pub fn load(workload: &Path, devices: &Path) -> Result<Self, Error> {
        let devices = Devices::load(devices)?;
        let file = workload.display().to_string();
        match std::fs::read_to_string(workload) {
            Ok(text) => Self::read(&text, &file, devices),
            Err(source) => Err(Error::Read { file, source }),
        }
    }

    /// Reads the text of a trace that is called `file` in errors.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn read(text: &str, file: &str, devices: Devices) -> Result<Self, Error> {
        let trace = Trace::read(text, file)?;
        let mut models = Vec::new();
        for name in &trace.models {
            let known = devices.models.iter().find(|model| model.name == *name);
            let Some(model) = known else {
                return Err(unknown(name, text, file, &devices));
            };
            models.push(model.clone());
        }
        Ok(Self {
            kinds: devices.kinds,
            models,
            trace,
        })
    }

    /// The kinds of devices, with the number of each.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Requests and the time from the first to the last, s.
    pub fn size(&self) -> (usize, f64) {
        (self.trace.requests.len(), self.trace.seconds())
    }

    /// Models whose target is missed even by a single request on an idle device.
    pub fn impossible(&self) -> impl Iterator<Item = &Candidate> {
        self.models
            .iter()
            .filter(|model| model.least_ms() > model.target_ms)
    }

    /// Tries every policy with several numbers of devices. `progress` is called with the number of
    /// policies that are finished. The answer does not depend on the number of threads.
    pub fn answer<S: Schedulers + Sync>(
        &self,
        trials: &Trials<S>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Answer {
        let policies = &trials.policies;
        let devices: u32 = self.kinds.iter().map(|kind| kind.count).sum();
        let most_devices = match trials.most_devices {
            0 => (2 * devices).max(8),
            most => most.min(MOST_DEVICES),
        };
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let answers: Mutex<Vec<Option<PolicyAnswer>>> = Mutex::new(vec![None; policies.len()]);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((name, policy)) = policies.get(at) else {
                    break;
                };
                let answer = self.try_policy((name, policy), devices, most_devices);
                answers.lock()[at] = Some(answer);
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, policies.len());
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads(trials.threads).min(policies.len()) {
                scope.spawn(work);
            }
            work();
        });
        let answers = answers.into_inner();
        Answer {
            devices,
            most_devices,
            policies: answers.into_iter().flatten().collect(),
        }
    }

    fn try_policy<S: Schedulers>(
        &self,
        (name, policy): (&'static str, &S),
        devices: u32,
        most: u32,
    ) -> PolicyAnswer {
        let least_devices = self.least(policy, most);
        let mut counts = BTreeSet::from([1, devices.min(most), most]);
        counts.extend(
            (0..31)
                .map(|power| 1 << power)
                .filter(|count| *count < most),
        );
        if let Some(least) = least_devices {
            counts.extend([least, (least - 1).max(1)]);
        }
        PolicyAnswer {
            policy: name,
            least_devices,
            outcomes: counts
                .into_iter()
                .map(|count| self.outcome(policy, count))
                .collect(),
        }
    }

    /// More devices serve no less, so bisection finds the least number.
    fn least<S: Schedulers>(&self, policy: &S, most: u32) -> Option<u32> {
        if !self.is_enough(policy, most) {
            return None;
        }
        let (mut low, mut high) = (0, most);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.is_enough(policy, middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(high)
    }
}

fn threads(desired: usize) -> usize {
    match desired {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        some => some,
    }
}

fn unknown(name: &str, text: &str, file: &str, devices: &Devices) -> Error {
    let names = devices.models.iter().map(|model| model.name.as_str());
    let nearest = names
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
    let problem = format!(
        "is not among the devices' models; the nearest is `{}`",
        nearest.unwrap_or_default()
    );
    let place = || {
        let table = Table::read(text, file).ok()?;
        let column = table.find("model")?;
        let row = table.rows().find(|row| row.text(column) == name)?;
        Some(row.error(column, &problem))
    };
    place().unwrap_or_else(|| Error::line(file, 1, name, problem.clone()))
}

// === impl Answer ===

impl Answer {
    /// The answer as figures of the experiment `what-if`; a cell is `N-devices`.
    pub fn records(&self) -> Vec<Record> {
        self.policies
            .iter()
            .flat_map(PolicyAnswer::records)
            .collect()
    }
}

// === impl PolicyAnswer ===

impl PolicyAnswer {
    fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut add = |cell: Option<u32>, metric: &str, unit: &str, value: f64| {
            records.push(Record {
                experiment: NAME.to_owned(),
                cell: cell.map(|devices| format!("{devices}-devices")),
                policy: Some(self.policy.to_owned()),
                metric: metric.to_owned(),
                value,
                unit: unit.to_owned(),
                seed: None,
            });
        };
        for outcome in &self.outcomes {
            let cell = Some(outcome.devices);
            add(cell, "served_share", "share", outcome.served_share);
            add(cell, "worst_served_share", "share", outcome.worst.1);
            add(cell, "good_rps", "rps", outcome.good_rps);
            add(cell, "goodput_rps", "rps", outcome.goodput_rps);
            add(cell, "p50_ms", "ms", outcome.p50_ms);
            add(cell, "p99_ms", "ms", outcome.p99_ms);
            add(cell, "max_ms", "ms", outcome.max_ms);
            add(cell, "busy_share", "share", outcome.busy_share);
        }
        if let Some(least) = self.least_devices {
            add(None, "least_devices_count", "count", f64::from(least));
        }
        records
    }
}
