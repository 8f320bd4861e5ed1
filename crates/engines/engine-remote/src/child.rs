//! A runtime as a child process, in a process group of its own.
//!
//! A thread waits for the process's end. It notices the end without reaping the process, kills the
//! rest of the group, and only then reaps the process. Until then no other process can have its id,
//! which is also the group's, so that no signal reaches another process.
//!
//! The child's standard input is a pipe that nothing is written to. It closes when this process
//! ends in whatever way; a runtime that waits for that ends with it.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read},
    process::{self, ChildStdin, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::{
    config::{PORT, Program},
    text,
};

/// Longest line of a child's output, bytes; more goes into the next.
const MAX_LINE_BYTES: u64 = 4096;

/// Last lines that the explanation of an end repeats.
const LAST_LINES: usize = 4;

/// How long a child may take to end when it is asked to.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long the system may take to end a killed process.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// How long the last output of an ended child is waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A running child. It is ended when dropped.
pub(crate) struct Child {
    id: Pid,
    watched: Arc<ChildState>,
    _stdin: Option<ChildStdin>,
}

/// The state that the threads around a child share.
struct ChildState {
    name: &'static str,
    state: Mutex<State>,
    ended: Condvar,
    said: Mutex<VecDeque<String>>,
}

#[derive(Default)]
struct State {
    /// Whether the process was reaped, so that the id may belong to another one.
    reaped: bool,
    /// How it ended.
    end: Option<String>,
}

// === impl Child ===

impl Child {
    /// Starts the program; `{port}` becomes `port`.
    pub(crate) fn start(name: &'static str, program: &Program, port: u16) -> io::Result<Self> {
        let mut process = command(program, port)?.spawn()?;
        let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the system gave no process id"))?;
        let watched = Arc::new(ChildState {
            name,
            state: Mutex::default(),
            ended: Condvar::new(),
            said: Mutex::default(),
        });
        let child = Self {
            id,
            _stdin: process.stdin.take(),
            watched: Arc::clone(&watched),
        };
        let (open, closed) = mpsc::channel();
        let outputs = [
            process.stdout.take().map(Output::Stdout),
            process.stderr.take().map(Output::Stderr),
        ];
        for output in outputs.into_iter().flatten() {
            let (watched, open) = (Arc::clone(&watched), open.clone());
            thread::Builder::new()
                .name(format!("{name}-output"))
                .spawn(move || {
                    watched.forward(output);
                    drop(open);
                })?;
        }
        drop(open);
        thread::Builder::new()
            .name(format!("{name}-watch"))
            .spawn(move || watched.watch(process, id, &closed))?;
        Ok(child)
    }

    pub(crate) fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// How it ended, if it ends within `time`.
    pub(crate) fn wait_end(&self, time: Duration) -> Option<String> {
        let deadline = Instant::now() + time;
        let mut state = self.watched.state.lock();
        while state.end.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.watched.ended.wait_for(&mut state, left);
        }
        state.end.clone()
    }

    /// Kills it and its group at once.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        if self.wait_end(KILL_GRACE).is_none() {
            let (name, process) = (self.watched.name, self.id());
            tracing::error!(runtime = name, process, "a killed runtime does not end");
        }
    }

    /// Asks it to end, and kills it if it does not.
    pub(crate) fn stop(&self) {
        self.signal(Signal::TERM);
        if self.wait_end(STOP_GRACE).is_none() {
            self.kill();
        }
    }

    fn signal(&self, signal: Signal) {
        let state = self.watched.state.lock();
        if !state.reaped {
            // Fails only if the group has no process left.
            kill_process_group(self.id, signal).ok();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

fn command(program: &Program, port: u16) -> io::Result<Command> {
    use std::os::unix::process::CommandExt;
    let port = port.to_string();
    let filled = |text: &String| text.replace(PORT, &port);
    let mut words = program.command.iter().map(filled);
    let first = words
        .next()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(first);
    command.args(words);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SEXTANT_") {
            command.env_remove(name);
        }
    }
    for (name, value) in &program.environment {
        command.env(name, filled(value));
    }
    if let Some(folder) = &program.folder {
        command.current_dir(folder);
    }
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

// === impl ChildState ===

impl ChildState {
    /// Waits for the end, which it then records.
    fn watch(&self, mut process: process::Child, id: Pid, closed: &mpsc::Receiver<()>) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(id), options) {}
        let status = {
            let mut state = self.state.lock();
            kill_process_group(id, Signal::KILL).ok();
            let status = process.wait();
            state.reaped = true;
            status
        };
        // The threads with the other ends drop them when the outputs close.
        closed.recv_timeout(LAST_WORDS).ok();
        let ended = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let said: Vec<String> = self.said.lock().iter().cloned().collect();
        let end = match said.is_empty() {
            true => ended,
            false => format!("{ended}, its last words: {}", said.join(" | ")),
        };
        tracing::info!(runtime = self.name, "the runtime's process ended: {end}");
        self.state.lock().end = Some(text::shorten(&end));
        self.ended.notify_all();
    }

    /// Logs the child's output, line by line, until it closes the pipe. Standard output often has a
    /// line for every request.
    fn forward(&self, output: Output) {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..)) {
                return;
            }
            let text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
            let text = text.trim_end();
            if text.is_empty() {
                continue;
            }
            match &reader.get_ref() {
                Output::Stdout(_) => tracing::debug!(runtime = self.name, "{text}"),
                Output::Stderr(_) => tracing::info!(runtime = self.name, "{text}"),
            }
            let mut said = self.said.lock();
            if said.len() == LAST_LINES {
                said.pop_front();
            }
            said.push_back(text::shorten(text));
        }
    }
}

enum Output {
    Stdout(process::ChildStdout),
    Stderr(process::ChildStderr),
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(pipe) => pipe.read(buffer),
            Self::Stderr(pipe) => pipe.read(buffer),
        }
    }
}
