//! The plan of a run: a setting, a load and a schedule of faults, all drawn from a seed.

use serde::{Deserialize, Serialize};

use super::worth::Draw;
use crate::fleet::End;

mod draw;

/// The name of the process in the setting with one process.
pub const LONE: &str = "sextant";
/// The application of the models that are registered during the faults.
pub const LATE: &str = "late";
/// Bytes that the artefact store may hold in the setting with one process.
pub const STORAGE_BYTES: u64 = 32 << 20;
/// Size of the disk with the data of all processes, bytes: more than they need.
pub const DISK_BYTES: u64 = 64 << 20;
/// First number of the records of the first job, and the distance to those of the next one.
pub const RECORD_NUMBERS: u64 = 1 << 20;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed, which together with the length determines everything else.
    pub seed: u64,
    /// Time for which the load is exposed to faults, milliseconds.
    pub length_ms: u64,
    /// The processes.
    pub setting: Setting,
    /// The applications of the load.
    pub applications: Vec<Application>,
    /// Offline jobs.
    pub jobs: Vec<Job>,
    /// Models that are registered during the run.
    #[serde(default)]
    pub registrations: Vec<Registration>,
    /// The share of the devices' work that fails.
    #[serde(default)]
    pub failing: FailureRates,
    /// The faults, in order of their times.
    pub faults: Vec<Fault>,
    /// Time for which the registry is away while a job runs after the load, milliseconds.
    #[serde(default)]
    pub registry_away_ms: u64,
    /// The losses at the end, one after another, while a few clients go on.
    #[serde(default)]
    pub losses: Vec<Loss>,
}

/// The processes of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// One process with all roles.
    One,
    /// One process for each role, with Redis, PostgreSQL and S3.
    Fleet {
        /// Number of dispatchers: one leads, the others stand by. Two in a history that does not state it.
        #[serde(default = "two")]
        dispatchers: usize,
        /// Number of front ends.
        front_ends: usize,
        /// Number of workers.
        workers: usize,
        /// A process with a wrong clock, and the offset in the format of libfaketime.
        wrong_clock: Option<(String, String)>,
    },
}

/// An application with one emulated model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// Its name, and that of its model.
    pub name: String,
    /// Run time of the model for each row, milliseconds.
    pub alpha_ms: u64,
    /// Run time of the model for each batch, milliseconds.
    pub beta_ms: u64,
    /// Queries a second.
    pub rate: f64,
    /// Their latency target, milliseconds.
    pub latency_ms: Option<u64>,
    /// Whether it asks for less than its share of the devices.
    pub is_modest: bool,
}

/// An offline job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub name: String,
    /// The application that answers, by its place in [`Plan::applications`].
    pub application: usize,
    /// When it is submitted, milliseconds; after the load if absent.
    pub at_ms: Option<u64>,
    /// Number of records of its input.
    pub records: u64,
}

/// A model that is registered during the faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// When it is sent, milliseconds; after the load if absent.
    pub at_ms: Option<u64>,
}

/// The share of the devices' work that fails, in hundredths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRates {
    /// Of loads.
    pub loads: u64,
    /// Of batches.
    pub batches: u64,
}

/// A temporary fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When it begins, milliseconds.
    pub at_ms: u64,
    /// How long it lasts, milliseconds.
    pub for_ms: u64,
    /// Its kind.
    #[serde(flatten)]
    pub kind: Kind,
}

/// The kinds of faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Kind {
    /// A process ends like a power cut and is started again.
    Kill {
        /// The process.
        process: String,
    },
    /// A process is stopped.
    Freeze {
        /// The process.
        process: String,
    },
    /// Redis answers nothing; connections stay open.
    RedisSilent,
    /// Redis loses its content.
    RedisEmptied,
    /// Redis ends and is started again with its data.
    RedisKilled,
    /// PostgreSQL answers nothing; connections stay open.
    PostgresSilent,
    /// PostgreSQL crashes and is started again.
    PostgresKilled,
    /// S3 answers late.
    S3Slow,
    /// S3 answers nothing; connections stay open.
    S3Silent,
    /// S3 refuses every second request.
    S3Refuses,
    /// The artefact store is full: it holds its limit.
    DiskFull,
    /// The disk with the data of all processes is full.
    DiskFilled,
    /// A wire of a process is disturbed.
    Wire {
        /// The process.
        process: String,
        /// The other end.
        end: End,
        /// The disturbance.
        cut: Cut,
    },
}

/// A loss that clients may notice only by a short wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// All connections to a worker are reset at once.
    WorkerReset,
    /// A worker ends like a power cut and is started again after a while.
    WorkerKilled,
    /// A worker is stopped for longer than its lease, while the autoscaler's connections to Redis are reset repeatedly.
    WorkerFrozen,
    /// The leading dispatcher ends like a power cut and is started again after a while.
    LeaderKilled,
    /// The leading dispatcher is stopped for longer than its lease.
    LeaderFrozen,
}

/// The disturbances of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Every connection is reset repeatedly.
    Resets,
    /// Bytes are delayed until the end.
    Held,
    /// Bytes are lost. Connections that lost bytes are reset at the end.
    Lost,
    /// The same, only for bytes from the stores to the process, or from the process to the others.
    AnswersLost,
}

/// One query of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// When it is sent, milliseconds.
    pub at_ms: f64,
    /// The application, by its place in [`Plan::applications`].
    pub application: usize,
    /// The front end, by its place in [`Plan::front_ends`].
    pub front_end: usize,
}

impl Plan {
    /// Every process, in the order in which they are started.
    pub fn processes(&self) -> Vec<String> {
        let Setting::Fleet {
            dispatchers,
            workers,
            ..
        } = &self.setting
        else {
            return vec![LONE.to_owned()];
        };
        let mut names = vec!["dispatcher".to_owned()];
        names.extend((2..=*dispatchers).map(|number| format!("dispatcher-{number}")));
        names.extend(["autoscaler", "variant-gen"].map(str::to_owned));
        names.extend((1..=*workers).map(|number| format!("worker-{number}")));
        names.extend(self.front_ends());
        names
    }

    /// The processes that answer HTTP.
    pub fn front_ends(&self) -> Vec<String> {
        match &self.setting {
            Setting::One => vec![LONE.to_owned()],
            Setting::Fleet { front_ends, .. } => {
                let name = |number| format!("api-{number}");
                (1..=*front_ends).map(name).collect()
            }
        }
    }

    /// The queries until a time, in order of their times. Their indices are their numbers.
    pub fn arrivals(&self, until_ms: u64) -> Vec<Arrival> {
        let mut all = Vec::new();
        let front_ends = self.front_ends().len() as u64;
        for (at, application) in self.applications.iter().enumerate() {
            let mut draw = Draw::new(self.seed, 100 + at as u64);
            let mut at_ms = draw.gap_ms(application.rate);
            while at_ms < until_ms as f64 {
                all.push(Arrival {
                    at_ms,
                    application: at,
                    front_end: draw.within(0..front_ends) as usize,
                });
                at_ms += draw.gap_ms(application.rate);
            }
        }
        all.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        all
    }

    /// The number of a record, which determines its input and answer.
    pub fn record_number(job: usize, index: u64) -> u64 {
        RECORD_NUMBERS * (1 + job as u64) + index
    }
}

/// The number of dispatchers if none is stated.
fn two() -> usize {
    2
}

impl Loss {
    /// Whether clients notice nothing only if a standby takes over.
    pub fn needs_standby(self) -> bool {
        matches!(self, Self::LeaderKilled | Self::LeaderFrozen)
    }

    /// All losses.
    pub const ALL: [Self; 5] = [
        Self::WorkerReset,
        Self::WorkerKilled,
        Self::WorkerFrozen,
        Self::LeaderKilled,
        Self::LeaderFrozen,
    ];
}

impl Cut {
    /// All disturbances.
    pub const ALL: [Self; 4] = [Self::Resets, Self::Held, Self::Lost, Self::AnswersLost];
}

impl Kind {
    /// Whether a process may fail to start during it: it finds a store away, or no room on its disk.
    pub fn is_of_store(&self) -> bool {
        match self {
            Self::Kill { .. } | Self::Freeze { .. } | Self::DiskFull => false,
            Self::Wire { end, .. } => *end != End::Others,
            _ => true,
        }
    }

    /// Whether there is no room for stored objects during it.
    pub fn is_of_disk(&self) -> bool {
        matches!(self, Self::DiskFull | Self::DiskFilled)
    }

    /// What it affects.
    pub fn target(&self) -> String {
        let name = match self {
            Self::Kill { process } | Self::Freeze { process } => process,
            Self::RedisSilent | Self::RedisEmptied | Self::RedisKilled => "redis",
            Self::PostgresSilent | Self::PostgresKilled => "postgres",
            Self::S3Slow | Self::S3Silent | Self::S3Refuses => "s3",
            Self::DiskFull | Self::DiskFilled => "disk",
            Self::Wire { process, end, .. } => return format!("{process} to {end:?}"),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_and_another_seed_another() {
        assert_eq!(Plan::draw(5, None), Plan::draw(5, None));
        assert_ne!(Plan::draw(5, None), Plan::draw(6, None));
        let plan = Plan::draw(5, Some(9000));
        assert_eq!(
            plan.arrivals(9000),
            Plan::draw(5, Some(9000)).arrivals(9000)
        );
    }

    #[test]
    fn seeds_reach_every_setting_and_every_fault() {
        let plans: Vec<Plan> = (0..300).map(|seed| Plan::draw(seed, None)).collect();
        let count = |test: &dyn Fn(&Plan) -> bool| plans.iter().filter(|it| test(it)).count();
        assert!(count(&|plan| plan.setting == Setting::One) > 50);
        assert!(count(&|plan| plan.front_ends().len() == 2) > 50);
        let lone = |plan: &Plan| matches!(plan.setting, Setting::Fleet { dispatchers: 1, .. });
        assert!(count(&lone) > 50);
        let is_kept = |plan: &Plan| !plan.losses.iter().any(|loss| loss.needs_standby());
        assert!(plans.iter().filter(|plan| lone(plan)).all(is_kept));
        for kind in Plan::draw(0, None).kinds().iter().chain(&[Kind::DiskFull]) {
            let has = |plan: &Plan| plan.faults.iter().any(|fault| fault.kind == *kind);
            assert!(count(&has) > 0, "{kind:?} never happens");
        }
        for (wanted, what) in End::ALL
            .into_iter()
            .flat_map(|it| Cut::ALL.map(|cut| (it, cut)))
        {
            let is_it = |kind: &Kind| matches!(kind, Kind::Wire { end, cut, .. } if (*end, *cut) == (wanted, what));
            let has = |plan: &Plan| plan.faults.iter().any(|fault| is_it(&fault.kind));
            assert!(
                count(&has) > 0,
                "{what:?} of a wire to {wanted:?} never happens"
            );
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        for seed in 0..50 {
            let plan = Plan::draw(seed, None);
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        }
    }

    #[test]
    fn nothing_breaks_twice_at_once_and_all_heals_in_time() {
        for seed in 0..300 {
            let plan = Plan::draw(seed, None);
            for (at, fault) in plan.faults.iter().enumerate() {
                let end = fault.at_ms + fault.for_ms;
                assert!(end <= plan.length_ms + 1, "seed {seed}: {fault:?}");
                let same = |it: &&Fault| it.kind.target() == fault.kind.target();
                let later = plan.faults[at + 1..].iter().find(same);
                assert!(later.is_none_or(|it| it.at_ms > end), "seed {seed}");
            }
        }
    }
}
