//! A running service: the real process, started, killed, started again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    Api,
    disk::Disk,
    process::{Launch, Process, children_of, command, command_behind},
};

/// The data folder in a cluster's own folder.
const DATA: &str = "data";

/// Texts that the log must never contain.
const SCANDALS: [&str; 2] = ["panicked at", "\"level\":\"ERROR\""];

/// A failed registration, which is the sender's error and is also in its job.
const NO_SCANDAL: &str = "\"message\":\"registration failed\"";

/// How a service is started.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `key=value` pairs for `--set`.
    pub set: Vec<String>,
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// Whether errors in the log are expected, because the test injects faults.
    pub faults: bool,
    /// A program that starts the service, and its arguments before the service's own.
    pub wrap: Vec<String>,
    /// Size of a separate disk for the data folder, bytes; see [`TestCluster::disk`].
    pub disk_bytes: Option<u64>,
}

/// One service with a data folder of its own. It is stopped when it is dropped. It must then end by itself, without a
/// panic in its log and without a temporary file in its store.
#[derive(Debug)]
pub struct TestCluster {
    folder: TempDir,
    disk: Result<Disk, String>,
    settings: Settings,
    process: Option<Process>,
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
        copy(data, &folder.path().join(DATA));
        Self::over(folder, settings)
    }

    fn over(folder: TempDir, settings: Settings) -> Self {
        let disk = Disk::wanted(&folder.path().join(DATA), settings.disk_bytes);
        let mut cluster = Self {
            folder,
            disk,
            settings,
            process: None,
        };
        cluster.launch();
        cluster
    }

    /// A client of the service. Each test needs its own, because connections belong to a runtime.
    pub fn api(&self) -> Api {
        Api::new(self.process().address())
    }

    /// `http://127.0.0.1:port`.
    pub fn address(&self) -> &str {
        self.process().address()
    }

    /// The path of its data folder for this process.
    pub fn data(&self) -> PathBuf {
        let folder = self.folder.path().join(DATA);
        self.disk
            .as_ref()
            .map_or(folder.clone(), |it| it.seen(&folder))
    }

    /// The disk with the data folder, or why there is none.
    pub fn disk(&self) -> Result<&Disk, &str> {
        self.disk.as_ref().map_err(|reason| &**reason)
    }

    /// Runs the binary's client against the service and returns its output.
    pub fn client(&self, arguments: &[&str]) -> std::process::Output {
        command()
            .args(["--server", self.address()])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the binary can be started")
    }

    /// Ends the process like a power cut.
    pub fn kill(&mut self) {
        self.process.take().expect("the service runs").kill();
    }

    /// Starts the service again with the same data.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "the service runs already");
        let Launch { command, log } = self.launching();
        self.process = Some(Process::start(command, &log));
    }

    /// The launch of the service with the same data.
    pub(crate) fn launching(&self) -> Launch {
        let mut wrap = self.disk.as_ref().map(Disk::wrap).unwrap_or_default();
        wrap.extend_from_slice(&self.settings.wrap);
        let mut command = command_behind(&wrap);
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--data-dir",
            ])
            .arg(self.folder.path().join(DATA));
        for pair in SHORT_MEASUREMENTS
            .into_iter()
            .chain(self.settings.set.iter().map(|s| &**s))
        {
            command.args(["--set", pair]);
        }
        command.args(&self.settings.arguments);
        let log = self.log_file();
        Launch { command, log }
    }

    /// Takes over the process that [`launching`](Self::launching) started.
    pub(crate) fn attach(&mut self, process: Process) {
        self.process = Some(process);
    }

    /// A command of the binary, and the path of the data folder for it.
    pub(crate) fn beside(&self) -> (Command, PathBuf) {
        let wrap = self.disk.as_ref().map(Disk::wrap).unwrap_or_default();
        (command_behind(&wrap), self.folder.path().join(DATA))
    }

    /// The process, if it runs.
    pub(crate) fn running(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Takes the process out, in order to end it.
    pub(crate) fn take(&mut self) -> Option<Process> {
        self.process.take()
    }

    /// Asks the service to end, waits for it, and returns its exit status.
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

    /// The log of all lives of the service so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Resident memory of the process, bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The peak of that memory since the start or the last [`forget_peak`](Self::forget_peak), bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Resets the peak, and returns the present resident memory, bytes.
    pub fn forget_peak(&self) -> u64 {
        let file = format!("/proc/{}/clear_refs", self.process().id());
        fs::write(file, "5").expect("the service runs");
        self.resident_bytes()
    }

    fn memory(&self, field: &str) -> u64 {
        let file = format!("/proc/{}/status", self.process().id());
        let status = fs::read_to_string(file).expect("the service runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kibibytes: Option<u64> =
            line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kibibytes.expect("the kernel knows its memory") * 1024
    }

    /// Whether the process uses the C library's allocator: only that one extends the heap.
    pub fn has_heap(&self) -> bool {
        let file = format!("/proc/{}/maps", self.process().id());
        let maps = fs::read_to_string(file).expect("the service runs");
        maps.lines().any(|line| line.ends_with("[heap]"))
    }

    /// The id of the process.
    pub fn process_id(&self) -> u32 {
        self.process().id()
    }

    /// Names of the threads of the process that now compute.
    pub fn busy_threads(&self) -> Vec<String> {
        let threads = self.threads().into_iter();
        let busy = threads.filter(|(state, _)| state == "R");
        busy.map(|(_, name)| name).collect()
    }

    /// Ids of processes that the service has started with this subcommand.
    pub fn children(&self, subcommand: &str) -> Vec<u32> {
        children_of(self.process().id(), subcommand)
    }

    /// Kills a process that the service has started.
    pub fn kill_child(&self, id: u32) {
        signal(id, Signal::KILL);
    }

    /// Stops a process that the service has started until it is [resumed](Self::resume_child).
    pub fn halt_child(&self, id: u32) {
        signal(id, Signal::STOP);
    }

    /// Lets the process continue.
    pub fn resume_child(&self, id: u32) {
        signal(id, Signal::CONT);
    }

    /// State (`R` computes, `S` waits) and name of each thread of the process.
    pub fn threads(&self) -> Vec<(String, String)> {
        let tasks = format!("/proc/{}/task", self.process().id());
        let tasks = fs::read_dir(tasks).expect("the process runs");
        // A thread may end meanwhile.
        let thread = tasks.filter_map(|task| {
            let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            let (name, state) = stat.split_once('(')?.1.rsplit_once(") ")?;
            Some((state.chars().take(1).collect(), name.to_owned()))
        });
        thread.collect()
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
pub(crate) const SHORT_MEASUREMENTS: [&str; 4] = [
    "variants.engines=ort",
    "variants.max_threads=1",
    "variants.max_batch=8",
    "variants.profile_ms_per_batch=2",
];

fn signal(process: u32, signal: Signal) {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    // The process may have ended.
    kill_process(id.expect("a process has an id"), signal).ok();
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

/// The files below a folder, at any depth; none if the folder does not exist.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => vec![path],
        })
        .collect()
}
