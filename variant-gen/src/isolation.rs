//! Engines in a process of their own while they run what users bring.
//!
//! A file may crash an engine, take all memory, or never end. In a child process that is the end of one
//! measurement: the child has a limit of memory, and one that shows no progress for too long is killed.
//! It is started by the first measurement of a registration and serves the later ones, which find the
//! validation set and the last artefact there, until it ends or the registration does. Large models have one for each
//! measurement.
//!
//! The child is this program with other arguments. Orders go to its standard input, answers come from its
//! standard output ([`protocol`]); it has no environment, so no secrets, and it dies with its parent.

use std::{
    io::{BufRead, BufReader},
    process::{ChildStdin, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{ModelFile, ScratchFolder};
use sextant_isolation::{Child, Death, Program, frame};
use sextant_types::{Code, Digest};

use crate::{
    generator::calibrate::Calibrated,
    measure::{Cancel, MeasureError, Measurement, Refused},
    validation::Labels,
};

pub(crate) mod protocol;

use protocol::{Answer, Head, Order};

/// Time between two looks at whether the measurement is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How engines are isolated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// What is run: this program, with arguments which make it call [`crate::serve_measurements`].
    pub program: Program,
    /// The engines that the child has, by name. Others are measured in this process.
    pub engines: Vec<String>,
    /// Longest time of one load or one run.
    pub longest_step: Duration,
}

/// A place for the child of a registration.
#[derive(Clone, Default)]
pub(crate) struct Seat(Arc<Mutex<Option<Running>>>);

/// A child and what it has been sent.
struct Running {
    child: Child,
    orders: ChildStdin,
    answers: mpsc::Receiver<Answer>,
    validation: Digest,
    artefact: Option<Digest>,
    /// The one folder that it may read, with the files of a large model.
    folder: Option<ScratchFolder>,
}

/// What is to be measured.
pub(crate) struct Task {
    pub(crate) order: Order,
    /// The validation set's file; empty where the child has it.
    pub(crate) validation: (Digest, Bytes),
    /// The artefact's file; empty where the child was sent it last.
    pub(crate) artefact: (Digest, ModelFile),
}

// === impl Seat ===

impl Seat {
    /// Whether the child on it has read this validation set. Nobody need hold what it has.
    pub(crate) fn has_validation(&self, digest: &Digest) -> bool {
        let running = self.0.lock();
        running
            .as_ref()
            .is_some_and(|it| it.validation == *digest && it.artefact.is_some())
    }

    /// Whether the artefact that it was sent last is this one.
    pub(crate) fn has_artefact(&self, digest: &Digest) -> bool {
        let running = self.0.lock();
        running
            .as_ref()
            .is_some_and(|it| it.artefact == Some(*digest))
    }
}

// === impl Isolation ===

impl Isolation {
    pub(crate) fn has(&self, engine: &str) -> bool {
        self.engines.iter().any(|it| it == engine)
    }

    /// Measures in the child on this seat, which is started where none is. Blocks.
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

    /// Calibrates there; why not, where that is so. Blocks.
    pub(crate) fn calibrate(
        &self,
        seat: &Seat,
        task: Task,
        cancel: &Cancel,
    ) -> Result<Calibrated, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Calibrated(Ok(calibrated)) => Ok(calibrated),
            Answer::Calibrated(Err(reason)) => Err(refused(Code::UnsupportedOperator, reason)),
            _ => Err(off_topic()),
        }
    }

    /// The outputs by which batches differ there from their records. Blocks.
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

    /// The shapes that a file answers with there, for each batch. Blocks.
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

    /// What a file answers there to the records. Blocks.
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

    fn run(&self, seat: &Seat, task: Task, cancel: &Cancel) -> Result<Answer, MeasureError> {
        let mut seat = seat.0.lock();
        let is_large = task.artefact.1.weights.is_some();
        let fits = |running: &Running| running.validation == task.validation.0 && !is_large;
        let mut running = match seat.take().filter(fits) {
            Some(running) => running,
            None => self.start(&task)?,
        };
        // What it cannot be told shows in how it has ended.
        let told = running.tell(&task).is_ok();
        // It has the files now.
        drop(task);
        match running.wait(self.longest_step, told, cancel) {
            Wait::Answered(answer) => {
                match is_large {
                    // What its allocator keeps would add up.
                    true => drop(running.end()),
                    false => *seat = Some(running),
                }
                match answer {
                    Answer::Refused(refused) => Err(MeasureError::Refused(refused)),
                    answer => Ok(answer),
                }
            }
            Wait::Cancelled => {
                running.end();
                Err(MeasureError::Cancelled)
            }
            Wait::Silent => {
                running.end();
                let seconds = self.longest_step.as_secs_f64();
                Err(refused(
                    Code::TimeExceeded,
                    format!("a load or a run took longer than the `{seconds}` s that it may take"),
                ))
            }
            Wait::Ended => {
                let (code, text) = running.end().explain();
                Err(refused(code, text))
            }
        }
    }

    fn start(&self, task: &Task) -> Result<Running, MeasureError> {
        let failed = |error: std::io::Error| {
            let program = self.program.program.display();
            refused(
                Code::Internal,
                format!("`{program}` cannot be started to measure the model: {error}"),
            )
        };
        let folder = match &task.artefact.1.weights {
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
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let answer = serde_json::from_str(&line);
                if answer.is_ok_and(|answer| sender.send(answer).is_err()) {
                    return;
                }
            }
        });
        Ok(Running {
            child,
            orders,
            answers,
            validation: task.validation.0,
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
    MeasureError::Refused(Refused {
        code,
        message,
        is_final: false,
        may_pass: false,
    })
}

// === impl Running ===

/// How waiting for an answer ended.
enum Wait {
    Answered(Answer),
    Ended,
    Silent,
    Cancelled,
}

impl Running {
    fn tell(&mut self, task: &Task) -> std::io::Result<()> {
        let (digest, file) = &task.artefact;
        let bytes = &file.graph;
        let is_known = self.artefact == Some(*digest);
        let is_first = self.artefact.is_none();
        self.artefact = Some(*digest);
        let head = Head {
            order: task.order.clone(),
            validation_bytes: is_first.then_some(task.validation.1.len() as u64),
            artefact_bytes: (!is_known).then_some(bytes.len() as u64),
            weights: match (&file.weights, &self.folder) {
                (Some(weights), Some(folder)) if !is_known => Some(folder.show(weights)?),
                _ => None,
            },
        };
        let files = [
            is_first.then_some(&task.validation.1),
            (!is_known).then_some(bytes),
        ];
        let files: Vec<Bytes> = files.into_iter().flatten().cloned().collect();
        frame::write(&mut self.orders, &head, &files)
    }

    fn wait(&self, longest_step: Duration, told: bool, cancel: &Cancel) -> Wait {
        let mut heard = Instant::now();
        loop {
            if cancel.is_cancelled() {
                return Wait::Cancelled;
            }
            match self.answers.recv_timeout(LOOK) {
                Ok(Answer::Progress) => heard = Instant::now(),
                Ok(answer) => return Wait::Answered(answer),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Wait::Ended,
                Err(mpsc::RecvTimeoutError::Timeout) if !told => return Wait::Ended,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if heard.elapsed() > longest_step {
                return Wait::Silent;
            }
        }
    }

    /// Ends it, unless it has ended; how it has.
    fn end(self) -> Death {
        drop(self.orders);
        self.child.end()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The last one ends the child.
        if let Some(seat) = Arc::get_mut(&mut self.0)
            && let Some(running) = seat.get_mut().take()
        {
            running.end();
        }
    }
}
