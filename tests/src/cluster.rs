//! A running service: the real process, started, killed, started again.

use std::{
    fs,
    fs::File,
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
use tempfile::TempDir;

use crate::{Api, binary};

/// How long a process may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the log must never hold.
const SCANDALS: [&str; 2] = ["panicked at", "\"level\":\"ERROR\""];

/// An error of whoever sent the model, which its job tells too.
const NO_SCANDAL: &str = "\"message\":\"registration failed\"";

/// How a service is started.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `key=value` pairs for `--set`.
    pub set: Vec<String>,
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// Whether errors in the log are expected: a test that provokes faults.
    pub faults: bool,
}

/// One service with a data folder of its own. Stopped when dropped; it must then end by itself,
/// without a panic in its log and without a temporary file in its store.
#[derive(Debug)]
pub struct TestCluster {
    folder: TempDir,
    settings: Settings,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    address: String,
    /// Closed when the process has closed its standard output, which it does at its end.
    lines: Mutex<Receiver<String>>,
}

impl TestCluster {
    /// Starts a service with an empty data folder and short measurements.
    pub fn start(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::over(folder, settings)
    }

    /// Starts a service whose data is a copy of `data`.
    pub fn start_with(data: &Path, settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy(data, &folder.path().join("data"));
        Self::over(folder, settings)
    }

    fn over(folder: TempDir, settings: Settings) -> Self {
        let mut cluster = Self {
            folder,
            settings,
            process: None,
        };
        cluster.launch();
        cluster
    }

    /// A client of the service; one for each test, because connections belong to a runtime.
    pub fn api(&self) -> Api {
        Api::new(&self.process().address)
    }

    /// `http://127.0.0.1:port`.
    pub fn address(&self) -> &str {
        &self.process().address
    }

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs the binary's client against the service and returns what it said.
    pub fn client(&self, arguments: &[&str]) -> std::process::Output {
        command()
            .args(["--server", self.address()])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the binary can be started")
    }

    /// Ends the process as a power cut would.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the service runs");
        process.child.kill().expect("a child can be killed");
        process.child.wait().expect("a child can be waited for");
    }

    /// Starts again over the same data.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "the service runs already");
        let mut command = command();
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--data-dir",
            ])
            .arg(self.data());
        for pair in SHORT_MEASUREMENTS
            .into_iter()
            .chain(self.settings.set.iter().map(|s| &**s))
        {
            command.args(["--set", pair]);
        }
        command.args(&self.settings.arguments);
        self.process = Some(Process::start(command, &self.log_file()));
    }

    /// Asks the service to end, waits for it, and returns how it ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.take().expect("the service runs").stop()
    }

    /// Stops the service and keeps its data in `folder`.
    pub fn into_data(mut self, folder: &Path) -> PathBuf {
        let status = self.stop();
        assert!(status.success(), "the service ended with {status}");
        copy(&self.data(), folder);
        folder.to_owned()
    }

    /// Everything that was logged so far, by all lives of the service.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Resident memory of the process, bytes.
    pub fn resident_bytes(&self) -> u64 {
        let file = format!("/proc/{}/status", self.process().child.id());
        let status = fs::read_to_string(file).expect("the service runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes: Option<u64> =
            line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kibibytes.expect("the kernel knows its memory") * 1024
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the service runs")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("sextant.log")
    }

    fn inspect_what_is_left(&self) {
        let log = self.log();
        let is_scandal = |line: &&str| {
            SCANDALS.iter().any(|word| line.contains(word)) && !line.contains(NO_SCANDAL)
        };
        let scandals: Vec<&str> = log
            .lines()
            .filter(|line| !self.settings.faults && is_scandal(line))
            .collect();
        assert!(
            scandals.is_empty(),
            "the service logged:\n{}",
            scandals.join("\n")
        );
        let left = files(&self.data().join("objects/tmp"));
        assert!(left.is_empty(), "temporary files are left: {left:?}");
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let status = self.process.take().map(Process::stop);
        if thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the end of the service's log ({status:?}), newest first");
            eprintln!("{}", tail.join("\n"));
            return;
        }
        if let Some(status) = status {
            assert!(status.success(), "the service ended with {status}");
        }
        self.inspect_what_is_left();
    }
}

/// Measurements so short that a registration takes moments; their quality does not matter here.
const SHORT_MEASUREMENTS: [&str; 4] = [
    "variants.engines=ort",
    "variants.max_threads=1",
    "variants.max_batch=8",
    "variants.profile_ms_per_batch=2",
];

// === impl Process ===

impl Process {
    fn start(mut command: Command, log: &Path) -> Self {
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
        process.address = process.listening();
        process
    }

    /// The address that the service prints once it answers.
    fn listening(&mut self) -> String {
        loop {
            match self.next_line() {
                Ok(line) => {
                    if let Some((_, address)) = line.split_once("listening on ") {
                        return address.trim().to_owned();
                    }
                }
                Err(reason) => {
                    self.child.kill().ok();
                    let status = self.child.wait();
                    panic!("the service did not start: {reason}, {status:?}; its log has the cause")
                }
            }
        }
    }

    fn next_line(&mut self) -> Result<String, RecvTimeoutError> {
        let lines = self.lines.get_mut().expect("nobody panics with the lines");
        lines.recv_timeout(PATIENCE)
    }

    fn stop(mut self) -> ExitStatus {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Fails only where the process has ended already; its status tells.
        kill_process(id.expect("a process has an id"), Signal::TERM).ok();
        loop {
            match self.next_line() {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill().ok();
                    self.child.wait().ok();
                    panic!("the service did not end within {PATIENCE:?} of being asked to");
                }
            }
        }
        self.child.wait().expect("a child can be waited for")
    }
}

/// The binary, free of settings of the environment that the tests run in.
fn command() -> Command {
    let mut command = Command::new(binary::sextant());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("SEXTANT_") && name != "SEXTANT_CACHE" {
            command.env_remove(name);
        }
    }
    command
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be created");
    for entry in fs::read_dir(from)
        .expect("the template can be read")
        .flatten()
    {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => vec![path],
        })
        .collect()
}
