//! PostgreSQL.

use std::{
    fs::{self, File, Permissions},
    net::Ipv4Addr,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, geteuid, kill_process, waitid};
use tempfile::TempDir;

use crate::process::{Process, free_port};

/// The account that runs the server if the tests run as root, which PostgreSQL refuses.
const ACCOUNT: &str = "postgres";
const PASSWORD: &str = "correct-horse-battery";
/// Where Debian and its derivatives install each major version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Longest time that a server may take to recover its data.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with a data folder of its own. It requires a password and syncs its commits.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    port: u16,
    process: Process,
    folder: TempDir,
    guard: Child,
}

impl Postgres {
    /// Starts a server with one empty database, `postgres`.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn start() -> Self {
        let programs = programs();
        let folder = initialized(&programs);
        let port = free_port();
        let process = launch(&programs, port, folder.path());
        let guard = guard(folder.path());
        Self {
            programs,
            port,
            process,
            folder,
            guard,
        }
    }

    /// One server for all tests of a process. Each test takes a database or a schema of it. It ends
    /// with the process.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// `postgres://postgres:PASSWORD@127.0.0.1:PORT/postgres`; it stays the same over restarts.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The port of the loopback interface; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's password. It is in every URL and must not be in any message.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Panics
    /// If it cannot be created, for example because a database of that name exists.
    pub fn database(&self, name: &str) -> String {
        self.database_with(name, &[])
    }

    /// Creates an empty database with further options of the program `createdb`, and returns its
    /// URL.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn database_with(&self, name: &str, options: &[&str]) -> String {
        let mut command = Command::new(self.programs.join("createdb"));
        command
            .args(["--host", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--username", ACCOUNT, "--no-password"])
            .env("PGPASSWORD", PASSWORD)
            .args(options)
            .arg(name);
        succeed(command);
        self.url_of(name)
    }

    /// Ends the server as an administrator would, and starts it again: connections break.
    pub fn restart(&mut self) {
        self.end(Signal::INT);
        self.start_again();
    }

    /// Ends the server like a crash: nothing more is written. [`start_again`](Self::start_again)
    /// restarts it.
    pub fn kill(&mut self) {
        self.end(Signal::QUIT);
    }

    /// Starts a server that was killed. It recovers its committed data.
    pub fn start_again(&mut self) {
        self.process = launch(&self.programs, self.port, self.folder.path());
    }

    /// Stops the server while it works: connections stay open, and nothing answers.
    pub fn stop(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets a stopped server continue.
    pub fn cont(&self) {
        self.signal_all(Signal::CONT);
    }

    fn url_of(&self, database: &str) -> String {
        let (host, port) = (Ipv4Addr::LOCALHOST, self.port);
        format!("postgres://{ACCOUNT}:{PASSWORD}@{host}:{port}/{database}")
    }

    /// Signals the server and the process of each connection. The server is first, so that no new
    /// ones appear.
    fn signal_all(&self, signal: Signal) {
        self.process.signal(signal).ok();
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            if let Some(child) = child.parse().ok().and_then(Pid::from_raw) {
                // A process that has just ended needs no signal.
                kill_process(child, signal).ok();
            }
        }
    }

    /// Asks the server to end and waits until it has ended with the processes of its connections.
    fn end(&mut self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok();
        let id = id.and_then(Pid::from_raw);
        if let (Some(id), Ok(())) = (id, self.process.signal(signal)) {
            // `kill` reaps it.
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(id), ended).ok();
        }
        self.process.kill();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.guard.kill().ok();
        self.guard.wait().ok();
        self.cont();
        self.end(Signal::QUIT);
    }
}

/// The folder with the programs of the newest installed version.
fn programs() -> PathBuf {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let major: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("initdb").exists().then_some((major, folder))
        })
        .max();
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
    };
    newest
        .map(|(_, folder)| folder)
        .or_else(in_path)
        .expect("no `initdb` of PostgreSQL: `cargo xtask provision` installs it")
}

/// A folder with an empty data folder in it.
fn initialized(programs: &Path) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).expect("a file can be written");
    give_away(folder.path());
    give_away(&password);
    let mut command = as_account(&programs.join("initdb"));
    command
        .arg("--pgdata")
        .arg(folder.path().join("data"))
        .arg("--pwfile")
        .arg(&password)
        .args(["--username", ACCOUNT, "--auth", "scram-sha-256"])
        .args(["--encoding", "UTF8", "--locale", "C.UTF-8"])
        // The server syncs its commits; its initial files need not be synced.
        .args(["--no-sync", "--no-instructions"]);
    succeed(command);
    folder
}

fn launch(programs: &Path, port: u16, folder: &Path) -> Process {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("server.log"))
        .expect("a log can be written");
    let mut command = as_account(&programs.join("postgres"));
    command
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-c", "listen_addresses=127.0.0.1", "-c"])
        .arg(format!("port={port}"))
        .args(["-c", "unix_socket_directories="])
        .args(["-c", "shared_buffers=16MB", "-c", "fsync=on"])
        .stdout(Stdio::null())
        .stderr(log);
    let process = Process::start(command, port);
    await_ready(programs, port);
    process
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process tells nobody when it is ready"
)]
fn await_ready(programs: &Path, port: u16) {
    let begun = Instant::now();
    loop {
        let mut command = Command::new(programs.join("pg_isready"));
        command.args(["--quiet", "--host", "127.0.0.1", "--port"]);
        // It listens before it has recovered its data.
        if command
            .arg(port.to_string())
            .status()
            .is_ok_and(|status| status.success())
        {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "PostgreSQL does not get ready");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the server and removes its folder if this process ends without doing so: then the pipe to
/// the guard breaks.
fn guard(folder: &Path) -> Child {
    const SCRIPT: &str = r#"
        read -r line
        server=$(head -n 1 "$1/data/postmaster.pid") || server=
        if [ -n "$server" ]; then
            kill -CONT "$server" $(cat "/proc/$server/task/$server/children")
            kill -QUIT "$server"
            while kill -0 "$server"; do sleep 0.1; done
        fi
        rm -rf "$1"
    "#;
    Command::new("sh")
        .args(["-c", SCRIPT, "sh"])
        .arg(folder)
        // A signal that interrupts the tests must not interrupt their guard.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell can be started")
}

/// A program, run as the account if this process runs as root.
fn as_account(program: &Path) -> Command {
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    // This process's own folder may not be accessible to the account.
    command.current_dir("/");
    command
}

/// Makes the account the owner if this process runs as root.
fn give_away(path: &Path) {
    if !geteuid().is_root() {
        return;
    }
    let (user, group) = account();
    chown(path, Some(user), Some(group)).expect("root may give files away");
    let mode = if path.is_dir() { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode can be set");
    let owner = fs::metadata(path).expect("it is there").uid();
    assert_eq!(owner, user, "`{}` has its owner", path.display());
}

/// The user and group of the account.
fn account() -> (u32, u32) {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == ACCOUNT).then_some(())?;
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    found.expect("no account `postgres`: `cargo xtask provision` installs PostgreSQL with it")
}

fn succeed(mut command: Command) {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("`{name}` cannot be started: {error}"));
    assert!(
        output.status.success(),
        "`{name}` failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
