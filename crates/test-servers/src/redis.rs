//! Redis, or Valkey in its place.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use crate::process::{Process, free_port};

/// The usable programs, the preferred one first.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
/// Longest time that a server may take to read its data.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with an append-only file in a folder of its own. It reads no configuration
/// file.
#[derive(Debug)]
pub struct Redis {
    program: &'static str,
    port: u16,
    process: Process,
    folder: TempDir,
}

/// The files of a server.
#[derive(Debug)]
pub struct Copy(TempDir);

impl Redis {
    /// Starts an empty server: the program in the environment's `SEXTANT_TEST_REDIS`, else the
    /// first of the [`installed`](Self::installed) ones.
    ///
    /// # Panics
    /// If neither `redis-server` nor `valkey-server` is installed, or if it does not start.
    pub fn start() -> Self {
        let named = std::env::var("SEXTANT_TEST_REDIS").ok();
        let named = named.map(|name| {
            let known = PROGRAMS.into_iter().find(|program| *program == name);
            known.unwrap_or_else(|| panic!("`SEXTANT_TEST_REDIS` must be one of {PROGRAMS:?}"))
        });
        Self::start_program(named.unwrap_or_else(|| Self::installed()[0]))
    }

    /// Starts an empty server of one of the [`installed`](Self::installed) programs.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_program(program: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let port = free_port();
        let process = launch(program, port, folder.path());
        Self {
            program,
            port,
            process,
            folder,
        }
    }

    /// Those of `redis-server` and `valkey-server` that this machine has.
    ///
    /// # Panics
    /// If it has neither.
    pub fn installed() -> Vec<&'static str> {
        let runs = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        let installed: Vec<_> = PROGRAMS.into_iter().filter(runs).collect();
        assert!(
            !installed.is_empty(),
            "no `redis-server` and no `valkey-server`: `cargo xtask provision` installs one"
        );
        installed
    }

    /// `redis://127.0.0.1:PORT`; it stays the same over restarts.
    pub fn url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The port of the loopback interface; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of the server process; it changes with a restart.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server and starts it again with its data: every answered write is there.
    pub fn restart(&mut self) {
        self.kill();
        self.process = launch(self.program, self.port, self.folder.path());
    }

    /// Kills the server and starts it again without its data.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.folder = tempfile::tempdir().expect("a folder can be made");
        self.process = launch(self.program, self.port, self.folder.path());
    }

    /// A copy of the server's files. Nothing may be written meanwhile.
    ///
    /// # Panics
    /// If the files cannot be copied.
    pub fn copy(&self) -> Copy {
        let folder = tempfile::tempdir().expect("a folder can be made");
        copy_folder(self.folder.path(), folder.path()).expect("files can be copied");
        Copy(folder)
    }

    /// Kills the server and starts it again with the data of an earlier time, as after a crash that
    /// lost its last writes.
    pub fn restart_as(&mut self, copy: Copy) {
        self.kill();
        self.folder = copy.0;
        self.process = launch(self.program, self.port, self.folder.path());
    }

    /// Kills the server like a power cut. [`restart`](Self::restart) starts it again.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the server while it works: connections stay open, and nothing answers.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let id = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        let id = WaitId::Pid(id.expect("a process has a number"));
        // The signal has been sent, but may not have taken effect yet.
        waitid(id, WaitIdOptions::STOPPED).expect("the server stops");
    }

    /// Lets a stopped server continue.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Deletes everything in the running server.
    pub fn flush(&self) {
        let answer = ask(self.port, "FLUSHALL");
        assert_eq!(answer.as_deref(), Some("+OK"), "the server was flushed");
    }

    fn signal(&self, signal: Signal) {
        let sent = self.process.signal(signal);
        sent.expect("the server runs");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process tells nobody when it is ready"
)]
fn launch(program: &str, port: u16, folder: &Path) -> Process {
    let mut command = Command::new(program);
    // The first argument is not a file: so neither program looks for a configuration file.
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--daemonize", "no", "--save", "", "--appendonly", "yes"])
        // Every answered write is in the file then. Syncing each second would delay writes while
        // the disk is busy, and only helps after a power cut.
        .args(["--appendfsync", "no"])
        .arg("--dir")
        .arg(folder)
        .arg("--logfile")
        .arg(folder.join("server.log"));
    let process = Process::start(command, port);
    let begun = Instant::now();
    // It listens before it has read its data.
    while ask(port, "PING").as_deref() != Some("+PONG") {
        assert!(begun.elapsed() < PATIENCE, "`{program}` does not get ready");
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The first line of the answer to a command without arguments.
fn ask(port: u16, command: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && byte[0] != b'\r' {
        answer.push(byte[0]);
    }
    String::from_utf8(answer).ok()
}
