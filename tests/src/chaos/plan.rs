//! What is done in one run: a setting, a load, a schedule of faults, all of a seed.

use serde::{Deserialize, Serialize};

use super::worth::Draw;
use crate::fleet::End;

mod draw;

/// The process of the setting with one.
pub const LONE: &str = "sextant";
/// The application of the models that are registered amid the faults.
pub const LATE: &str = "late";
/// Bytes that the artefact store may hold where there is one process.
pub const STORAGE_BYTES: u64 = 32 << 20;
/// Bytes of the disk with the data of all processes: more than they need.
pub const DISK_BYTES: u64 = 64 << 20;
/// Records of the first job have numbers from here on, those of the next one as many later.
pub const RECORD_NUMBERS: u64 = 1 << 20;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What everything else follows from, together with the length.
    pub seed: u64,
    /// How long the load meets faults, milliseconds.
    pub length_ms: u64,
    /// What runs.
    pub setting: Setting,
    /// Who asks.
    pub applications: Vec<Application>,
    /// Offline jobs.
    pub jobs: Vec<Job>,
    /// Models that are registered meanwhile.
    #[serde(default)]
    pub registrations: Vec<Registration>,
    /// Which part of the devices' work fails.
    #[serde(default)]
    pub failing: FailureRates,
    /// What goes wrong, by time.
    pub faults: Vec<Fault>,
    /// How long the registry is away when a job is under way after the load, milliseconds.
    #[serde(default)]
    pub registry_away_ms: u64,
    /// What is lost in the end, one after another, while a few clients go on.
    #[serde(default)]
    pub losses: Vec<Loss>,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// One process with everything in it.
    One,
    /// A process for each role, over Redis, PostgreSQL and S3.
    Fleet {
        /// Processes that decide about queries: one leads, the others stand by. Two in a history that does not say it.
        #[serde(default = "two")]
        dispatchers: usize,
        /// Processes that answer HTTP.
        front_ends: usize,
        /// Processes with a device.
        workers: usize,
        /// A process whose clock is wrong, and by how much, as libfaketime has it.
        wrong_clock: Option<(String, String)>,
    },
}

/// An application with one emulated model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// Its name, and that of its model.
    pub name: String,
    /// Time of the model for each row, milliseconds.
    pub alpha_ms: u64,
    /// Time of the model for each batch, milliseconds.
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
    /// Who answers, by its place in [`Plan::applications`].
    pub application: usize,
    /// When it is submitted, milliseconds; when the load is over if left out.
    pub at_ms: Option<u64>,
    /// Records of its input.
    pub records: u64,
}

/// A model that is registered amid the faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// When it is sent, milliseconds; when the load is over if left out.
    pub at_ms: Option<u64>,
}

/// Which part of the devices' work fails, in hundredths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRates {
    /// Of all loads.
    pub loads: u64,
    /// Of all batches.
    pub batches: u64,
}

/// Something that goes wrong for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When it begins, milliseconds.
    pub at_ms: u64,
    /// How long it lasts, milliseconds.
    pub for_ms: u64,
    /// What it is.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What can go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Kind {
    /// A process ends as by a power cut and is started again.
    Kill {
        /// Which.
        process: String,
    },
    /// A process stands still.
    Freeze {
        /// Which.
        process: String,
    },
    /// Redis answers nobody; connections stay.
    RedisSilent,
    /// Redis forgets everything.
    RedisEmptied,
    /// Redis ends and is started again with its data.
    RedisKilled,
    /// PostgreSQL answers nobody; connections stay.
    PostgresSilent,
    /// PostgreSQL crashes and is started again.
    PostgresKilled,
    /// S3 answers late.
    S3Slow,
    /// S3 answers nobody; connections stay.
    S3Silent,
    /// S3 refuses every second request.
    S3Refuses,
    /// The artefact store can take nothing more: it holds what it may.
    DiskFull,
    /// The disk with the data of every process has no room.
    DiskFilled,
    /// A wire of a process is out of order.
    Wire {
        /// Whose.
        process: String,
        /// To what.
        end: End,
        /// What happens to it.
        cut: Cut,
    },
}

/// A loss that nobody who asks may notice, but by waiting a little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// All connections to a worker are reset at once.
    WorkerReset,
    /// A worker ends as by a power cut and is started again after a while.
    WorkerKilled,
    /// A worker stands still for longer than its lease, while the autoscaler's connections to Redis are reset again
    /// and again.
    WorkerFrozen,
    /// The leading dispatcher ends as by a power cut and is started again after a while.
    LeaderKilled,
    /// The leading dispatcher stands still for longer than its lease.
    LeaderFrozen,
}

/// What can happen to a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Every connection is reset, again and again.
    Resets,
    /// Bytes come when it is over.
    Held,
    /// Bytes are lost; connections that lost some are reset when it is over.
    Lost,
    /// The same, for bytes to the process from the stores, or from it to the others.
    AnswersLost,
}

/// One query of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// When it is sent, milliseconds.
    pub at_ms: f64,
    /// By whom, by its place in [`Plan::applications`].
    pub application: usize,
    /// To which front end, by its place in [`Plan::front_ends`].
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

    /// Queries of this time, in order of their times; their places are their numbers.
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

    /// The number of a record, for its input and answer.
    pub fn record_number(job: usize, index: u64) -> u64 {
        RECORD_NUMBERS * (1 + job as u64) + index
    }
}

/// Dispatchers where nothing is said of their number.
fn two() -> usize {
    2
}

impl Loss {
    /// Whether somebody must take over for nobody to notice.
    pub fn needs_standby(self) -> bool {
        matches!(self, Self::LeaderKilled | Self::LeaderFrozen)
    }

    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::WorkerReset,
        Self::WorkerKilled,
        Self::WorkerFrozen,
        Self::LeaderKilled,
        Self::LeaderFrozen,
    ];
}

impl Cut {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Resets, Self::Held, Self::Lost, Self::AnswersLost];
}

impl Kind {
    /// Whether a process may then not start: it finds a store away, or no room on its disk.
    pub fn is_of_store(&self) -> bool {
        match self {
            Self::Kill { .. } | Self::Freeze { .. } | Self::DiskFull => false,
            Self::Wire { end, .. } => *end != End::Others,
            _ => true,
        }
    }

    /// Whether there is then no room for what is stored.
    pub fn is_of_disk(&self) -> bool {
        matches!(self, Self::DiskFull | Self::DiskFilled)
    }

    /// What it happens to.
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
