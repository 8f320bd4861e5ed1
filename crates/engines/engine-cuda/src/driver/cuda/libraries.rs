//! Finding NVIDIA's libraries.
//!
//! The graphics driver brings libcuda. NVRTC, cuBLASLt and cuDNN come with the CUDA toolkit, which the system's loader
//! knows, or as Python packages, whose folders no loader knows. A library that is found is first loaded by its path;
//! the loader then uses it for every later request by name. The search order is: the folders that
//! `SEXTANT_CUDA_LIBRARIES` names, the loader, the packages of this machine's Python. If there are two versions of
//! CUDA, the newer one that the graphics driver can run is used. ONNX Runtime's providers need further libraries, of
//! CUDA 13.

use std::path::{Path, PathBuf};

use cudarc::{cublaslt, cudnn, driver, nvrtc};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use sextant_engine::{Error, python_packages};

use super::errors::{driver_error, unavailable};

/// Folders to look in before the loader's own, separated by colons.
const FOLDERS: &str = "SEXTANT_CUDA_LIBRARIES";

/// A library by the beginning of its file name, and the versions in which it may come.
struct LibrarySpec {
    name: &'static str,
    versions: &'static [u32],
    /// The libraries that it loads by name from its own folder. They are loaded before it, in the same version.
    needs: &'static [&'static str],
}

/// The versions of CUDA, the newest first.
const TOOLKITS: &[u32] = &[13, 12];

const WANTED: [LibrarySpec; 3] = [
    LibrarySpec {
        name: "libnvrtc",
        versions: TOOLKITS,
        needs: &["libnvrtc-builtins"],
    },
    LibrarySpec {
        name: "libcublasLt",
        versions: TOOLKITS,
        needs: &[],
    },
    LibrarySpec {
        name: "libcudnn",
        versions: &[9],
        needs: &["libcudnn_graph"],
    },
];

/// The libraries that ONNX Runtime's providers need, each after those that it needs itself.
const PROVIDERS_WANT: [LibrarySpec; 10] = [
    plain("libcudart", &[13]),
    plain("libnvJitLink", &[13]),
    LibrarySpec {
        name: "libnvrtc",
        versions: &[13],
        needs: &["libnvrtc-builtins"],
    },
    plain("libcublasLt", &[13]),
    plain("libcublas", &[13]),
    plain("libcurand", &[10]),
    plain("libcufft", &[12]),
    LibrarySpec {
        name: "libcudnn",
        versions: &[9],
        needs: &[
            "libcudnn_graph",
            "libcudnn_ops",
            "libcudnn_cnn",
            "libcudnn_adv",
        ],
    },
    plain("libnvinfer", &[10]),
    plain("libnvonnxparser", &[10]),
];

const fn plain(name: &'static str, versions: &'static [u32]) -> LibrarySpec {
    LibrarySpec {
        name,
        versions,
        needs: &[],
    }
}

/// Loads the libraries that Sextant's own engine needs.
pub(super) fn preload() {
    preload_these(&WANTED);
}

/// Loads the libraries that ONNX Runtime's providers need.
pub(super) fn preload_for_providers() {
    preload_these(&PROVIDERS_WANT);
}

fn preload_these(these: &[LibrarySpec]) {
    let configured = std::env::var_os(FOLDERS).unwrap_or_default();
    let configured: Vec<PathBuf> = std::env::split_paths(&configured)
        .flat_map(|folder| below(&folder))
        .collect();
    let packages: Vec<PathBuf> = python_packages()
        .iter()
        .flat_map(|folder| below(&folder.join("nvidia")))
        .collect();
    let newest = newest_toolkit();
    for wanted in these {
        let versions = wanted.in_order(newest);
        let _loaded = wanted.load_from(&configured, &versions)
            || wanted.load_by_name(&versions)
            || wanted.load_from(&packages, &versions);
    }
}

// === impl LibrarySpec ===

impl LibrarySpec {
    /// The versions to try. Versions that the graphics driver cannot run come last.
    fn in_order(&self, newest: u32) -> Vec<u32> {
        let mut versions = self.versions.to_vec();
        if self.versions == TOOLKITS {
            versions.sort_by_key(|version| *version > newest);
        }
        versions
    }

    /// Whether one of the versions lies in one of the folders and can be loaded.
    fn load_from(&self, folders: &[PathBuf], versions: &[u32]) -> bool {
        versions.iter().any(|version| {
            folders.iter().any(|folder| {
                let find = |name: &str| {
                    let wanted = format!("{name}.so.{version}");
                    files(folder).into_iter().find(|it| starts(it, &wanted))
                };
                let Some(file) = find(self.name) else {
                    return false;
                };
                let needed = self.needs.iter().filter_map(|name| find(name));
                needed.for_each(|file| _ = load(&file));
                load(&file)
            })
        })
    }

    /// Whether the loader finds one of the versions by itself.
    fn load_by_name(&self, versions: &[u32]) -> bool {
        versions
            .iter()
            .any(|version| open(Path::new(&format!("{}.so.{version}", self.name))).is_ok())
    }
}

/// Whether a file can be loaded; logs why not.
fn load(file: &Path) -> bool {
    open(file)
        .inspect_err(
            |error| tracing::warn!(file = %file.display(), %error, "cannot load a library"),
        )
        .is_ok()
}

fn open(file: &Path) -> Result<(), libloading::Error> {
    // SAFETY: loading runs the initialisers of a library that the operator chose by naming its folder, by installing
    // it or by the `PATH`; NVIDIA's have no requirements on the caller. The handle is leaked, so that nothing that
    // was looked up in it can dangle.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }?;
    let _kept = library.into_raw();
    Ok(())
}

/// The newest CUDA that the graphics driver runs; the newest known version if the driver does not say.
fn newest_toolkit() -> u32 {
    let version = has_driver().then(|| driver_version().ok()).flatten();
    version.map_or(TOOLKITS[0], |version| version.unsigned_abs() / 1000)
}

/// Whether the graphics driver is there.
pub(super) fn has_driver() -> bool {
    // SAFETY: looks for a library by loading it, which has no requirements.
    unsafe { driver::sys::is_culib_present() }
}

/// Whether cuDNN is there.
pub(super) fn has_cudnn() -> bool {
    // SAFETY: looks for a library by loading it, which has no requirements.
    unsafe { cudnn::sys::is_culib_present() }
}

/// Fails and names a missing library. cudarc panics when a missing library is called, so this check comes first.
pub(super) fn require() -> Result<(), Error> {
    require_driver()?;
    require_compiler()?;
    // SAFETY: looks for a library by loading it, which has no requirements.
    let cublaslt = unsafe { cublaslt::sys::is_culib_present() };
    require_library(cublaslt, "libcublasLt.so", "nvidia-cublas")
}

/// Fails if the graphics driver is missing.
pub(super) fn require_driver() -> Result<(), Error> {
    if has_driver() {
        return Ok(());
    }
    Err(unavailable(
        "the NVIDIA driver (libcuda.so.1) is missing: install version 525 or newer, 580 for CUDA 13, or \
         serve without this engine"
            .to_owned(),
    ))
}

/// Fails and names what is missing for compiling kernels.
pub(super) fn require_compiler() -> Result<(), Error> {
    // SAFETY: looks for a library by loading it, which has no requirements.
    let nvrtc = unsafe { nvrtc::sys::is_culib_present() };
    require_library(nvrtc, "libnvrtc.so", "nvidia-cuda-nvrtc")
}

fn require_library(found: bool, library: &str, package: &str) -> Result<(), Error> {
    if found {
        return Ok(());
    }
    Err(unavailable(format!(
        "neither `{library}.13` nor `{library}.12` is there: install the CUDA toolkit 13 or 12, or the Python package \
         `{package}` (CUDA 13) or `{package}-cu12`, for the `python3` on the path or in a folder that `{FOLDERS}` names"
    )))
}

/// The CUDA version that the graphics driver supports.
pub(super) fn driver_version() -> Result<i32, Error> {
    let mut version = 0;
    // SAFETY: writes one number to the address, which is that of a live variable.
    let result = unsafe { driver::sys::cuDriverGetVersion(&raw mut version) };
    result.result().map_err(driver_error)?;
    Ok(version)
}

/// The folders to search: the folder itself, its `lib` and `lib64`, and the `lib` of each folder in it, where the
/// Python packages below `nvidia/` have their libraries.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![
        folder.to_path_buf(),
        folder.join("lib"),
        folder.join("lib64"),
    ];
    let packages = files(folder).into_iter().map(|package| package.join("lib"));
    found.extend(packages.filter(|lib| lib.is_dir()));
    found
}

/// The contents of a folder, sorted; empty if it cannot be read.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn starts(file: &Path, wanted: &str) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(wanted))
}
