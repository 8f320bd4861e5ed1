//! Compose, version 2: Docker's plugin if it is installed, otherwise the program of a Debian package.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::paths;
use crate::shell::{self, say};

/// Debian 12 has version 1 alone; the program of the next release runs on it as well.
const VERSION: &str = "2.26.1-4";
const POOL: &str = "http://deb.debian.org/debian/pool/main/d/docker-compose";
const SHA256: &str = "47681197cb2b1ab88206b42a1a92fc75f50d9530a6322d03494a473eed0408ea";
/// Where the package has the program.
const PROGRAM: &str = "usr/libexec/docker/cli-plugins/docker-compose";

/// How Compose is called.
#[derive(Debug, Clone)]
pub struct Compose(Vec<OsString>);

impl Compose {
    /// A call of it without arguments.
    pub fn command(&self) -> Command {
        let mut command = shell::command(&self.0[0]);
        command.args(&self.0[1..]);
        command
    }

    /// What it says its version is, if it can be called.
    pub fn version(&self) -> Option<String> {
        let version = shell::output(self.command().args(["version", "--short"])).ok()?;
        Some(version.trim().trim_start_matches('v').to_owned())
    }

    fn of(words: &[&str]) -> Self {
        Self(words.iter().map(OsString::from).collect())
    }

    fn is_recent(&self) -> bool {
        let version = self.version().unwrap_or_default();
        let major = version.split('.').next().and_then(|it| it.parse().ok());
        major.is_some_and(|major: u32| major >= 2)
    }
}

/// Compose 2 or later: `docker compose`, `docker-compose`, or one in the cache, fetched if need be.
pub fn ensure(cache: &Path) -> Result<Compose> {
    let installed = [
        Compose::of(&["docker", "compose"]),
        Compose::of(&["docker-compose"]),
    ];
    let folder = cache.join(format!("docker-compose-{VERSION}"));
    let cached = Compose(vec![folder.join(PROGRAM).into_os_string()]);
    let found = installed.into_iter().chain([cached.clone()]);
    if let Some(compose) = found.into_iter().find(Compose::is_recent) {
        let version = compose.version().unwrap_or_default();
        say(format!("Compose {version}: found"));
        return Ok(compose);
    }
    fetch(&folder)?;
    ensure!(
        cached.is_recent(),
        "Compose {VERSION} does not run here: install Docker's Compose plugin"
    );
    Ok(cached)
}

fn fetch(folder: &Path) -> Result<()> {
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "no Compose 2 is here: install Docker's Compose plugin"
    );
    let name = format!("docker-compose_{VERSION}_amd64.deb");
    say(format!("Compose {VERSION}: fetching it from Debian"));
    let package: PathBuf = paths::empty_target("compose")?.join(&name);
    shell::run(
        shell::command("curl")
            .args(["--fail", "--silent", "--show-error", "--location"])
            .arg("--output")
            .arg(&package)
            .arg(format!("{POOL}/{name}")),
    )?;
    let sum = paths::sha256(&package)?;
    ensure!(
        sum == SHA256,
        "`{name}` has the checksum {sum}, not {SHA256}"
    );
    shell::run(
        shell::command("dpkg-deb")
            .arg("--extract")
            .arg(&package)
            .arg(folder),
    )
}
