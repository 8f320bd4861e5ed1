//! What happened in a run, in order: kept in memory for the check, and as JSON lines for people.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::Plan;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, milliseconds after the beginning of the load; what came before has 0.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The first entry: what is to be done.
    Planned {
        /// All of it.
        plan: Plan,
    },
    /// A query is sent.
    Asked {
        /// Its number.
        query: u64,
        /// By whom, by its place in the plan.
        application: usize,
        /// To which process.
        front_end: String,
    },
    /// It was answered.
    Answered {
        /// Its number.
        query: u64,
        /// With these values.
        scores: Vec<f32>,
    },
    /// It was refused.
    Refused {
        /// Its number.
        query: u64,
        /// HTTP status.
        status: u16,
        /// The code of the problem document; empty where there was none.
        code: String,
    },
    /// Its connection broke, or no answer came within the client's patience.
    Broken {
        /// Its number.
        query: u64,
        /// What the client saw.
        cause: String,
    },
    /// Its client hung up before there was an outcome.
    GivenUp {
        /// Its number.
        query: u64,
    },
    /// What the service said to a query that no model takes.
    Misasked {
        /// HTTP status.
        status: u16,
        /// The code of the problem document; empty where there was none.
        code: String,
    },
    /// A fault of the plan begins.
    FaultBegan {
        /// Its place there.
        fault: usize,
    },
    /// It is over; what it did to the service may not be.
    FaultEnded {
        /// Its place in the plan.
        fault: usize,
    },
    /// This machine does not permit a fault of the plan, which is left out.
    FaultLeftOut {
        /// Its place in the plan.
        fault: usize,
        /// Why.
        reason: String,
    },
    /// How busy the machine is.
    Pace {
        /// The part of the time that a thread with work to do waited for a processor, from 0 on, below 1.
        waited: f64,
    },
    /// A process was killed on purpose, or is being asked to end.
    Down {
        /// Which.
        process: String,
    },
    /// A process listens again.
    Up {
        /// Which.
        process: String,
    },
    /// A process did not start; it is started again.
    NotStarted {
        /// Which.
        process: String,
        /// What it said.
        cause: String,
    },
    /// A process ended that nobody killed.
    Died {
        /// Which.
        process: String,
    },
    /// Resident memory of a process.
    Memory {
        /// Which.
        process: String,
        /// How much.
        bytes: u64,
    },
    /// A process logged a panic.
    Panicked {
        /// Which.
        process: String,
        /// What it logged.
        line: String,
    },
    /// A process ended when it was asked to.
    Stopped {
        /// Which.
        process: String,
        /// Whether without an error.
        is_success: bool,
        /// What it said.
        cause: String,
    },
    /// A job was accepted.
    Submitted {
        /// Its place in the plan.
        job: usize,
    },
    /// A job was submitted again under its name.
    Repeated {
        /// Its place in the plan.
        job: usize,
        /// Whether word for word.
        is_same: bool,
        /// HTTP status of the answer.
        status: u16,
    },
    /// A webhook was told of the end of a job, and took it.
    Told {
        /// The job's id.
        job: String,
    },
    /// What became of a model that was registered amid the faults.
    Learnt {
        /// Its name.
        model: String,
        /// `ready`, `failed`, or `unanswered` where it is ready and queries to it are not answered.
        state: String,
        /// The code of its error; empty where there is none.
        code: String,
    },
    /// A job has ended.
    JobOver {
        /// Its place in the plan.
        job: usize,
        /// `succeeded`, `failed`, ..
        state: String,
        /// The code of its error; empty where there is none.
        code: String,
    },
    /// A line of a job's output.
    Record {
        /// The job's place in the plan.
        job: usize,
        /// Of which record it is.
        index: u64,
        /// The answer; empty where there is an error.
        scores: Vec<f32>,
    },
    /// A registration was accepted.
    Registered {
        /// Its place in the plan.
        registration: usize,
    },
    /// It came to its end.
    RegistrationOver {
        /// Its place in the plan.
        registration: usize,
        /// `ready`, `failed`, or `missing` where nobody knows the model.
        state: String,
        /// The code of the failure; empty where there is none.
        code: String,
        /// What the model answers to the inputs of number 0; empty where it is not ready.
        scores: Vec<f32>,
    },
    /// A change, or something that belongs to one, was refused.
    ChangeRefused {
        /// What was asked for.
        what: String,
        /// HTTP status.
        status: u16,
        /// The code of the problem document; empty where there was none.
        code: String,
    },
    /// A change was acknowledged.
    Changed {
        /// What it is called in the audit record.
        action: String,
        /// What was changed.
        subject: String,
    },
    /// An entry of the audit record.
    Audited {
        /// What was done.
        action: String,
        /// To what.
        subject: String,
    },
    /// Every fault is over, every process was started again.
    Healed,
    /// A front end is ready and has answered every application.
    Ready {
        /// Which.
        process: String,
    },
    /// A front end was not ready in time.
    NotReady {
        /// Which.
        process: String,
        /// What it said last.
        cause: String,
    },
    /// From now on nothing goes wrong.
    Calm,
    /// Nothing goes wrong, and a dispatcher does not see all workers, or others than there are.
    Seen {
        /// Which.
        process: String,
        /// How many it sees.
        workers: u64,
    },
    /// The load is over.
    Rest,
    /// Something is lost while a few clients go on.
    LossBegan {
        /// Its place in the plan.
        loss: usize,
        /// Which process.
        process: String,
    },
    /// It is there again.
    LossEnded {
        /// Its place in the plan.
        loss: usize,
    },
    /// Something that is not as it was before the load, long after its end.
    Unsettled {
        /// Where.
        process: String,
        /// What.
        what: String,
    },
    /// How a front end behaved after it was asked to end.
    Parted {
        /// Which.
        process: String,
        /// Whether it still said that it is ready.
        is_ready: bool,
        /// Queries that it had begun and whose connections broke.
        broken: usize,
    },
    /// A backup was restored elsewhere.
    Restored {
        /// What had been there and is not.
        missing: Vec<String>,
    },
    /// A service was started over a store that is not that of its registry, and told to sweep it.
    Estranged {
        /// Whether it said so when it was asked whether it is ready.
        is_warned: bool,
        /// What the sweep was refused with; empty where it was not.
        code: String,
        /// Files that the store has lost.
        lost: usize,
    },
    /// The only registration of an application came to its end behind those of another.
    Queued {
        /// The state of its job.
        state: String,
        /// After how long.
        waited_ms: u64,
        /// How many of the others had come to their end.
        passed_by: usize,
    },
    /// Something else that must not be.
    Trouble {
        /// What.
        cause: String,
    },
}

/// The history of a run under way.
#[derive(Debug)]
pub struct History {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    begun: Option<Instant>,
    entries: Vec<Entry>,
    file: File,
}

impl History {
    /// An empty one that is also written to `path`.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        let inner = Inner {
            begun: None,
            entries: Vec::new(),
            file: File::create(path)?,
        };
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    /// Times count from now on.
    pub fn begin(&self, now: Instant) {
        self.lock().begun = Some(now);
    }

    /// Keeps what has just happened.
    pub fn note(&self, event: Event) {
        let mut inner = self.lock();
        let at_ms = inner.begun.map_or(0, |begun| begun.elapsed().as_millis());
        let entry = Entry {
            at_ms: at_ms as u64,
            event,
        };
        if let Ok(line) = serde_json::to_string(&entry) {
            // The file is for people; the check has the entries.
            writeln!(inner.file, "{line}").ok();
        }
        inner.entries.push(entry);
    }

    /// All so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a history that was written to a file.
pub fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let entry = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1))
    };
    text.lines().enumerate().map(entry).collect()
}
