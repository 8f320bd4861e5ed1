//! What is done in one run: a setting, a load, a schedule of faults, all of a seed.

use serde::{Deserialize, Serialize};

use super::worth::Draw;

/// The process of the setting with one.
pub const LONE: &str = "sextant";
/// Bytes that the artefact store may hold where there is one process.
pub const STORAGE_BYTES: u64 = 32 << 20;
/// Records of the first job have numbers from here on, those of the next one as many later.
pub const RECORD_NUMBERS: u64 = 1 << 20;
/// Time without faults at the beginning, milliseconds.
const HEAD_START_MS: u64 = 2000;

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
    /// What goes wrong, by time.
    pub faults: Vec<Fault>,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// One process with everything in it.
    One,
    /// A process for each role, over Redis, PostgreSQL and S3.
    Fleet {
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
    /// When it is submitted, milliseconds.
    pub at_ms: u64,
    /// Records of its input.
    pub records: u64,
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
    /// The artefact store can take nothing more.
    DiskFull,
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
    /// The run of a seed. `length_ms` is how long the load meets faults: 10 to 20 s when left out.
    pub fn draw(seed: u64, length_ms: Option<u64>) -> Self {
        let length_ms = length_ms.unwrap_or_else(|| Draw::new(seed, 0).within(10_000..20_000));
        let mut plan = Self {
            seed,
            length_ms,
            setting: setting(&mut Draw::new(seed, 1)),
            applications: applications(&mut Draw::new(seed, 2)),
            jobs: Vec::new(),
            faults: Vec::new(),
        };
        plan.jobs = plan.draw_jobs(&mut Draw::new(seed, 3));
        plan.faults = plan.draw_faults(&mut Draw::new(seed, 4));
        plan
    }

    /// Every process, in the order in which they are started.
    pub fn processes(&self) -> Vec<String> {
        let Setting::Fleet { workers, .. } = &self.setting else {
            return vec![LONE.to_owned()];
        };
        let alone = ["dispatcher", "dispatcher-2", "autoscaler", "variant-gen"];
        let workers = (1..=*workers).map(|number| format!("worker-{number}"));
        let names = alone.map(str::to_owned).into_iter().chain(workers);
        names.chain(self.front_ends()).collect()
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

    fn draw_jobs(&self, draw: &mut Draw) -> Vec<Job> {
        let job = |number| {
            let application = draw.within(0..self.applications.len() as u64) as usize;
            Job {
                name: format!("job-{number}"),
                application,
                at_ms: draw.within(0..self.length_ms / 2),
                // Some seconds of a device, whichever model answers.
                records: draw.within(500..4000) / self.applications[application].alpha_ms.max(8),
            }
        };
        (1..=2).map(job).collect()
    }

    /// Faults one after another with some overlap; no two at once of the same thing.
    fn draw_faults(&self, draw: &mut Draw) -> Vec<Fault> {
        let kinds = self.kinds();
        let mut faults: Vec<Fault> = Vec::new();
        let mut at_ms = HEAD_START_MS;
        while at_ms < self.length_ms {
            let kind = draw.of(&kinds).clone();
            let most = (self.length_ms - at_ms).min(5000) + 1;
            let for_ms = draw.within(300.min(most - 1)..most);
            let is_free = |other: &Fault| {
                other.kind.target() != kind.target() || other.at_ms + other.for_ms < at_ms
            };
            if faults.iter().all(is_free) {
                faults.push(Fault {
                    at_ms,
                    for_ms,
                    kind,
                });
            }
            at_ms += draw.within(500..3500);
        }
        faults
    }

    /// What can go wrong in the setting; processes more often than stores.
    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for process in self.processes() {
            kinds.push(Kind::Freeze {
                process: process.clone(),
            });
            kinds.push(Kind::Kill { process });
        }
        match self.setting {
            Setting::One => kinds.push(Kind::DiskFull),
            Setting::Fleet { .. } => kinds.extend([
                Kind::RedisSilent,
                Kind::RedisEmptied,
                Kind::RedisKilled,
                Kind::PostgresSilent,
                Kind::PostgresKilled,
                Kind::S3Slow,
                Kind::S3Silent,
                Kind::S3Refuses,
            ]),
        }
        kinds
    }
}

impl Kind {
    /// Whether processes then find a store away.
    pub fn is_of_store(&self) -> bool {
        matches!(self.target(), "redis" | "postgres" | "s3")
    }

    /// What it happens to.
    pub fn target(&self) -> &str {
        match self {
            Self::Kill { process } | Self::Freeze { process } => process,
            Self::RedisSilent | Self::RedisEmptied | Self::RedisKilled => "redis",
            Self::PostgresSilent | Self::PostgresKilled => "postgres",
            Self::S3Slow | Self::S3Silent | Self::S3Refuses => "s3",
            Self::DiskFull => "disk",
        }
    }
}

fn setting(draw: &mut Draw) -> Setting {
    if draw.within(0..3) == 0 {
        return Setting::One;
    }
    let workers = draw.within(2..4) as usize;
    // S3 takes no request whose time is off by more than a quarter of an hour.
    let clocks = ["+10m", "-5m", "+3s"];
    let wrong = ["worker-1", "dispatcher", "dispatcher-2", "autoscaler"];
    let wrong_clock = (draw.within(0..3) == 0).then(|| {
        (
            (*draw.of(&wrong)).to_owned(),
            (*draw.of(&clocks)).to_owned(),
        )
    });
    Setting::Fleet {
        front_ends: draw.within(1..3) as usize,
        workers,
        wrong_clock,
    }
}

/// A modest application, one that asks for more than there is, and sometimes another modest one.
fn applications(draw: &mut Draw) -> Vec<Application> {
    let modest = |name: &str, draw: &mut Draw| Application {
        name: name.to_owned(),
        alpha_ms: draw.within(2..10),
        beta_ms: draw.within(2..20),
        rate: draw.within(4..9) as f64,
        latency_ms: [None, Some(3000), Some(5000)][draw.within(0..3) as usize],
        is_modest: true,
    };
    let mut all = vec![modest("quiet", draw)];
    if draw.within(0..2) == 0 {
        all.push(modest("calm", draw));
    }
    let alpha_ms = draw.within(30..60);
    all.push(Application {
        name: "loud".to_owned(),
        alpha_ms,
        beta_ms: draw.within(10..40),
        // A device answers at most one row in this time; there are up to three.
        rate: 1000.0 / alpha_ms as f64 * draw.within(1..6) as f64,
        latency_ms: Some(draw.within(400..2000)),
        is_modest: false,
    });
    all
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
        for kind in Plan::draw(0, None).kinds().iter().chain(&[Kind::DiskFull]) {
            let has = |plan: &Plan| plan.faults.iter().any(|fault| fault.kind == *kind);
            assert!(count(&has) > 0, "{kind:?} never happens");
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
