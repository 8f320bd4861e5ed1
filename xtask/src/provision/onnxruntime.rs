//! The ONNX Runtime library, taken out of its PyPI wheel.
//!
//! The wheel's tag names a CPython version, but the library inside does not depend on it: one tag
//! is pinned, whatever Python runs here.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::wheel::{Member, Wheel};
use crate::shell::say;

/// The version that `crates/engines/engine-ort` is built for.
const VERSION: &str = "1.31.1";

/// SHA-256 of the wheel and of the library in it.
struct Pin {
    platform: &'static str,
    wheel: &'static str,
    library: &'static str,
}

const X86_64: Pin = Pin {
    platform: "manylinux_2_28_x86_64",
    wheel: "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536",
    library: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3",
};
const AARCH64: Pin = Pin {
    platform: "manylinux_2_28_aarch64",
    wheel: "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc",
    library: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467",
};

/// The library's path, downloading it if it is not there or not the pinned one.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    let pin = pin()?;
    let folder = cache.join(format!("onnxruntime-{VERSION}"));
    let library = folder.join(format!("libonnxruntime.so.{VERSION}"));
    let member = Member {
        path: &format!("onnxruntime/capi/libonnxruntime.so.{VERSION}"),
        sha256: pin.library,
    };
    if member.is_at(&library)? {
        say(format!("ONNX Runtime {VERSION}: {}", library.display()));
        return Ok(library);
    }
    say(format!(
        "ONNX Runtime {VERSION}: downloading its wheel from PyPI"
    ));
    let downloads = cache.join("downloads");
    let wheel = Wheel {
        requirement: &format!("onnxruntime=={VERSION}"),
        platform: pin.platform,
        file: &format!("onnxruntime-{VERSION}-cp312-cp312-{}.whl", pin.platform),
        sha256: pin.wheel,
    };
    let wheel = wheel.download(python, &downloads)?;
    std::fs::create_dir_all(&folder)?;
    member.extract(python, &wheel, &library)?;
    std::fs::remove_dir_all(&downloads)?;
    say(format!(
        "ONNX Runtime {VERSION}: checksums match, now at {}",
        library.display()
    ));
    Ok(library)
}

fn pin() -> Result<&'static Pin> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok(&X86_64),
        ("linux", "aarch64") => Ok(&AARCH64),
        (system, machine) => bail!(
            "no ONNX Runtime is pinned for `{system}` on `{machine}`: install version {VERSION} \
             yourself and set `ORT_DYLIB_PATH`"
        ),
    }
}
