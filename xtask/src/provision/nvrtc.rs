//! NVIDIA's run-time compiler, taken out of its PyPI wheel: 88 MB, fetched for
//! `cargo xtask gpu-test --compile-only` alone. It compiles without a GPU.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::wheel::{Member, Wheel};
use crate::shell::say;

/// Of the CUDA 12 toolkit.
const VERSION: &str = "12.8.93";

/// SHA-256 of the wheel and of the libraries in it.
struct Pin {
    platform: &'static str,
    file: &'static str,
    wheel: &'static str,
    compiler: &'static str,
    builtins: &'static str,
}

const X86_64: Pin = Pin {
    platform: "manylinux_2_12_x86_64",
    file: "nvidia_cuda_nvrtc_cu12-12.8.93-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    wheel: "a7756528852ef889772a84c6cd89d41dfa74667e24cca16bb31f8f061e3e9994",
    compiler: "43731e24cd89e3749826304f304e8aa11fbecf1188715271b1f5018d6212b5e6",
    builtins: "eccaa824230ee7858a94a3055cb01f1cb634df05d313880d0bdcf195161fcb4e",
};
const AARCH64: Pin = Pin {
    platform: "manylinux_2_17_aarch64",
    file: "nvidia_cuda_nvrtc_cu12-12.8.93-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
    wheel: "fc1fec1e1637854b4c0a65fb9a8346b51dd9ee69e61ebaccc82058441f15bce8",
    compiler: "0b703c99c16057bc8131458acb2880f4eafad273ce0a9e58679e3db667b0b5bf",
    builtins: "ed835e23d384a62986f30ca02b67e2e776da62f51302740a67ed3482e36632b2",
};

/// The folder with the libraries, downloading them if they are not there or not the pinned ones.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    let pin = pin()?;
    let folder = cache.join(format!("nvrtc-{VERSION}"));
    let members = [
        ("libnvrtc.so.12", pin.compiler),
        ("libnvrtc-builtins.so.12.8", pin.builtins),
    ];
    let is_there = |(name, sha256): &(&str, &'static str)| {
        let member = Member { path: name, sha256 };
        member.is_at(&folder.join(name)).unwrap_or(false)
    };
    if members.iter().all(is_there) {
        say(format!("NVRTC {VERSION}: {}", folder.display()));
        return Ok(folder);
    }
    say(format!("NVRTC {VERSION}: downloading its wheel from PyPI"));
    let downloads = cache.join("downloads-nvrtc");
    let wheel = Wheel {
        requirement: &format!("nvidia-cuda-nvrtc-cu12=={VERSION}"),
        platform: pin.platform,
        file: pin.file,
        sha256: pin.wheel,
    };
    let wheel = wheel.download(python, &downloads)?;
    std::fs::create_dir_all(&folder)?;
    for (name, sha256) in members {
        let path = &format!("nvidia/cuda_nvrtc/lib/{name}");
        Member { path, sha256 }.extract(python, &wheel, &folder.join(name))?;
    }
    std::fs::remove_dir_all(&downloads)?;
    say(format!(
        "NVRTC {VERSION}: checksums match, now at {}",
        folder.display()
    ));
    Ok(folder)
}

fn pin() -> Result<&'static Pin> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok(&X86_64),
        ("linux", "aarch64") => Ok(&AARCH64),
        (system, machine) => bail!(
            "no NVRTC is pinned for `{system}` on `{machine}`: install the CUDA toolkit 12 and name \
             its folder in `SEXTANT_CUDA_LIBRARIES`"
        ),
    }
}
