//! The events of a run, in order: in memory for the check, and as JSON lines for people.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::Plan;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it happened, milliseconds since the start of the load; 0 for earlier events.
    pub at_ms: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The first entry: the plan.
    Planned {
        /// The whole plan.
        plan: Plan,
    },
    /// A query is sent.
    Asked {
        /// Its number.
        query: u64,
        /// The application, by its place in the plan.
        application: usize,
        /// The process that was asked.
        front_end: String,
    },
    /// The query was answered.
    Answered {
        /// Its number.
        query: u64,
        /// The values of the answer.
        scores: Vec<f32>,
    },
    /// The query was refused.
    Refused {
        /// Its number.
        query: u64,
        /// HTTP status.
        status: u16,
        /// The code of the problem document; empty where there was none.
        code: String,
    },
    /// The query's connection broke, or no answer came within the client's patience.
    Broken {
        /// Its number.
        query: u64,
        /// The client's error.
        cause: String,
    },
    /// The query's client closed the connection before there was an outcome.
    GivenUp {
        /// Its number.
        query: u64,
    },
    /// The answer to a query that no model accepts.
    Misasked {
        /// HTTP status.
        status: u16,
        /// The code of the problem document; empty where there was none.
        code: String,
    },
    /// A fault of the plan begins.
    FaultBegan {
        /// Its place in the plan.
        fault: usize,
    },
    /// The fault is over; its effects may not be.
    FaultEnded {
        /// Its place in the plan.
        fault: usize,
    },
    /// This machine does not permit a fault of the plan, which is skipped.
    FaultLeftOut {
        /// Its place in the plan.
        fault: usize,
        /// The reason.
        reason: String,
    },
    /// How busy the machine is.
    Pace {
        /// The part of the time that a ready thread waited for a processor, from 0 to below 1.
        waited: f64,
    },
    /// A process was killed on purpose, or is being asked to end.
    Down {
        /// The process.
        process: String,
    },
    /// A process listens again.
    Up {
        /// The process.
        process: String,
    },
    /// A process did not start; it is started again.
    NotStarted {
        /// The process.
        process: String,
        /// Its message.
        cause: String,
    },
    /// A process ended that was not killed.
    Died {
        /// The process.
        process: String,
    },
    /// Resident memory of a process.
    Memory {
        /// The process.
        process: String,
        /// The number of bytes.
        bytes: u64,
    },
    /// A process logged a panic.
    Panicked {
        /// The process.
        process: String,
        /// The logged line.
        line: String,
    },
    /// A process ended when it was asked to.
    Stopped {
        /// The process.
        process: String,
        /// Whether it ended without an error.
        is_success: bool,
        /// Its message.
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
        /// Whether the content was the same.
        is_same: bool,
        /// HTTP status of the answer.
        status: u16,
    },
    /// A webhook was told of the end of a job, and accepted the message.
    Told {
        /// The job's id.
        job: String,
    },
    /// The result of a registration during the faults.
    Learnt {
        /// Its name.
        model: String,
        /// `ready`, `failed`, or `unanswered` if it is ready and queries to it are not answered.
        state: String,
        /// The code of its error; empty if there is none.
        code: String,
    },
    /// A job has ended.
    JobOver {
        /// Its place in the plan.
        job: usize,
        /// `succeeded`, `failed`, ..
        state: String,
        /// The code of its error; empty if there is none.
        code: String,
    },
    /// A line of a job's output.
    Record {
        /// The job's place in the plan.
        job: usize,
        /// The number of the record.
        index: u64,
        /// The answer; empty if there is an error.
        scores: Vec<f32>,
    },
    /// A registration was accepted.
    Registered {
        /// Its place in the plan.
        registration: usize,
    },
    /// A registration has ended.
    RegistrationOver {
        /// Its place in the plan.
        registration: usize,
        /// `ready`, `failed`, or `missing` if the model is not known.
        state: String,
        /// The code of the failure; empty if there is none.
        code: String,
        /// The model's answer to the inputs of number 0; empty if it is not ready.
        scores: Vec<f32>,
    },
    /// A change, or a part of one, was refused.
    ChangeRefused {
        /// The requested change.
        what: String,
        /// HTTP status.
        status: u16,
        /// The code of the problem document; empty where there was none.
        code: String,
    },
    /// A change was acknowledged.
    Changed {
        /// Its action in the audit record.
        action: String,
        /// Its subject in the audit record.
        subject: String,
    },
    /// An entry of the audit record.
    Audited {
        /// The action.
        action: String,
        /// The subject.
        subject: String,
    },
    /// Every fault is over, and every process was started again.
    Healed,
    /// A front end is ready and has answered every application.
    Ready {
        /// The process.
        process: String,
    },
    /// A front end was not ready in time.
    NotReady {
        /// The process.
        process: String,
        /// Its last message.
        cause: String,
    },
    /// From now on nothing goes wrong.
    Calm,
    /// Nothing goes wrong, and a dispatcher does not see exactly the existing workers.
    Seen {
        /// The process.
        process: String,
        /// The number of workers that it sees.
        workers: u64,
    },
    /// The load is over.
    Rest,
    /// A process is lost or disturbed while a few clients go on.
    LossBegan {
        /// Its place in the plan.
        loss: usize,
        /// The process.
        process: String,
    },
    /// The process is back.
    LossEnded {
        /// Its place in the plan.
        loss: usize,
    },
    /// Something that is not as it was before the load, long after the load's end.
    Unsettled {
        /// The process.
        process: String,
        /// What it is.
        what: String,
    },
    /// The behaviour of a front end after it was asked to end.
    Parted {
        /// The process.
        process: String,
        /// Whether it still reported that it is ready.
        is_ready: bool,
        /// Number of queries that it had begun and whose connections broke.
        broken: usize,
    },
    /// A backup was restored in another place.
    Restored {
        /// What existed before and is missing.
        missing: Vec<String>,
    },
    /// A service was started with a store that does not belong to its registry, and was told to sweep it.
    Estranged {
        /// Whether its readiness check reported the mismatch.
        is_warned: bool,
        /// The code with which the sweep was refused; empty if it was not.
        code: String,
        /// Number of files that the store has lost.
        lost: usize,
    },
    /// The only registration of an application ended after waiting for those of another one.
    Queued {
        /// The state of its job.
        state: String,
        /// How long it waited, milliseconds.
        waited_ms: u64,
        /// Number of the other registrations that had ended.
        passed_by: usize,
    },
    /// Any other error.
    Trouble {
        /// What it is.
        cause: String,
    },
}

/// The history of a running run.
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
    /// An empty history that is also written to `path`.
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

    /// Sets the origin of times.
    pub fn begin(&self, now: Instant) {
        self.lock().begun = Some(now);
    }

    /// Records an event at the present time.
    pub fn note(&self, event: Event) {
        let mut inner = self.lock();
        let at_ms = inner.begun.map_or(0, |begun| begun.elapsed().as_millis());
        let entry = Entry {
            at_ms: at_ms as u64,
            event,
        };
        if let Ok(line) = serde_json::to_string(&entry) {
            // The file is for people; the check uses the entries in memory.
            writeln!(inner.file, "{line}").ok();
        }
        inner.entries.push(entry);
    }

    /// All entries so far.
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
