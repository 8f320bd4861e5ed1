//! A running `sextant serve`, or another server that is measured in comparison.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use sextant_test_servers::redis::Redis;

use crate::http::Connection;
use crate::provision::Provisions;
use crate::{paths, shell};

/// Longest time until a started server answers.
const START: Duration = Duration::from_secs(60);
/// Longest time until a server has finished its work after it is asked to stop.
const STOP: Duration = Duration::from_secs(20);

/// Processes to stop if this program is interrupted.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A server process; stopped when dropped.
pub struct Server {
    child: Child,
    name: String,
    /// The address on which it listens.
    pub address: SocketAddr,
}

/// Builds the release binary and returns its path; `SEXTANT_BIN` names one that was built elsewhere.
pub fn build() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SEXTANT_BIN") {
        return Ok(std::path::absolute(path)?);
    }
    shell::run(shell::command("cargo").args(["build", "--release", "--package", "sextant"]))?;
    Ok(paths::target("release/sextant"))
}

/// Builds the laboratory's release binary and returns its path.
pub fn build_lab() -> Result<PathBuf> {
    shell::run(shell::command("cargo").args(["build", "--release", "--package", "sextant-lab"]))?;
    Ok(paths::target("release/sextant-lab"))
}

/// The build options of the demo's binary. It leaves out what only fleets, GPUs and simulations need and is less
/// optimised, because a newcomer waits mostly for this build.
pub const QUICK_BUILD: [&str; 6] = [
    "build",
    "--profile",
    "quick",
    "--package",
    "sextant",
    "--no-default-features",
];

/// Builds the demo's binary and returns its path; `SEXTANT_BIN` names one that was built elsewhere.
pub fn build_quickly() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SEXTANT_BIN") {
        return Ok(std::path::absolute(path)?);
    }
    shell::run(shell::command("cargo").args(QUICK_BUILD))?;
    Ok(paths::target("quick/sextant"))
}

/// `sextant serve` with its data in `data`.
pub fn sextant(binary: &Path, provisioned: &Provisions, at: SocketAddr, data: &Path) -> Command {
    let mut command = shell::command(binary);
    command
        .args(["serve", "--listen", &at.to_string()])
        .arg("--data-dir")
        .arg(data)
        .arg("--onnxruntime-library")
        .arg(&provisioned.onnxruntime);
    command
}

/// Starts a service with its metadata in `redis`, with a data folder and settings that are written into it, and waits
/// until it answers.
pub fn over_redis(
    binary: &Path,
    provisioned: &Provisions,
    (data, settings): (&Path, &str),
    redis: &Redis,
) -> Result<Server> {
    let file = data.join("sextant.toml");
    std::fs::write(&file, settings)?;
    let at = free_address()?;
    let mut command = sextant(binary, provisioned, at, data);
    command.arg("--config").arg(&file);
    command.args(["--set", &format!("metadata.url={}", redis.url())]);
    Server::start("sextant", command, at, "/health/live")
}

/// An address on this machine that nothing listens on now.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?)
}

/// A memory size of a process by its name in `/proc/PID/status`, bytes; `None` if the process has ended.
pub fn memory_bytes(process: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The group of a process and its processor time, s, from its `/proc/PID/stat`.
fn group_and_time(stat: &str) -> Option<(u32, f64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    // After the name, the group is the third field and the times are the 12th and 13th.
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // The kernel reports times in hundredths of a second.
    Some((
        fields.get(2)?.parse().ok()?,
        (ticks(11)? + ticks(12)?) / 100.0,
    ))
}

impl Server {
    /// Starts a server and waits until it answers `GET path` with 200.
    ///
    /// The server runs in a process group of its own, so that Ctrl-C reaches it only once, through this program.
    pub fn start(name: &str, command: Command, address: SocketAddr, path: &str) -> Result<Self> {
        let ready = || {
            let connection = Connection::open(address, Duration::from_secs(5));
            let answer = connection.and_then(|mut connection| connection.get(path));
            answer.is_ok_and(|response| response.status == 200)
        };
        Self::start_until(name, command, address, &ready)
    }

    /// Starts a server that speaks no HTTP/1 and waits until it takes connections.
    pub fn start_listening(name: &str, command: Command, address: SocketAddr) -> Result<Self> {
        let ready = || Connection::open(address, Duration::from_secs(5)).is_ok();
        Self::start_until(name, command, address, &ready)
    }

    fn start_until(
        name: &str,
        mut command: Command,
        address: SocketAddr,
        is_ready: &dyn Fn() -> bool,
    ) -> Result<Self> {
        stop_on_signal()?;
        eprintln!("$ {}", shell::show(&command));
        let child = command
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut server = Self {
            child,
            name: name.to_owned(),
            address,
        };
        running(|ids| ids.push(server.id()));
        server.until_ready(is_ready)?;
        Ok(server)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A connection to it.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open(self.address, Duration::from_secs(120))
    }

    /// The answer to a query. It is sent again while the server loads what it needs.
    pub fn ask(&self, path: &str, body: &Value) -> Result<Value> {
        let deadline = Instant::now() + START;
        loop {
            let response = self.connect()?.post(path, body)?;
            let problem: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            match problem["retry_after_ms"].as_u64() {
                Some(wait_ms) if response.status == 503 && Instant::now() < deadline => {
                    shell::pause(Duration::from_millis(wait_ms));
                }
                _ => return response.json(),
            }
        }
    }

    /// Waits until the server ends by itself.
    pub fn wait(mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Kills the server as a power failure would.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Current resident memory of the process, bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        memory_bytes(self.id(), "VmRSS:").context("the process has no resident memory")
    }

    /// Processor time that the server and the processes that it has started have used, s.
    pub fn cpu_s(&self) -> Result<f64> {
        let processes = std::fs::read_dir("/proc")?.flatten();
        // A process that ends meanwhile does not count.
        let stats = processes.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
        let used = stats.filter_map(|stat| group_and_time(&stat));
        let own = used.filter(|(group, _)| *group == self.id());
        Ok(own.map(|(_, seconds)| seconds).sum())
    }

    fn until_ready(&mut self, is_ready: &dyn Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START;
        while !is_ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended while it started: {status}", self.name);
            }
            if Instant::now() > deadline {
                bail!("{} is not ready after {} s", self.name, START.as_secs());
            }
            shell::pause(Duration::from_millis(50));
        }
        Ok(())
    }

    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            interrupt(self.id());
        }
        let deadline = Instant::now() + STOP;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                shell::say(format!("{} does not stop, killing it", self.name));
                // Both calls fail only if the process has just ended.
                self.child.kill().ok();
                self.child.wait().ok();
            }
            shell::pause(Duration::from_millis(20));
        }
        // Some servers leave processes of their own behind. The call fails if there are none.
        if let Some(group) = pid(self.id()) {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        running(|ids| ids.retain(|id| *id != self.id()));
    }
}

fn running(change: impl FnOnce(&mut Vec<u32>)) {
    change(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Ctrl-C and termination reach only this program. It passes them on, and everything that waits for the servers then
/// ends.
fn stop_on_signal() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        outcome = ctrlc::set_handler(|| running(|ids| ids.iter().copied().for_each(interrupt)));
    });
    outcome.context("cannot handle Ctrl-C")
}

/// Asks a process to finish.
fn interrupt(id: u32) {
    if let Some(id) = pid(id) {
        // Fails only if the process has ended.
        kill_process(id, Signal::TERM).ok();
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}
