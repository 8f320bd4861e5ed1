//! A child process, from its start to the reason of its end.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use sextant_types::Code;

use crate::spawner;

/// Most bytes of a child's standard error that are kept.
const MOST_STDERR_BYTES: u64 = 4 << 10;

/// A child's allocator takes this part of the child's memory limit at a time, within bounds.
const RESERVES: u64 = 16;
const LEAST_RESERVE_BYTES: u64 = 64 << 20;
const MOST_RESERVE_BYTES: u64 = 1 << 30;

/// The unit of times in `/proc`, for programs of every architecture.
const TICK_MS: u64 = 10;

/// Signals that say why a process ended.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
/// A file would have exceeded the limit: a file in memory, since others cannot be written.
const SIGXFSZ: i32 = 25;

/// Variables that libraries read, in the service and its children: how long mimalloc keeps unused pages, milliseconds,
/// and large blocks ten times as long; and that ONNX Runtime reports no usage to its maker.
pub const LIBRARIES: [(&str, &str); 2] = [
    ("MIMALLOC_PURGE_DELAY", "1000"),
    ("ORT_DISABLE_TELEMETRY", "1"),
];

/// The program of a child: this one with other arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its memory limit, for the explanation of its end, bytes.
    pub memory_bytes: u64,
}

/// A running child.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
    stderr: thread::JoinHandle<String>,
    memory_bytes: u64,
}

/// How a child ended.
#[derive(Debug, Clone)]
pub struct Death {
    signal: Option<i32>,
    said: String,
    memory_bytes: u64,
}

// === impl Program ===

impl Program {
    /// Starts it with these as its standard input and output. It has no environment, so no secrets.
    ///
    /// # Errors
    /// If the system cannot start it.
    pub fn start(&self, stdin: Stdio, stdout: Stdio) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(LIBRARIES)
            .env("MIMALLOC_ARENA_RESERVE", self.reserve_bytes().to_string())
            .current_dir("/")
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped());
        let mut child = spawner::run(move || command.spawn())?;
        let Some(stderr) = child.stderr.take() else {
            return Err(io::Error::other("it has no standard error"));
        };
        Ok(Child {
            stderr: thread::spawn(move || first_words(stderr)),
            child,
            memory_bytes: self.memory_bytes,
        })
    }

    /// Bytes that the allocator requests from the system at a time. All of them count as address space, used or not.
    fn reserve_bytes(&self) -> u64 {
        (self.memory_bytes / RESERVES).clamp(LEAST_RESERVE_BYTES, MOST_RESERVE_BYTES)
    }
}

fn first_words(mut stderr: impl Read) -> String {
    let mut said = Vec::new();
    let mut first = stderr.by_ref().take(MOST_STDERR_BYTES);
    first.read_to_end(&mut said).ok();
    // Unread output would block the child.
    io::copy(&mut stderr, &mut io::sink()).ok();
    String::from_utf8_lossy(&said).into_owned()
}

// === impl Child ===

impl Child {
    /// Its standard input and output if they are pipes; only once.
    pub fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Time that its threads have computed so far, together; `None` if the system does not report it.
    pub fn computed(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        computed_of(&stat)
    }

    /// Its id in the system.
    pub fn number(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, without waiting for its end.
    pub fn kill(&mut self) {
        // It may have ended.
        self.child.kill().ok();
    }

    /// Kills it unless it has ended by itself.
    pub fn end(mut self) -> Death {
        let ended = self.child.try_wait().ok().flatten();
        if ended.is_none() {
            self.kill();
        }
        let status = ended.or_else(|| self.child.wait().ok());
        self.death(status)
    }

    /// Waits until it has ended, by itself or killed.
    pub fn wait(mut self) -> Death {
        let status = self.child.wait().ok();
        self.death(status)
    }

    fn death(self, status: Option<ExitStatus>) -> Death {
        Death {
            signal: status.and_then(|status| status.signal()),
            said: self.stderr.join().unwrap_or_default(),
            memory_bytes: self.memory_bytes,
        }
    }
}

/// The times in `/proc/{id}/stat`, as user and as system.
fn computed_of(stat: &str) -> Option<Duration> {
    // The name before them, in brackets, may have blanks and brackets.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let ticks = ticks()?.saturating_add(ticks()?);
    Some(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
}

// === impl Death ===

impl Death {
    /// Whether it was killed: by its parent, by the system for lack of memory, or by an administrator.
    pub fn was_killed(&self) -> bool {
        self.signal == Some(SIGKILL) && !self.ran_out_of_memory()
    }

    /// The beginning of its standard error.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Whether an allocation was refused.
    pub fn ran_out_of_memory(&self) -> bool {
        self.said.contains("memory allocation of") || self.said.contains("bad_alloc")
    }

    /// Why it ended in the middle of its work. The system kills a process that takes the machine's last memory.
    pub fn explain(&self) -> (Code, String) {
        if self.ran_out_of_memory() || matches!(self.signal, Some(SIGKILL | SIGXFSZ)) {
            let memory = self.memory_bytes;
            let text = format!("it needs more than the `{memory}` bytes that it may take");
            return (Code::MemoryExceeded, text);
        }
        let text = format!("the engine's process ended by {}", self.how());
        (Code::EngineCrashed, text)
    }

    /// How it ended: a signal, an exit.
    pub fn how(&self) -> String {
        match self.signal {
            Some(SIGABRT) if self.said.contains("stack") => "a stack overflow".to_owned(),
            Some(signal) => format!("signal {signal}"),
            None => "an exit".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_whatever_the_name_is() {
        let stat = "7 (a ) b) R 1 7 7 0 -1 4194560 90 0 0 0 150 25 0 0 20 0 1 0 100 200 300";
        assert_eq!(computed_of(stat), Some(Duration::from_millis(1750)));
        assert_eq!(computed_of("7 (a"), None);
        assert_eq!(computed_of("7 (a) R 1 2"), None);
    }
}
