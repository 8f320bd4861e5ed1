//! The real process: its start, its signals and its end.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::binary;

/// Longest time that a process may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that can be started.
#[derive(Debug)]
pub struct Launch {
    /// The command to run.
    pub command: Command,
    /// The file to which its log is appended.
    pub log: PathBuf,
}

/// A running `sextant serve`.
#[derive(Debug)]
pub struct Process {
    child: Child,
    address: String,
    /// Closed when the process closes its standard output at its end.
    lines: Mutex<Receiver<String>>,
}

// === impl Launch ===

impl Launch {
    /// Starts it and waits until it prints the address on which it listens. Fails with the reason
    /// if it does not.
    pub fn start(self) -> Result<Process, String> {
        Process::try_start(self.command, &self.log)
    }
}

// === impl Process ===

impl Process {
    /// Starts it and waits until it prints the address on which it listens. Its log is appended to
    /// `log`.
    pub fn start(command: Command, log: &Path) -> Self {
        let log = log.to_owned();
        let started = Launch { command, log }.start();
        started.unwrap_or_else(|reason| {
            panic!("the service did not start: {reason}; its log has the cause")
        })
    }

    fn try_start(mut command: Command, log: &Path) -> Result<Self, String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log opens");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary can be started");
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut process = Self {
            child,
            address: String::new(),
            lines: Mutex::new(lines),
        };
        process.address = process.listening()?;
        Ok(process)
    }

    /// The address that the service prints once it answers.
    fn listening(&mut self) -> Result<String, String> {
        loop {
            match self.next_line() {
                Ok(line) => {
                    if let Some((_, address)) = line.split_once("listening on ") {
                        return Ok(address.trim().to_owned());
                    }
                }
                Err(reason) => {
                    self.child.kill().ok();
                    let status = self.child.wait();
                    return Err(format!("{reason}, {status:?}"));
                }
            }
        }
    }

    /// `http://127.0.0.1:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, unless it has ended already.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process has an id"), signal).ok();
    }

    /// Ends it like a power cut.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    fn next_line(&mut self) -> Result<String, RecvTimeoutError> {
        let lines = self.lines.get_mut().expect("nobody panics with the lines");
        lines.recv_timeout(PATIENCE)
    }

    /// Asks it to end, waits for it, and returns its exit status.
    pub fn stop(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits until it ends, and returns its exit status.
    pub fn ended(mut self) -> ExitStatus {
        loop {
            match self.next_line() {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill().ok();
                    self.child.wait().ok();
                    panic!("the service did not end within {PATIENCE:?} of having to");
                }
            }
        }
        self.child.wait().expect("a child can be waited for")
    }
}

/// Ids of the processes that a process has started with a subcommand.
pub fn children_of(process: u32, subcommand: &str) -> Vec<u32> {
    let parent = format!("PPid:\t{process}");
    let processes = fs::read_dir("/proc").expect("Linux has /proc");
    let children = processes.filter_map(|process| {
        let process = process.ok()?;
        let id = process.file_name().to_str()?.parse().ok()?;
        // A process that ends meanwhile does not count.
        let status = fs::read_to_string(process.path().join("status")).ok()?;
        let arguments = fs::read(process.path().join("cmdline")).ok()?;
        let is_named = arguments.split(|byte| *byte == 0).nth(1) == Some(subcommand.as_bytes());
        (is_named && status.lines().any(|line| line == parent)).then_some(id)
    });
    let mut children: Vec<u32> = children.collect();
    children.sort_unstable();
    children
}

/// The binary, without the service's settings in the environment of the tests.
pub fn command() -> Command {
    command_behind(&[])
}

/// The same behind a program that runs it.
pub fn command_behind(wrap: &[String]) -> Command {
    command_of(binary::sextant(), wrap)
}

/// The same with another binary.
pub(crate) fn command_of(binary: &Path, wrap: &[String]) -> Command {
    let mut command = match wrap {
        [] => Command::new(binary),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary);
            command
        }
    };
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("SEXTANT_") && name != "SEXTANT_CACHE" {
            command.env_remove(name);
        }
    }
    command
}
