//! Finding NVIDIA's libraries.
//!
//! The graphics driver brings libcuda. NVRTC, cuBLASLt and cuDNN come with the CUDA toolkit or as
//! Python packages, whose folders no loader knows: `SEXTANT_CUDA_LIBRARIES` names them. Libraries found
//! there are loaded by path first; the loader then takes them for every later request by name. ONNX Runtime's
//! providers need further ones, of CUDA 13.

use std::path::{Path, PathBuf};

use cudarc::{cublaslt, cudnn, driver, nvrtc};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use sextant_engine::Error;

use super::errors::{driver_error, unavailable};

/// Folders to look in before the loader's own, separated by colons.
const FOLDERS: &str = "SEXTANT_CUDA_LIBRARIES";

/// Beginnings of file names, what others need first.
const WANTED: [&str; 5] = [
    "libnvrtc-builtins.so.12",
    "libnvrtc.so.12",
    "libcublasLt.so.12",
    "libcudnn_graph.so.9",
    "libcudnn.so.9",
];

/// Beginnings of the file names that ONNX Runtime's providers need, what others need first.
const PROVIDERS_WANT: [&str; 15] = [
    "libcudart.so.13",
    "libnvJitLink.so.13",
    "libnvrtc-builtins.so.13",
    "libnvrtc.so.13",
    "libcublasLt.so.13",
    "libcublas.so.13",
    "libcurand.so.10",
    "libcufft.so.12",
    "libcudnn_graph.so.9",
    "libcudnn_ops.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn.so.9",
    "libnvinfer.so.10",
    "libnvonnxparser.so.10",
];

/// Loads what Sextant's own engine needs of what lies in the folders that are configured.
pub(super) fn preload() {
    preload_these(&WANTED);
}

/// Loads what ONNX Runtime's providers need of it.
pub(super) fn preload_for_providers() {
    preload_these(&PROVIDERS_WANT);
}

fn preload_these(these: &[&str]) {
    let Some(folders) = std::env::var_os(FOLDERS) else {
        return;
    };
    let folders: Vec<PathBuf> = std::env::split_paths(&folders)
        .flat_map(|folder| below(&folder))
        .collect();
    for wanted in these {
        let files = folders.iter().flat_map(|folder| files(folder));
        let Some(file) = files.into_iter().find(|file| starts(file, wanted)) else {
            continue;
        };
        // SAFETY: loading runs the initialisers of a library that the operator chose by naming its
        // folder; NVIDIA's have no requirements on the caller. The handle is leaked, so that
        // nothing that was looked up in it can dangle.
        match unsafe { Library::open(Some(&file), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => {
                let _kept = library.into_raw();
            }
            Err(error) => tracing::warn!(file = %file.display(), %error, "cannot load a library"),
        }
    }
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

/// Says what is missing. cudarc panics when a missing library is called: this comes before.
pub(super) fn require() -> Result<(), Error> {
    require_driver()?;
    require_compiler()?;
    // SAFETY: looks for a library by loading it, which has no requirements.
    let cublaslt = unsafe { cublaslt::sys::is_culib_present() };
    require_library(cublaslt, "libcublasLt.so.12", "nvidia-cublas-cu12")
}

/// Says that the graphics driver is missing.
pub(super) fn require_driver() -> Result<(), Error> {
    if has_driver() {
        return Ok(());
    }
    Err(unavailable(
        "the NVIDIA driver (libcuda.so.1) is missing: install version 525 or newer, or serve \
         without this engine"
            .to_owned(),
    ))
}

/// Says what is missing for compiling kernels.
pub(super) fn require_compiler() -> Result<(), Error> {
    // SAFETY: looks for a library by loading it, which has no requirements.
    let nvrtc = unsafe { nvrtc::sys::is_culib_present() };
    require_library(nvrtc, "libnvrtc.so.12", "nvidia-cuda-nvrtc-cu12")
}

fn require_library(found: bool, library: &str, package: &str) -> Result<(), Error> {
    if found {
        return Ok(());
    }
    Err(unavailable(format!(
        "`{library}` is missing: install the CUDA toolkit 12, or the Python package `{package}` and \
         name its folder in `{FOLDERS}`"
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

/// A folder of libraries, or one that has them in `lib`, in `lib64`, or one level deeper, as the
/// Python packages below `nvidia/` do.
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

/// What lies in a folder, in order; nothing where it cannot be read.
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
