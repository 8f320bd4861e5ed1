//! What the tests need from the system's packages: one table of programs, files, and the packages that contain them.
//!
//! Provisioning installs what the table names and the machine lacks. The tests get only the programs that the table
//! names (`checks/enclosure.rs`). So a call of a program that is missing in the table fails on every machine, and not
//! only on bare ones.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::system;
use crate::shell::{self, say};

/// Something that a package has.
pub struct Need {
    /// Programs that tests may call by their names once it is there.
    pub programs: &'static [&'static str],
    /// Files and folders that tests look for by their absolute paths.
    pub files: &'static [&'static str],
    /// Debian's package.
    package: &'static str,
    /// What for, as the command says it.
    purpose: &'static str,
    /// Whether this machine has it already.
    is_met: fn() -> bool,
}

/// Where Debian keeps its PostgreSQL versions: they are not on the path.
const POSTGRES: &str = "/usr/lib/postgresql";
/// What Debian 12 has; later ones do as well.
const POSTGRES_OLDEST: u32 = 15;
/// Where the folders with libfaketime are.
const LIBRARIES: &str = "/usr/lib";
/// Where a Docker engine listens; without one, its tests say that they were skipped.
const DOCKER: &str = "/var/run/docker.sock";
/// What those tests make an image from.
const BUSYBOX: &str = "/bin/busybox";
/// The browser that looks at pages.
const CHROMIUM: &str = "/usr/bin/chromium";
/// What it writes with.
const FONTS: &str = "/usr/share/fonts/truetype/dejavu";
/// Names another C++ compiler.
const CXX: &str = "CXX";

/// The servers that a fleet shares, of which the tests start their own on free ports; what cuts networks and sets
/// clocks wrong.
pub const SERVERS: &[Need] = &[
    Need {
        programs: &["redis-server", "valkey-server"],
        files: &[],
        package: "redis-server",
        purpose: "metadata store of the tests: Redis 7 or Valkey 8",
        is_met: redis,
    },
    Need {
        programs: &[],
        files: &[POSTGRES],
        package: "postgresql",
        purpose: "registry of the tests: PostgreSQL 15 or later",
        is_met: postgres,
    },
    Need {
        programs: &["ip"],
        files: &[],
        package: "iproute2",
        purpose: "networks that the tests cut",
        is_met: || runs("ip", "-V"),
    },
    Need {
        programs: &[],
        files: &[LIBRARIES],
        package: "libfaketime",
        purpose: "clocks that the tests set wrong",
        is_met: faketime,
    },
    Need {
        programs: &[],
        files: &[BUSYBOX],
        package: "busybox-static",
        purpose: "containers of the tests",
        is_met: || !Path::new(DOCKER).exists() || Path::new(BUSYBOX).exists(),
    },
];

/// What generates SDKs from the OpenAPI document, compiles and runs them.
pub const SDK: &[Need] = &[
    Need {
        programs: &["node"],
        files: &[],
        package: "nodejs",
        purpose: "SDK for TypeScript",
        is_met: || runs("node", "--version"),
    },
    Need {
        programs: &["tsc"],
        files: &[],
        package: "node-typescript",
        purpose: "SDK for TypeScript",
        is_met: || runs("tsc", "--version"),
    },
    Need {
        programs: &["java"],
        files: &[],
        package: "default-jre-headless",
        purpose: "generator of SDKs",
        is_met: || runs("java", "-version"),
    },
];

/// What shows the pages as people see them.
pub const BROWSER: &[Need] = &[
    Need {
        programs: &["chromium"],
        files: &[CHROMIUM],
        package: "chromium",
        purpose: "pages in a browser",
        is_met: || Path::new(CHROMIUM).exists(),
    },
    Need {
        programs: &["chromedriver"],
        files: &[],
        package: "chromium-driver",
        purpose: "pages in a browser",
        is_met: || runs("chromedriver", "--version"),
    },
    Need {
        programs: &[],
        files: &[FONTS],
        package: "fonts-dejavu-core",
        purpose: "pages in a browser",
        is_met: || Path::new(FONTS).exists(),
    },
];

/// Other programs.
pub const TOOLS: &[Need] = &[
    Need {
        programs: &["strip"],
        files: &[],
        package: "binutils",
        purpose: "Python wheel with the service",
        is_met: || runs("strip", "--version"),
    },
    Need {
        programs: &["curl"],
        files: &[],
        package: "curl",
        purpose: "commands of the documents",
        is_met: || runs("curl", "--version"),
    },
    Need {
        programs: &["promtool"],
        files: &[],
        package: "prometheus",
        purpose: "alerts, tried out",
        is_met: || runs("promtool", "--version"),
    },
    Need {
        programs: &["git"],
        files: &[],
        package: "git",
        purpose: "planted bugs",
        is_met: || runs("git", "--version"),
    },
    Need {
        programs: &["gcc"],
        files: &[],
        package: "gcc",
        purpose: "a library in an engine's place, which tries to leave its box",
        is_met: || runs("gcc", "--version"),
    },
    Need {
        programs: &["g++"],
        files: &[],
        package: "g++",
        purpose: "kernels for GPUs on emulated hardware",
        is_met: cxx,
    },
];

/// All that the tests need.
pub fn all() -> Vec<&'static Need> {
    [SERVERS, SDK, BROWSER, TOOLS]
        .into_iter()
        .flatten()
        .collect()
}

/// Installs what is missing.
pub fn install<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Result<()> {
    let missing: Vec<&Need> = needs.into_iter().filter(|need| !(need.is_met)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let purposes: Vec<&str> = missing.iter().map(|need| need.purpose).collect();
    system::install(&packages, &purposes.join("; "))?;
    for need in missing {
        ensure!(
            (need.is_met)(),
            "the package `{}` has not what is wanted for {}, {}: install it in another way",
            need.package,
            need.purpose,
            [need.programs, need.files].concat().join(" or ")
        );
    }
    Ok(())
}

/// Whether a program can be started.
fn runs(program: &str, version: &str) -> bool {
    let found = shell::succeeds(shell::command(program).arg(version));
    if found {
        say(format!("{program}: found"));
    }
    found
}

fn cxx() -> bool {
    let named = std::env::var(CXX);
    runs(named.as_deref().unwrap_or("g++"), "--version")
}

/// Whether the library is where the tests look for it.
fn faketime() -> bool {
    let library = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    folders(LIBRARIES).any(|folder| library(folder).exists())
}

/// Functions of streams and scripts as of Redis 7; Valkey begins where Redis 7.2 ended.
fn redis() -> bool {
    [("redis-server", 7), ("valkey-server", 8)]
        .into_iter()
        .any(|(program, oldest)| {
            let version = shell::output(shell::command(program).arg("--version"));
            // `Redis server v=7.0.15 sha=..`
            let version = version.unwrap_or_default();
            let major = version.split("v=").nth(1).and_then(major);
            major.is_some_and(|major| is_recent(program, major, oldest))
        })
}

fn postgres() -> bool {
    let installed = folders(POSTGRES).map(|folder| folder.join("bin"));
    let on_path = [PathBuf::new()];
    installed.chain(on_path).any(|bin| {
        // One belongs to the server's package, the other to the client's as well.
        let initdb = shell::output(shell::command(bin.join("initdb")).arg("--version"));
        let program = bin.join("postgres");
        // `initdb (PostgreSQL) 15.18 (..)`
        let initdb = initdb.unwrap_or_default();
        let major = initdb.split(") ").nth(1).and_then(major);
        shell::succeeds(shell::command(&program).arg("--version"))
            && major.is_some_and(|major| is_recent(&program, major, POSTGRES_OLDEST))
    })
}

fn folders(parent: &str) -> impl Iterator<Item = PathBuf> {
    let folders = std::fs::read_dir(parent).into_iter().flatten().flatten();
    folders.map(|folder| folder.path())
}

fn major(version: &str) -> Option<u32> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn is_recent(program: impl AsRef<Path>, major: u32, oldest: u32) -> bool {
    let program = program.as_ref().display();
    if major < oldest {
        say(format!("{program} {major}: too old, {oldest} is wanted"));
        return false;
    }
    say(format!("{program} {major}: found"));
    true
}

#[cfg(test)]
mod tests;
