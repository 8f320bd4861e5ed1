//! Runs engines on users' files in a process of their own.
//!
//! A file may crash an engine, take all memory, or never end. In a child process this ends one measurement only: the
//! child has a limit of memory, and it is killed if it shows no progress for too long. The child also adapts and
//! quantises models and reads validation sets, because that takes many times the memory of the bytes. The service
//! passes sets on piece by piece, and takes back the files that were made. The first order of a registration starts the
//! child; it serves the later orders, and keeps the validation set and the last artefact, until it or the registration
//! ends. A large model has a child for each measurement.
//!
//! The child is this program with other arguments. It reads orders from its standard input and writes answers to its
//! standard output ([`protocol`]). It has no environment, so no secrets, and it dies with its parent.

use std::{
    io::{BufReader, Write},
    process::{ChildStdin, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use sextant_engine::{ModelFile, ScratchFolder};
use sextant_isolation::{Child, Death, Program, frame};
use sextant_types::{Code, Digest, Metric, Signature};

use crate::{
    measure::{self, Cancel, MeasureError, Measurement, Refusal},
    rewriting::{RewriteFailure, RewriteOutput, most_made},
    validation::{Invalid, Labels, RecordShapes, ScoringTarget},
};

mod answers;
mod patience;
pub(crate) mod protocol;
mod set;

pub(crate) use set::{SetFile, Source};

use answers::{Reply, next};
use patience::Patience;

use protocol::{Action, Answer, Head, Order, SetSummary};
use set::PourFailure;

/// Time between two checks whether the measurement is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Reading a model may take this part of the memory limit of the measuring process.
const READERS_SHARE: u64 = 4;

/// How engines are isolated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// The program: this one, with arguments which make it call [`crate::serve_measurements`].
    pub program: Program,
    /// The engines of the child, by name. Other engines are measured in this process.
    pub engines: Vec<String>,
    /// Longest time that one load or one run may compute.
    pub longest_step: Duration,
    /// Longest time of all work for one configuration.
    pub longest_configuration: Duration,
}

/// The place of a registration's child.
#[derive(Clone, Default)]
pub(crate) struct Seat(Arc<Mutex<Option<RunningChild>>>);

/// A child, and what it has been sent.
struct RunningChild {
    child: Child,
    orders: ChildStdin,
    answers: mpsc::Receiver<Reply>,
    /// Most bytes of files that are accepted with the next answer.
    most_made: Arc<AtomicU64>,
    /// The validation set that it has.
    set: Option<SetAsRead>,
    artefact: Option<Digest>,
    /// The only folder that it may read, with the files of a large model.
    folder: Option<ScratchFolder>,
}

/// A task for the child.
pub(crate) struct Task {
    pub(crate) order: Order,
    /// The validation set; it is sent if the child has not read it.
    pub(crate) validation: SetFile,
    /// The artefact's file: empty if it is the one that the child was sent last, `None` if the order concerns the set
    /// alone.
    pub(crate) artefact: Option<ModelFile>,
    /// Files beside the artefact.
    pub(crate) beside: Vec<Bytes>,
}

/// A validation set as a child has read it: the model that it was read for, and what is scored.
#[derive(Debug, Clone, PartialEq)]
struct SetAsRead {
    file: Digest,
    signature: Signature,
    metric: Metric,
    scored: ScoringTarget,
}

// === impl Seat ===

impl Seat {
    /// Whether this child has read the validation set for this order and was sent the order's artefact last. The caller
    /// need not hold them in memory then.
    pub(crate) fn has(&self, order: &Order, validation: &Digest) -> bool {
        let running = self.0.lock();
        running.as_ref().is_some_and(|it| {
            it.artefact == Some(order.artefact) && it.set == Some(order.reads(validation))
        })
    }
}

// === impl Isolation ===

impl Isolation {
    pub(crate) fn has(&self, engine: &str) -> bool {
        self.engines.iter().any(|it| it == engine)
    }

    /// Measures in the seat's child, which is started if there is none. Blocks.
    pub(crate) fn measure(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<Measurement, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Measured(measurement) => Ok(*measurement),
            Answer::Pruned(reason) => Err(MeasureError::Pruned(reason)),
            _ => Err(off_topic()),
        }
    }

    /// Rewrites a model in the child. Blocks.
    pub(crate) fn rewrite<T: DeserializeOwned>(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<Result<RewriteOutput<T>, RewriteFailure>, MeasureError> {
        let sent = task.artefact.as_ref().map(|file| file.graph.clone());
        let Reply { answer, files } = self.ask(seat, task, cancel)?;
        let Answer::Rewritten(rewritten) = answer else {
            return Err(off_topic());
        };
        let made = rewritten.made(files, &sent.unwrap_or_default());
        made.ok_or_else(off_topic)
    }

    /// Finds, in the child, the outputs by which batches differ from their records. Blocks.
    pub(crate) fn batches(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<Vec<usize>, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Batches(differ) => Ok(differ),
            _ => Err(off_topic()),
        }
    }

    /// Finds, in the child, the shapes of a file's outputs for each batch. Blocks.
    pub(crate) fn shapes(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Vec<u64>>>, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Shapes(shapes) => Ok(shapes),
            _ => Err(off_topic()),
        }
    }

    /// Finds, in the child, a file's answers to the records. Blocks.
    pub(crate) fn answers(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<Vec<Labels>, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Answers(labels) => Ok(labels),
            _ => Err(off_topic()),
        }
    }

    /// Reads a model in the child, and refuses it if it takes so much memory that this process should not read it.
    /// Blocks.
    pub(crate) fn weigh(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<(), MeasureError> {
        let most = self.program.memory_bytes / READERS_SHARE;
        match self.run(seat, task, cancel)? {
            Answer::Weighed(bytes) if bytes > most => Err(refused(
                Code::MemoryExceeded,
                format!(
                    "reading the model takes `{bytes}` bytes, and at most `{most}` may be taken for that, a quarter of \
                     `variants.memory_bytes`: it has very many nodes for its size"
                ),
            )),
            Answer::Weighed(_) => Ok(()),
            _ => Err(off_topic()),
        }
    }

    /// Reads a validation set in the child, and checks it against the model. Blocks.
    pub(crate) fn check(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<SetSummary, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Checked(checked) => Ok(checked),
            _ => Err(off_topic()),
        }
    }

    /// Finds, in the child, the shapes of a validation set's records from the file itself. Blocks.
    pub(crate) fn record_shapes(
        &self,
        task: Task,
        cancel: &Cancel,
    ) -> Result<RecordShapes, MeasureError> {
        // This child reads the file for no model, so no other order can use it.
        match self.run(&Seat::default(), task, cancel)? {
            Answer::RecordShapes(shapes) => Ok(shapes),
            _ => Err(off_topic()),
        }
    }

    fn run(&self, seat: &Seat, task: Task, cancel: &Cancel) -> Result<Answer, MeasureError> {
        self.ask(seat, task, cancel).map(|reply| reply.answer)
    }

    fn ask(&self, seat: &Seat, task: Task, cancel: &Cancel) -> Result<Reply, MeasureError> {
        let mut seat = seat.0.lock();
        let weights = task.artefact.as_ref().and_then(|it| it.weights.as_ref());
        let is_large = weights.is_some();
        let wanted = Some(task.order.reads(&task.validation.digest));
        let takes_set = task.order.action.takes_set();
        let fits_set = |it: &RunningChild| !takes_set || it.set.is_none() || it.set == wanted;
        let fits = |it: &RunningChild| fits_set(it) && !is_large;
        let mut running = match seat.take() {
            Some(running) if fits(&running) => running,
            other => {
                if let Some(other) = other {
                    other.end();
                }
                self.start(&task)?
            }
        };
        let told = match running.tell(&task, cancel) {
            Ok(()) => true,
            // If the child took no more bytes, the way it ended says why.
            Err(PourFailure::NobodyTakes(error)) => {
                tracing::debug!(%error, "the process that measures takes no orders");
                false
            }
            Err(PourFailure::Source(error)) => {
                running.end();
                return Err(error);
            }
        };
        let action = task.order.action.name();
        // The child has the files now.
        drop(task);
        match running.wait(self, told, cancel) {
            Wait::Answered(Reply { answer, files }) => {
                let is_unfit = matches!(answer, Answer::Unfit { .. });
                match is_large || is_unfit {
                    // The child ends: memory that its allocator keeps would add up, and a child that could not read the
                    // set has none.
                    true => drop(running.end()),
                    false => *seat = Some(running),
                }
                match answer {
                    Answer::Refused(refused) => Err(MeasureError::Refused(refused)),
                    Answer::Unfit { message, of_shapes } => {
                        Err(measure::unfit(Invalid::Told { message, of_shapes }))
                    }
                    answer => Ok(Reply { answer, files }),
                }
            }
            Wait::Cancelled => {
                running.end();
                Err(MeasureError::Cancelled)
            }
            Wait::TooLong(late) => {
                running.end();
                Err(self.too_long(action, late))
            }
            Wait::Ended => {
                let (code, text) = running.end().explain();
                Err(refused(code, format!("{action}: {text}")))
            }
        }
    }

    fn too_long(&self, action: &str, late: Overrun) -> MeasureError {
        let (what, limit, setting) = match late {
            Overrun::Step => (action, self.longest_step, "longest_step_ms"),
            Overrun::Configuration => (
                "the configuration",
                self.longest_configuration,
                "longest_configuration_ms",
            ),
        };
        let seconds = limit.as_secs_f64();
        let text = format!(
            "{what} took longer than the `{seconds}` s that it may take (`variants.{setting}`)"
        );
        refused(Code::TimeExceeded, text)
    }

    fn start(&self, task: &Task) -> Result<RunningChild, MeasureError> {
        let failed = |error: std::io::Error| {
            let program = self.program.program.display();
            refused(
                Code::Internal,
                format!("`{program}` cannot be started to measure the model: {error}"),
            )
        };
        let weights = task.artefact.as_ref().and_then(|it| it.weights.as_ref());
        let folder = match weights {
            Some(weights) => Some(weights.sibling().map_err(failed)?),
            None => None,
        };
        let mut program = self.program.clone();
        if let Some(folder) = &folder {
            program.arguments.push("--folder".into());
            program.arguments.push(folder.path().into());
        }
        let child = program.start(Stdio::piped(), Stdio::piped());
        let mut child = child.map_err(failed)?;
        let Some((orders, stdout)) = child.pipes() else {
            return Err(failed(std::io::Error::other("it has no pipes")));
        };
        let (sender, answers) = mpsc::channel();
        let most_made = Arc::new(AtomicU64::new(0));
        let most = Arc::clone(&most_made);
        thread::spawn(move || {
            let mut from = BufReader::new(stdout);
            // A child that sends more than an answer may have is not read any further.
            while let Some(reply) = next(&mut from, &most) {
                if sender.send(reply).is_err() {
                    return;
                }
            }
        });
        Ok(RunningChild {
            child,
            orders,
            answers,
            most_made,
            set: None,
            artefact: None,
            folder,
        })
    }
}

fn off_topic() -> MeasureError {
    let text = "the process that measures answers something else";
    refused(Code::Internal, text.to_owned())
}

fn refused(code: Code, message: String) -> MeasureError {
    MeasureError::Refused(Refusal {
        code,
        message,
        is_final: false,
        may_pass: false,
    })
}

// === impl Task ===

impl Task {
    /// Most bytes of files that the task may make.
    fn most_made(&self) -> u64 {
        match self.order.action {
            Action::Rewrite(_) | Action::Calibrate(_) => {
                let file = self.artefact.as_ref();
                file.map_or(0, |file| most_made(file, &self.beside))
            }
            _ => 0,
        }
    }
}

// === impl Order ===

impl Order {
    /// The set as a child reads it for this order.
    fn reads(&self, file: &Digest) -> SetAsRead {
        SetAsRead {
            file: *file,
            signature: self.signature.clone(),
            metric: self.metric,
            scored: self.scored.clone(),
        }
    }
}

// === impl RunningChild ===

/// How waiting for an answer ended.
enum Wait {
    Answered(Reply),
    Ended,
    TooLong(Overrun),
    Cancelled,
}

/// The time limit that was exceeded.
#[derive(Debug, Clone, Copy)]
enum Overrun {
    Step,
    Configuration,
}

impl RunningChild {
    fn tell(&mut self, task: &Task, cancel: &Cancel) -> Result<(), PourFailure> {
        let artefact = task.order.artefact;
        let is_new = self.artefact != Some(artefact);
        let file = task.artefact.as_ref().filter(|_| is_new);
        let sends_set = self.set.is_none() && task.order.action.takes_set();
        let weights = match (file.and_then(|it| it.weights.as_ref()), &self.folder) {
            (Some(weights), Some(folder)) => folder.show(weights).map(Some),
            _ => Ok(None),
        };
        let head = Head {
            order: task.order.clone(),
            validation_bytes: sends_set.then_some(task.validation.bytes),
            artefact_bytes: file.map(|it| it.graph.len() as u64),
            weights: weights.map_err(PourFailure::NobodyTakes)?,
            beside_bytes: task.beside.iter().map(|it| it.len() as u64).collect(),
        };
        self.most_made.store(task.most_made(), Ordering::Release);
        frame::write(&mut self.orders, &head, &[]).map_err(PourFailure::NobodyTakes)?;
        if sends_set {
            task.validation.pour(&mut self.orders, cancel)?;
            self.set = Some(task.order.reads(&task.validation.digest));
        }
        if let Some(file) = file {
            let sent = self.orders.write_all(&file.graph);
            sent.map_err(PourFailure::NobodyTakes)?;
            self.artefact = Some(artefact);
        }
        for file in &task.beside {
            let sent = self.orders.write_all(file);
            sent.map_err(PourFailure::NobodyTakes)?;
        }
        self.orders.flush().map_err(PourFailure::NobodyTakes)
    }

    fn wait(&self, isolation: &Isolation, told: bool, cancel: &Cancel) -> Wait {
        let begin = |limit| Patience::begin(limit, Instant::now(), self.child.computed());
        let all = begin(isolation.longest_configuration);
        let mut step = begin(isolation.longest_step);
        loop {
            if cancel.is_cancelled() {
                return Wait::Cancelled;
            }
            match self.answers.recv_timeout(LOOK) {
                Ok(Reply {
                    answer: Answer::Progress,
                    ..
                }) => step = begin(isolation.longest_step),
                Ok(reply) => return Wait::Answered(reply),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Wait::Ended,
                Err(mpsc::RecvTimeoutError::Timeout) if !told => return Wait::Ended,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let (now, computed) = (Instant::now(), self.child.computed());
            if step.is_over(now, computed) {
                return Wait::TooLong(Overrun::Step);
            }
            if all.is_over(now, computed) {
                return Wait::TooLong(Overrun::Configuration);
            }
        }
    }

    /// Kills the child unless it has ended, and returns how it ended.
    fn end(self) -> Death {
        drop(self.orders);
        self.child.end()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The last handle ends the child.
        if let Some(seat) = Arc::get_mut(&mut self.0)
            && let Some(running) = seat.get_mut().take()
        {
            running.end();
        }
    }
}
