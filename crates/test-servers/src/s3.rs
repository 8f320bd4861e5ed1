//! A real S3 server, `s3s-fs`, behind a proxy that can inject faults.
//!
//! The server keeps objects as files below a folder. It writes an object and then its checksum, where S3 does both at
//! once. So the proxy lets requests that change a key pass one at a time.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, free_port};

mod proxy;
mod relay;

use proxy::Proxy;
pub use proxy::{Fault, Faults, Request};

/// The version that `cargo xtask provision` installs.
pub const VERSION: &str = "0.14.1";

const ACCESS_KEY: &str = "sextant-test";
const SECRET_KEY: &str = "sextant-test-secret";
const BUCKET: &str = "artefacts";

/// A running S3 server with one empty bucket. It is removed with its objects when it is dropped.
#[derive(Debug)]
pub struct S3 {
    process: Process,
    proxy: Proxy,
    folder: TempDir,
    port: u16,
}

impl S3 {
    /// Starts a server on a free port over an empty folder. Blocks until it answers.
    ///
    /// # Panics
    /// If the program is not installed or does not start.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        fs::create_dir(folder.path().join(BUCKET)).expect("the bucket can be made");
        let port = free_port();
        Self {
            process: launch(folder.path(), port),
            proxy: Proxy::start(port),
            folder,
            port,
        }
    }

    /// The address for clients, through the proxy: `http://127.0.0.1:..`. Buckets are addressed by path.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.proxy.port())
    }

    /// The bucket that exists from the start.
    pub fn bucket(&self) -> &'static str {
        BUCKET
    }

    /// The access key's id.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// The access key's secret.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// The faults between clients and the server; none at first.
    pub fn faults(&self) -> &Faults {
        self.proxy.faults()
    }

    /// The file with an object's bytes, for tests that damage it.
    pub fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    /// Number of multipart uploads that were begun and neither completed nor aborted.
    ///
    /// # Panics
    /// If the server's folder cannot be read.
    pub fn open_uploads(&self) -> usize {
        let entries = fs::read_dir(self.folder.path()).expect("the folder can be read");
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with(".upload"))
            .count()
    }

    /// Ends the server like a power cut. Connections are refused until [`S3::restart`].
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again on the same address over the same objects.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(self.folder.path(), self.port);
    }

    /// Stops the server without ending it: connections stay open, and no answers come.
    pub fn stop(&self) {
        self.process
            .signal(Signal::STOP)
            .expect("it can be stopped");
    }

    /// Lets a stopped server continue.
    pub fn cont(&self) {
        self.process.signal(Signal::CONT).expect("it can go on");
    }
}

fn launch(folder: &Path, port: u16) -> Process {
    let mut command = Command::new(program());
    command
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::start(command, port)
}

/// The program in the cache that `cargo xtask provision` fills, else the one in `PATH`.
fn program() -> PathBuf {
    let cache = crate::cache();
    let built = cache.map(|cache| cache.join(format!("s3s-fs-{VERSION}/bin/s3s-fs")));
    built
        .filter(|built| built.is_file())
        .unwrap_or_else(|| PathBuf::from("s3s-fs"))
}
