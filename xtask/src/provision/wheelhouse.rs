//! What the service's wheel depends on, as files: a test installs it from them into an empty environment.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::python;
use crate::shell::{self, say};

/// The packages, in the versions of `xtask/requirements.txt`.
const PACKAGES: [&str; 5] = [
    "flatbuffers",
    "numpy",
    "onnxruntime",
    "packaging",
    "protobuf",
];

/// The list of what is in the folder.
const LIST: &str = "list.txt";

/// The list of the folder `wheelhouse` in the cache, filled where it is missing or differs.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    let folder = cache.join("wheelhouse");
    let list = folder.join(LIST);
    let pins = python::pins_of(&PACKAGES);
    let wanted = pins.join("\n");
    if fs::read_to_string(&list).is_ok_and(|found| found == wanted) {
        say(format!("wheels: {}", folder.display()));
        return Ok(list);
    }
    say(format!("wheels: downloading {}", pins.join(" ")));
    let download = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
    ];
    shell::run(
        shell::command(python)
            .args(download)
            .args(["--only-binary", ":all:", "--no-deps", "--dest"])
            .arg(&folder)
            .args(&pins),
    )?;
    fs::write(&list, wanted)?;
    Ok(list)
}
