//! OpenVINO, taken out of its PyPI wheel: only the libraries that run ONNX files on processors.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::wheel::{Member, Wheel};
use crate::shell::say;

/// The version that `crates/engines/engine-openvino` is built for.
const VERSION: &str = "2026.4.1";

/// The library that the engine loads; it finds the others beside itself.
const LIBRARY: &str = "libopenvino_c.so.2641";

/// SHA-256 of the wheel and of the libraries in it.
struct Pin {
    platform: &'static str,
    wheel: &'static str,
    libraries: [(&'static str, &'static str); 5],
}

const X86_64: Pin = Pin {
    platform: "manylinux_2_28_x86_64",
    wheel: "6b4375c17ddcac83a5180349e2e2bb811185c261066e2a920659892d58ef0e3b",
    libraries: [
        (
            LIBRARY,
            "d2d0836d422b21fc5da2739af0d6035df3fc6dd5e4756402eb848974edecf8a5",
        ),
        (
            "libopenvino.so.2641",
            "9b9a80ac1f18e07b13ed54459d9a865bcfe9dc170dbf8fe740c2974b85ecedc1",
        ),
        (
            "libopenvino_intel_cpu_plugin.so",
            "6599e3dd300d047b5ed72f8e48101c5f312c25321f35f57f803641ff8372900b",
        ),
        (
            "libopenvino_onnx_frontend.so.2641",
            "82d499f5b5e8514def7aaa1ecd5a9f570542d33ae9d00a0077f707cccd0e0192",
        ),
        (
            "libtbb.so.12",
            "ac9518497a4f2cb6729792730f145ee58367316031511923fef263c9ac81ca61",
        ),
    ],
};
const AARCH64: Pin = Pin {
    platform: "manylinux_2_35_aarch64",
    wheel: "82efccb2f9f1bdc7e5a1996e05a3b719ebff9232dd54b44150d6d2e983a86b7d",
    libraries: [
        (
            LIBRARY,
            "dfb34063847add4fe0689583633e74b69d7844e9e5a4b085476b0861c0b28f51",
        ),
        (
            "libopenvino.so.2641",
            "4a4ce9bb19ab78288b36ff39cbfebf1307c6b1ffda953b0c2b32129a8e89f04a",
        ),
        (
            "libopenvino_arm_cpu_plugin.so",
            "839cb0653151d0962e13a129b7b1ad2ffc700b5a1472e847cdcb83e523cf424e",
        ),
        (
            "libopenvino_onnx_frontend.so.2641",
            "2ea8eb7270401e9a1ccf4de9f5fc4bcb3177d00f431a8e9bfa24dfe19b7a4578",
        ),
        (
            "libtbb.so.12",
            "07ad125a3e19dbc40cf74ea6d4bd4c67ad7df5aaff9611178eea99592bc7a921",
        ),
    ],
};

/// The library's path, downloading it and its like if they are not there or not the pinned ones.
pub fn ensure(cache: &Path, python: &Path) -> Result<PathBuf> {
    let pin = pin()?;
    let folder = cache.join(format!("openvino-{VERSION}"));
    let library = folder.join(LIBRARY);
    let is_there = |(name, sha256): &(&str, &'static str)| {
        let member = Member { path: name, sha256 };
        member.is_at(&folder.join(name)).unwrap_or(false)
    };
    if pin.libraries.iter().all(is_there) {
        say(format!("OpenVINO {VERSION}: {}", library.display()));
        return Ok(library);
    }
    say(format!(
        "OpenVINO {VERSION}: downloading its wheel from PyPI"
    ));
    let downloads = cache.join("downloads-openvino");
    let wheel = Wheel {
        requirement: &format!("openvino=={VERSION}"),
        platform: pin.platform,
        file: &format!("openvino-{VERSION}-22982-cp312-cp312-{}.whl", pin.platform),
        sha256: pin.wheel,
    };
    let wheel = wheel.download(python, &downloads)?;
    std::fs::create_dir_all(&folder)?;
    // The one that is looked for comes last, when all that it needs is there.
    for (name, sha256) in pin.libraries.into_iter().rev() {
        let path = &format!("openvino/libs/{name}");
        Member { path, sha256 }.extract(python, &wheel, &folder.join(name))?;
    }
    std::fs::remove_dir_all(&downloads)?;
    say(format!(
        "OpenVINO {VERSION}: checksums match, now at {}",
        library.display()
    ));
    Ok(library)
}

fn pin() -> Result<&'static Pin> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok(&X86_64),
        ("linux", "aarch64") => Ok(&AARCH64),
        (system, machine) => bail!(
            "no OpenVINO is pinned for `{system}` on `{machine}`: install version {VERSION} yourself and set \
             `SEXTANT_OPENVINO_LIBRARY`"
        ),
    }
}
