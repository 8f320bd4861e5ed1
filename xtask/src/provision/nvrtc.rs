//! NVIDIA's run-time compilers, taken out of their PyPI wheels: 88 MB for each version of CUDA, fetched for
//! `cargo xtask gpu-test --compile-only` alone. They compile without a GPU.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::wheel::{Member, Wheel};
use crate::shell::say;

/// A compiler of one toolkit.
pub struct Compiler {
    version: &'static str,
    /// The package, without its version.
    package: &'static str,
    /// The libraries' folder in the wheel.
    folder: &'static str,
    /// Names of the compiler and of its builtins.
    libraries: [&'static str; 2],
    pins: [Pin; 2],
}

/// SHA-256 of the wheel for a machine and of the libraries in it.
struct Pin {
    machine: &'static str,
    platform: &'static str,
    file: &'static str,
    wheel: &'static str,
    libraries: [&'static str; 2],
}

/// Of the toolkits that the engine runs with.
pub const COMPILERS: [Compiler; 2] = [
    Compiler {
        version: "12.8.93",
        package: "nvidia-cuda-nvrtc-cu12",
        folder: "nvidia/cuda_nvrtc/lib",
        libraries: ["libnvrtc.so.12", "libnvrtc-builtins.so.12.8"],
        pins: [
            Pin {
                machine: "x86_64",
                platform: "manylinux_2_12_x86_64",
                file: "nvidia_cuda_nvrtc_cu12-12.8.93-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
                wheel: "a7756528852ef889772a84c6cd89d41dfa74667e24cca16bb31f8f061e3e9994",
                libraries: [
                    "43731e24cd89e3749826304f304e8aa11fbecf1188715271b1f5018d6212b5e6",
                    "eccaa824230ee7858a94a3055cb01f1cb634df05d313880d0bdcf195161fcb4e",
                ],
            },
            Pin {
                machine: "aarch64",
                platform: "manylinux_2_17_aarch64",
                file: "nvidia_cuda_nvrtc_cu12-12.8.93-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
                wheel: "fc1fec1e1637854b4c0a65fb9a8346b51dd9ee69e61ebaccc82058441f15bce8",
                libraries: [
                    "0b703c99c16057bc8131458acb2880f4eafad273ce0a9e58679e3db667b0b5bf",
                    "ed835e23d384a62986f30ca02b67e2e776da62f51302740a67ed3482e36632b2",
                ],
            },
        ],
    },
    Compiler {
        version: "13.0.88",
        package: "nvidia-cuda-nvrtc",
        folder: "nvidia/cu13/lib",
        libraries: ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"],
        pins: [
            Pin {
                machine: "x86_64",
                platform: "manylinux_2_12_x86_64",
                file: "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
                wheel: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
                libraries: [
                    "a49e67e8e74590f1e98de55c39c6287efd3f59e3c3797464d7bbe0fe01349b11",
                    "91dcd944d01da9c0f08fff5d779db136a47f6d62bdb63bae900d2f481e92c3a2",
                ],
            },
            Pin {
                machine: "aarch64",
                platform: "manylinux_2_17_aarch64",
                file: "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
                wheel: "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
                libraries: [
                    "64db9c3fc128f4a57a22c314fda08831a8e3a725d439a70076a0fb98f7bea1b7",
                    "84f1c5031bfe1146375b367b2c7fb8d31ea00430be7172177eeb5d04ab813b69",
                ],
            },
        ],
    },
];

// === impl Compiler ===

impl Compiler {
    /// The folder with the libraries, downloading them if they are not there or not the pinned ones.
    pub fn ensure(&self, cache: &Path, python: &Path) -> Result<PathBuf> {
        let version = self.version;
        let pin = self.pin()?;
        let folder = cache.join(format!("nvrtc-{version}"));
        let members = || self.libraries.into_iter().zip(pin.libraries);
        let is_there = |(name, sha256): (&str, &'static str)| {
            let member = Member { path: name, sha256 };
            member.is_at(&folder.join(name)).unwrap_or(false)
        };
        if members().all(is_there) {
            say(format!("NVRTC {version}: {}", folder.display()));
            return Ok(folder);
        }
        say(format!("NVRTC {version}: downloading its wheel from PyPI"));
        let downloads = cache.join("downloads-nvrtc");
        let wheel = Wheel {
            requirement: &format!("{}=={version}", self.package),
            platform: pin.platform,
            file: pin.file,
            sha256: pin.wheel,
        };
        let wheel = wheel.download(python, &downloads)?;
        std::fs::create_dir_all(&folder)?;
        for (name, sha256) in members() {
            let path = &format!("{}/{name}", self.folder);
            Member { path, sha256 }.extract(python, &wheel, &folder.join(name))?;
        }
        std::fs::remove_dir_all(&downloads)?;
        say(format!(
            "NVRTC {version}: checksums match, now at {}",
            folder.display()
        ));
        Ok(folder)
    }

    fn pin(&self) -> Result<&Pin> {
        let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
        let mut pins = self.pins.iter();
        let found = pins.find(|pin| system == "linux" && pin.machine == machine);
        found.with_context(|| {
            format!(
                "no NVRTC is pinned for `{system}` on `{machine}`: kernels are compiled on Linux on x86-64 and arm64"
            )
        })
    }
}
