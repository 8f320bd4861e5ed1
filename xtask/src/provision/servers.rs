//! The servers that a fleet shares, for tests that use real ones: Redis or Valkey, PostgreSQL; and what
//! cuts networks and sets clocks wrong.
//!
//! Only the programs are wanted: the tests start their own servers on free ports.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::system;
use crate::shell::{self, say};

/// A program and the oldest major version that has what we use.
struct Wanted {
    program: &'static str,
    oldest: u32,
}

/// Functions of streams and scripts as of Redis 7; Valkey begins where Redis 7.2 ended.
const METADATA: [Wanted; 2] = [
    Wanted {
        program: "redis-server",
        oldest: 7,
    },
    Wanted {
        program: "valkey-server",
        oldest: 8,
    },
];
/// What Debian 12 has; later ones do as well.
const POSTGRES_OLDEST: u32 = 15;
/// Where Debian keeps its PostgreSQL versions: they are not on the path.
const POSTGRES: &str = "/usr/lib/postgresql";
/// Where a Docker engine listens; without one, its tests say that they were skipped.
const DOCKER: &str = "/var/run/docker.sock";
/// What those tests make an image from.
const BUSYBOX: &str = "/bin/busybox";

/// Both servers, from the system's packages where they are not there yet.
pub fn ensure() -> Result<()> {
    if redis().is_none() {
        system::install(&["redis-server"], "metadata store of the tests")?;
        redis().context("the package `redis-server` has no Redis 7 or later: install one")?;
    }
    if !shell::succeeds(shell::command("ip").arg("-V")) {
        system::install(&["iproute2"], "networks that the tests cut")?;
    }
    if !faketime() {
        system::install(&["libfaketime"], "clocks that the tests set wrong")?;
    }
    if Path::new(DOCKER).exists() && !Path::new(BUSYBOX).exists() {
        system::install(&["busybox-static"], "containers of the tests")?;
    }
    if postgres().is_none() {
        system::install(&["postgresql"], "registry of the tests")?;
        postgres().with_context(|| {
            format!("the package `postgresql` is older than {POSTGRES_OLDEST}: install a later one")
        })?;
    }
    Ok(())
}

/// Whether the library is where the tests look for it.
fn faketime() -> bool {
    let folders = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let library = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    folders
        .map(|folder| library(folder.path()))
        .any(|file| file.exists())
}

fn redis() -> Option<()> {
    METADATA.iter().find_map(|wanted| {
        let version = shell::output(shell::command(wanted.program).arg("--version")).ok()?;
        // `Redis server v=7.0.15 sha=..`
        let major = major(version.split("v=").nth(1)?)?;
        found(wanted.program, major, wanted.oldest).then_some(())
    })
}

fn postgres() -> Option<()> {
    let folders = std::fs::read_dir(POSTGRES).into_iter().flatten().flatten();
    let installed = folders.map(|folder| folder.path().join("bin"));
    let on_path = [PathBuf::new()];
    installed.chain(on_path).find_map(|bin| {
        // One belongs to the server's package, the other to the client's as well.
        let initdb = shell::output(shell::command(bin.join("initdb")).arg("--version")).ok()?;
        let program = bin.join("postgres");
        shell::succeeds(shell::command(&program).arg("--version")).then_some(())?;
        // `initdb (PostgreSQL) 15.18 (..)`
        let major = major(initdb.split(") ").nth(1)?)?;
        found(&program, major, POSTGRES_OLDEST).then_some(())
    })
}

fn major(version: &str) -> Option<u32> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn found(program: impl AsRef<Path>, major: u32, oldest: u32) -> bool {
    let program = program.as_ref().display();
    if major < oldest {
        say(format!("{program} {major}: too old, {oldest} is wanted"));
        return false;
    }
    say(format!("{program} {major}: found"));
    true
}
