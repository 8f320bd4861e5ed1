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
    /// The service answers some of the queries that a variant in another precision has answered once more with the
    /// file as it was uploaded, and compares both answers. It runs some of the queries that shared a batch once more
    /// alone.
    Agreement in "dispatcher.agreement" {
        /// Share of the answered queries that are compared; 0 compares none.
        share: f64 = Sampling::default().share, within 0.0..=1.0;
        /// Queries are compared only on a worker that already has a variant in single precision, or the variant
        /// itself, loaded and whose slots are no busier than this, as a share.
        below_utilization: f64 = Sampling::default().quiet_utilization, within 0.0..=1.0;
    }
}

section! {
    /// The service keeps answers for later queries with the same inputs if `resources.cache_bytes` of the application
    /// says so. In a fleet, the dispatcher keeps the answers of queries up to `fleet.inline_bytes`, and each front
    /// end keeps the others.
    Cache in "dispatcher.cache" {
        /// Most bytes that the kept answers of all applications take together, in each process; 0 keeps none.
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
    /// Which variants are loaded where on behalf of queries. A query whose variant is loaded nowhere waits for a
    /// load; if memory is short, the variant that is worth least is unloaded for it.
    Placement in "dispatcher.placement" {
        /// `sextant` chooses the loads that save the most queries, and keeps the variants that would cost most to
        /// load again. `clockwork` loads by unfulfilled demand and unloads the least recently used variant. `lru`
        /// loads in the order of the queries and unloads the least recently used variant.
        policy: PlacementPolicy = PlacementPolicy::default();
        /// Loading time that may be outstanding on a device when the dispatcher begins one more load, milliseconds.
        look_ahead_ms: f64 = millis(placement::Options::default().look_ahead), within 0.001..=60_000.0;
        /// `sextant`: time to spare between the end of a load and the last moment at which the
        /// queries that wait for it can start, milliseconds.
        margin_ms: f64 = millis(placement::Options::default().margin), within 0.0..=60_000.0;
        /// `sextant`: time over which the dispatcher forgets past rates of queries, seconds.
        memory_s: f64 = millis(placement::Options::default().memory) / 1e3, within 1.0..=86_400.0;
        /// `sextant`: whether variants for which queries come periodically are loaded in advance.
        prefetch: bool = true;
    }
}

section! {
    /// Which batch runs where and when.
    Schedule in "dispatcher.schedule" {
        /// How many of the devices beyond those that a burst may need are kept idle, as a share. With 0 the
        /// dispatcher uses all of them to answer sooner. With 1 a batch waits until the last moment at which one more
        /// row could join: fewer and fuller batches do the same work, and idle time shows the true spare capacity. If
        /// devices are scarce, the setting makes no difference.
        hold: f64 = Options::default().hold, within 0.0..=1.0;
        /// How the run time of a batch is estimated: `profile` takes the time measured at registration, `clockwork`
        /// takes the 99th percentile of the last ten runs of its size, `sextant` estimates a common slowdown of all
        /// sizes of a variant, with outliers in quarantine.
        run_times: RunTimes = RunTimes::default();
        /// For models whose queries do not share batches: what decides how many queries of a model run side by side,
        /// and on how many threads each. `serf` uses SERF's table of predicted mean latencies by load; `off` uses the
        /// selection by targets alone.
        parallelism: Parallelism = Parallelism::Serf;
        /// Most cores of a worker that `parallelism` grants the queries of one model; 0 for all.
        parallelism_cores: u16 = 0, within 0.0..=65_535.0;
        /// Upper bound of the time of a message from the dispatcher to a worker, microseconds. The dispatcher sends
        /// batches that much before their start, and refuses a query at once if its target leaves no room for it.
        control_delay_us: u64 = 0, within 0.0..=10_000_000.0;
        /// Upper bound of the time that the inputs of one row take to the worker, microseconds.
        data_delay_us: u64 = 0, within 0.0..=10_000_000.0;
        /// Upper bound of the time of an answer from a worker to the client, microseconds.
        response_delay_us: u64 = 0, within 0.0..=10_000_000.0;
        sections {
            /// What applications may claim, by name.
            applications: BTreeMap<ApplicationId, Claims>;
        }
    }
}

section! {
    /// What the queries of an application may claim against those of other applications, one table for each
    /// application. An application without a table has the defaults. Values set through the API (`resources` of
    /// `PATCH /v1/applications/{application}`) override both.
    Claims in "dispatcher.schedule.applications" each "NAME" {
        /// Queries of a higher priority go first, whatever the deadlines.
        priority: u8 = Tenant::default().priority, within 0.0..=255.0;
        /// Share of the device time, against other applications of the same priority, when the devices cannot serve
        /// all queries; 1 is normal.
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
