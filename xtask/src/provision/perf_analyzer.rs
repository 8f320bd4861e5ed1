//! NVIDIA's perf_analyzer, taken out of an old wheel of tritonclient, with the libraries that it was linked to: newer
//! wheels have it no more.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::system;
use super::wheel::{Member, Wheel};
use crate::shell::{self, say};

/// Of the wheel.
const VERSION: &str = "2.41.0";

const PROGRAM: Wheel<'_> = Wheel {
    requirement: "tritonclient==2.41.0",
    platform: "manylinux1_x86_64",
    file: "tritonclient-2.41.0-py3-none-manylinux1_x86_64.whl",
    sha256: "cf4ed5df836fa99937678a9fd852f86ba05c7b83656dd0a540e20afdb9ab4629",
};

const RUNTIME: Wheel<'_> = Wheel {
    requirement: "nvidia-cuda-runtime-cu12==12.9.79",
    platform: "manylinux_2_17_x86_64",
    file: "nvidia_cuda_runtime_cu12-12.9.79-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
};

/// In which wheel, where there, and what it is called afterwards.
const MEMBERS: [(&Wheel<'_>, Member<'_>, &str); 2] = [
    (
        &PROGRAM,
        Member {
            path: "tritonclient-2.41.0.data/data/bin/perf_analyzer",
            sha256: "f1e1becf820f0b116d8d1745c50569e30d42ddace5a8bccf610914738bdacc8c",
        },
        "perf_analyzer",
    ),
    (
        &RUNTIME,
        Member {
            path: "nvidia/cuda_runtime/lib/libcudart.so.12",
            sha256: "256e6409e4f06f618e1fb53d4844a6b81cdded1013afa8ade40c22f99eb133b7",
        },
        "libcudart.so.12",
    ),
];

/// The folder of the program and its libraries; the error says why there is none.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("perf_analyzer {VERSION} is there for x86-64 alone");
    }
    let folder = cache.join(format!("perf-analyzer-{VERSION}"));
    std::fs::create_dir_all(&folder)?;
    let downloads = cache.join("downloads-perf-analyzer");
    for (wheel, member, name) in &MEMBERS {
        let place = folder.join(name);
        if member.is_at(&place)? {
            continue;
        }
        say(format!(
            "{}: downloading its wheel from PyPI",
            wheel.requirement
        ));
        let file = wheel.download(python, &downloads)?;
        member.extract(python, &file, &place)?;
        std::fs::remove_dir_all(&downloads)?;
    }
    allow_execution(&folder.join("perf_analyzer"))?;
    if !runs(&folder) {
        system::install(&["libb64-0d"], "perf_analyzer")?;
    }
    match runs(&folder) {
        true => Ok(folder),
        false => bail!("perf_analyzer {VERSION} does not start on this system"),
    }
}

/// The program, ready to be given arguments.
pub fn command(folder: &Path) -> Command {
    let mut command = shell::command(folder.join("perf_analyzer"));
    command.env("LD_LIBRARY_PATH", folder);
    command
}

fn runs(folder: &Path) -> bool {
    shell::succeeds(command(folder).arg("--version"))
}

fn allow_execution(program: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let allowed = std::fs::Permissions::from_mode(0o755);
    let set = std::fs::set_permissions(program, allowed);
    set.with_context(|| format!("`{}` cannot be made a program", program.display()))
}
