//! Engines in a process of their own while they run what users bring.
//!
//! A file may crash an engine, take all memory, or never end. In a child process that is the end of one
//! measurement: the child has a limit of memory, and one that shows no progress for too long is killed.
//! It is started by the first measurement of a registration and serves the later ones, which find the
//! validation set and the last artefact there, until it ends or the registration does.
//!
//! The child is this program with other arguments. Orders go to its standard input, answers come from its
//! standard output ([`protocol`]); it has no environment, so no secrets, and it dies with its parent.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_onnx::quantize::Ranges;
use sextant_types::{Code, Digest};

use crate::measure::{Cancel, MeasureError, Measurement, Refused};

pub(crate) mod protocol;

use protocol::{Answer, Head, Order};

/// Time between two looks at whether the measurement is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Most of what a child said on standard error that is kept.
const MOST_STDERR_BYTES: u64 = 4 << 10;

/// Signals that say why a process ended.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

/// How engines are isolated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// What is run: this program.
    pub program: PathBuf,
    /// With these arguments, which make it call [`crate::serve_measurements`].
    pub arguments: Vec<OsString>,
    /// The engines that the child has, by name. Others are measured in this process.
    pub engines: Vec<String>,
    /// Memory that the child is told to keep to, for the reason of a failure, bytes.
    pub memory_bytes: u64,
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
    stderr: thread::JoinHandle<String>,
    validation: Digest,
    artefact: Option<Digest>,
}

/// What is to be measured.
pub(crate) struct Task {
    pub(crate) order: Order,
    /// The validation set's file.
    pub(crate) validation: (Digest, Bytes),
    /// The artefact's file.
    pub(crate) artefact: (Digest, Bytes),
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
        task: &Task,
        cancel: &Cancel,
    ) -> Result<Measurement, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Measured(measurement) => Ok(*measurement),
            _ => Err(off_topic()),
        }
    }

    /// Calibrates there; why not, where that is so. Blocks.
    pub(crate) fn calibrate(
        &self,
        seat: &Seat,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<Ranges, MeasureError> {
        match self.run(seat, task, cancel)? {
            Answer::Calibrated(Ok(ranges)) => Ok(ranges),
            Answer::Calibrated(Err(reason)) => Err(refused(Code::UnsupportedOperator, reason)),
            _ => Err(off_topic()),
        }
    }

    fn run(&self, seat: &Seat, task: &Task, cancel: &Cancel) -> Result<Answer, MeasureError> {
        let mut seat = seat.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |running: &Running| running.validation == task.validation.0;
        let mut running = match seat.take().filter(fits) {
            Some(running) => running,
            None => self.start(task)?,
        };
        // What it cannot be told shows in how it has ended.
        let told = running.tell(task).is_ok();
        match running.wait(self.longest_step, told, cancel) {
            Wait::Answered(answer) => {
                *seat = Some(running);
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
                let (status, said) = running.end();
                Err(self.explain(status, &said))
            }
        }
    }

    fn start(&self, task: &Task) -> Result<Running, MeasureError> {
        let failed = |error: std::io::Error| {
            let program = self.program.display();
            refused(
                Code::Internal,
                format!("`{program}` cannot be started to measure the model: {error}"),
            )
        };
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            // As in the service: an arena for each thread would keep what the thread has freed.
            .env("MALLOC_ARENA_MAX", "2")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(orders), Some(stdout), Some(mut stderr)) = pipes else {
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
        let stderr = thread::spawn(move || {
            let mut said = Vec::new();
            let mut first = stderr.by_ref().take(MOST_STDERR_BYTES);
            first.read_to_end(&mut said).ok();
            // What is not read would stop it.
            std::io::copy(&mut stderr, &mut std::io::sink()).ok();
            String::from_utf8_lossy(&said).into_owned()
        });
        Ok(Running {
            child,
            orders,
            answers,
            stderr,
            validation: task.validation.0,
            artefact: None,
        })
    }

    /// Why a child ended in the middle of a measurement.
    fn explain(&self, status: Option<ExitStatus>, said: &str) -> MeasureError {
        let signal = status.and_then(|status| status.signal());
        let out_of_memory = said.contains("memory allocation of") || said.contains("bad_alloc");
        if out_of_memory || signal == Some(SIGKILL) {
            let memory = self.memory_bytes;
            let text = format!("it needs more than the `{memory}` bytes that it may take");
            return refused(Code::MemoryExceeded, text);
        }
        let how = match signal {
            Some(SIGABRT) if said.contains("stack") => "a stack overflow".to_owned(),
            Some(signal) => format!("signal {signal}"),
            None => "an exit".to_owned(),
        };
        refused(
            Code::EngineCrashed,
            format!("the engine's process ended by {how}"),
        )
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
        let (digest, bytes) = &task.artefact;
        let is_known = self.artefact == Some(*digest);
        let is_first = self.artefact.is_none();
        self.artefact = Some(*digest);
        let head = Head {
            order: task.order.clone(),
            validation_bytes: is_first.then_some(task.validation.1.len() as u64),
            artefact_bytes: (!is_known).then_some(bytes.len() as u64),
        };
        let blobs = [
            is_first.then_some(&task.validation.1),
            (!is_known).then_some(bytes),
        ];
        protocol::write(&mut self.orders, &head, blobs)
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

    /// Ends it; how it ended, and what it said.
    fn end(mut self) -> (Option<ExitStatus>, String) {
        drop(self.orders);
        // It has ended, or is to.
        let ended = self.child.try_wait().ok().flatten();
        if ended.is_none() {
            self.child.kill().ok();
        }
        let status = ended.or_else(|| self.child.wait().ok());
        (status, self.stderr.join().unwrap_or_default())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The last one ends the child.
        if let Some(seat) = Arc::get_mut(&mut self.0)
            && let Some(running) = seat
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
        {
            running.end();
        }
    }
}
