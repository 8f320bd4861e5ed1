//! How the dispatcher schedules: the policy, its parameters, and what applications may claim.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sextant_dispatcher::{Choice, Sampling, Tenant};
use sextant_placement as placement;
use sextant_profile::{Estimation, UnknownEstimation};
use sextant_schedule::{Delay, Nanos, Options};
use sextant_types::ApplicationId;

use super::section::section;

section! {
    /// What lies between a query and the worker.
    Dispatcher in "dispatcher" {
        sections {
            /// Which batch runs where and when.
            schedule: Schedule;
            /// What is loaded where on behalf of queries.
            placement: Placement;
            /// How often answers are compared with the uploaded file's.
            agreement: Agreement;
            /// How much room there is for answers that are kept.
            cache: Cache;
        }
    }
}

section! {
    /// Some of the queries that a variant in another precision has answered are answered once more by the
    /// file as it was uploaded, and both answers are compared. Some of those that shared a batch are run once more alone.
    Agreement in "dispatcher.agreement" {
        /// Share of the answered queries; 0 compares none.
        share: f64 = Sampling::default().share, within 0.0..=1.0;
        /// It is done where a variant in single precision, or the variant itself, is loaded already, on a worker whose
        /// slots are no busier than this, as a share.
        below_utilization: f64 = Sampling::default().quiet_utilization, within 0.0..=1.0;
    }
}

section! {
    /// Answers are kept for queries with the same inputs where `resources.cache_bytes` of their application says so. In a
    /// fleet the dispatcher keeps those of up to `fleet.inline_bytes`, each front end the others.
    Cache in "dispatcher.cache" {
        /// Most bytes of all applications together, in each process; 0 keeps nothing.
        max_bytes: u64 = 1 << 30;
    }
}

impl Agreement {
    /// As the dispatcher takes it.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            share: self.share,
            quiet_utilization: self.below_utilization,
        }
    }
}

section! {
    /// What is loaded where on behalf of queries. A query whose variant is loaded nowhere waits for a
    /// load; where the memory is short, what is worth least is unloaded for it.
    Placement in "dispatcher.placement" {
        /// `sextant`: loads save as many queries as they can, and what would cost most to have again
        /// is kept. `clockwork`: by unfulfilled demand, the least recently used is unloaded. `lru`:
        /// first come, first served, the least recently used is unloaded.
        policy: PlacementPolicy = PlacementPolicy::default();
        /// Loading that may be outstanding on a device when one more load is begun, milliseconds.
        look_ahead_ms: f64 = millis(placement::Options::default().look_ahead), within 0.001..=60_000.0;
        /// `sextant`: time to spare between the end of a load and the last moment at which the
        /// queries that wait for it can start, milliseconds.
        margin_ms: f64 = millis(placement::Options::default().margin), within 0.0..=60_000.0;
        /// `sextant`: time over which the rates of queries are forgotten, seconds.
        memory_s: f64 = millis(placement::Options::default().memory) / 1e3, within 1.0..=86_400.0;
        /// `sextant`: whether variants that are asked for periodically are loaded in advance.
        prefetch: bool = true;
    }
}

section! {
    /// Which batch runs where and when.
    Schedule in "dispatcher.schedule" {
        /// Share of the devices beyond those that a burst may need which is kept idle. 0
        /// spends them on answering sooner. 1 waits until the last moment at which one more row
        /// could join: fewer and fuller batches do the same work, and idle time shows true spare
        /// capacity. Where devices are scarce it makes no difference.
        hold: f64 = Options::default().hold, within 0.0..=1.0;
        /// How the run time of a batch is estimated: `profile` as measured at registration,
        /// `clockwork` as the 99th percentile of the last ten runs of its size, `sextant` by what
        /// slows all sizes of a variant, with outliers in quarantine.
        run_times: RunTimes = RunTimes::default();
        /// What chooses how many queries of a model run side by side and on how many threads each,
        /// for models whose queries do not share batches: SERF's table of predicted mean latencies by
        /// load (`serf`), or the selection by targets alone (`off`).
        parallelism: Parallelism = Parallelism::Serf;
        /// Cores of a worker that `parallelism` grants the queries of one model at most; 0 for all.
        parallelism_cores: u16 = 0, within 0.0..=65_535.0;
        /// High bound of the way from the dispatcher to a worker, microseconds. Batches are sent so
        /// much earlier than they are to start, and a query whose target leaves no room for it is
        /// refused at once.
        control_delay_us: u64 = 0, within 0.0..=10_000_000.0;
        /// High bound of the time that the inputs of one row take to the worker, microseconds.
        data_delay_us: u64 = 0, within 0.0..=10_000_000.0;
        /// High bound of the way from a worker to the client, microseconds.
        response_delay_us: u64 = 0, within 0.0..=10_000_000.0;
        sections {
            /// What applications may claim, by name.
            applications: BTreeMap<ApplicationId, Claims>;
        }
    }
}

section! {
    /// What the queries of an application may claim against those of others, one table for each
    /// application. An application without a table has the defaults. What is set through the API
    /// (`resources` of `PATCH /v1/applications/{application}`) comes before both.
    Claims in "dispatcher.schedule.applications" each "NAME" {
        /// Queries of a higher priority go first, whatever the deadlines.
        priority: u8 = Tenant::default().priority, within 0.0..=255.0;
        /// Share of what is served when not everything can be, against others of the same
        /// priority; 1 is normal.
        weight: f64 = f64::from(Tenant::default().weight), within 0.001..=1000.0;
    }
}

/// A word of the configuration for each value of an enumeration of the policies.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident($of:ty), $unknown:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub $of);

        impl $name {
            /// The words of the configuration.
            pub(super) const NAMES: &'static [&'static str] = &{
                let mut names = [""; <$of>::ALL.len()];
                let mut at = 0;
                while at < names.len() {
                    names[at] = <$of>::ALL[at].name();
                    at += 1;
                }
                names
            };
        }

        impl TryFrom<String> for $name {
            type Error = $unknown;

            fn try_from(name: String) -> Result<Self, $unknown> {
                name.parse().map(Self)
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.0.name().to_owned()
            }
        }
    };
}

word! {
    /// A placement policy by its name.
    PlacementPolicy(placement::Policy), placement::UnknownPolicy
}

word! {
    /// A way to estimate run times by its name.
    RunTimes(Estimation), UnknownEstimation
}

/// Who chooses the threads of queries that run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Parallelism {
    /// The selection by targets.
    Off,
    /// The load (SERF).
    Serf,
}

impl Parallelism {
    /// The words of the configuration.
    pub(super) const NAMES: &'static [&'static str] = &["off", "serf"];
}

fn millis(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}

fn nanos(millis: f64) -> Nanos {
    (millis * 1e6).round() as Nanos
}

// === impl Placement ===

impl Placement {
    /// The options of the placement.
    pub fn options(&self) -> placement::Options {
        placement::Options {
            policy: self.policy.0,
            look_ahead: nanos(self.look_ahead_ms),
            margin: nanos(self.margin_ms),
            memory: nanos(self.memory_s * 1e3),
            prefetch: self.prefetch,
            ..placement::Options::default()
        }
    }
}

// === impl Schedule ===

impl Schedule {
    /// Who chooses the threads of queries that run alone, and what for.
    pub fn parallelism(&self) -> Option<Choice> {
        (self.parallelism == Parallelism::Serf).then_some(Choice {
            cores: (self.parallelism_cores > 0).then_some(self.parallelism_cores),
        })
    }

    /// The parameters of the scheduling policy.
    pub fn options(&self) -> Options {
        Options {
            delay: Delay {
                control: self.control_delay_us * 1_000,
                data_per_row: self.data_delay_us * 1_000,
                response: self.response_delay_us * 1_000,
            },
            hold: self.hold,
        }
    }

    /// What each application that has a table claims.
    pub fn tenants(&self) -> BTreeMap<ApplicationId, Tenant> {
        let tenants = self.applications.iter().map(|(application, claims)| {
            let tenant = Tenant {
                priority: claims.priority,
                weight: claims.weight as f32,
            };
            (application.clone(), tenant)
        });
        tenants.collect()
    }
}
