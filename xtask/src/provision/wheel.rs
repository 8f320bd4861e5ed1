//! Libraries taken out of pinned PyPI wheels.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths::sha256;
use crate::shell;

/// A wheel for one platform.
pub struct Wheel<'a> {
    /// `name==version`.
    pub requirement: &'a str,
    /// The platform's tag.
    pub platform: &'a str,
    /// The file's name.
    pub file: &'a str,
    /// SHA-256 of the file.
    pub sha256: &'a str,
}

/// A file in a wheel.
pub struct Member<'a> {
    /// Its path in the wheel.
    pub path: &'a str,
    /// SHA-256 of its content.
    pub sha256: &'a str,
}

// === impl Wheel ===

impl Wheel<'_> {
    /// Downloads the wheel into a folder and checks it.
    pub fn download(&self, python: &Path, into: &Path) -> Result<PathBuf> {
        shell::run(
            shell::command(python)
                .args([
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--only-binary=:all:",
                ])
                .args(["--implementation", "cp", "--python-version", "3.12"])
                .args(["--platform", self.platform, "--dest"])
                .arg(into)
                .arg(self.requirement),
        )?;
        let file = into.join(self.file);
        check(&file, self.sha256)?;
        Ok(file)
    }
}

// === impl Member ===

impl Member<'_> {
    /// Whether the file is there and the pinned one.
    pub fn is_at(&self, place: &Path) -> Result<bool> {
        Ok(place.exists() && sha256(place)? == self.sha256)
    }

    /// Writes it beside its final place and moves it there, so that it is whole or absent.
    pub fn extract(&self, python: &Path, wheel: &Path, place: &Path) -> Result<()> {
        const SCRIPT: &str = "import sys, zipfile, shutil\n\
            with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as source, open(sys.argv[3], 'wb') as to:\n\
            \x20   shutil.copyfileobj(source, to)";
        let part = place.with_extension("part");
        shell::output(
            shell::command(python)
                .args(["-c", SCRIPT])
                .arg(wheel)
                .arg(self.path)
                .arg(&part),
        )?;
        check(&part, self.sha256)?;
        std::fs::rename(&part, place)
            .with_context(|| format!("cannot move the library to `{}`", place.display()))
    }
}

fn check(file: &Path, expected: &str) -> Result<()> {
    let found = sha256(file)?;
    if found != expected {
        bail!(
            "`{}` has SHA-256 `{found}`, pinned is `{expected}`",
            file.display()
        );
    }
    Ok(())
}
