//! The real driver over libraries that stand in for NVIDIA's. The driver's calls, the engine above it and the kernels
//! below it are tested together.

use std::{
    cell::LazyCell,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use sextant_engine::{LoadRequest, conformance::random_inputs};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::{
        Driver,
        cuda::{CudaDevice, CudaDriver},
    },
    suite::{loads, operators},
};
use sextant_engine_ort::OrtEngine;
use sextant_onnx::builder;
use sextant_types::{Digest, Optimization, Precision};

use crate::{emulator, packages::Packages};

/// Set in the process that has the libraries on its path.
const INSIDE: &str = "SEXTANT_TEST_STAND_IN";
const SEED: u64 = 31;

#[test]
fn operators_agree_over_the_real_driver() {
    test("operators_agree_over_the_real_driver", false, check);
}

#[test]
fn operators_agree_over_the_real_driver_with_a_library_for_convolutions() {
    let name = "operators_agree_over_the_real_driver_with_a_library_for_convolutions";
    test(name, true, check);
}

/// Only the graphics driver is needed if another library computes.
#[test]
fn a_device_for_another_library_says_what_it_is() {
    test(
        "a_device_for_another_library_says_what_it_is",
        false,
        |_| {
            let device = CudaDevice::open(0).expect("the stand-in opens");
            let bytes = 2 << 30;
            assert_eq!(device.properties().memory_bytes, bytes);
            assert_eq!(device.free_bytes(), Ok(bytes));
            let error = CudaDevice::open(7).err().expect("there is one device");
            assert!(
                error.to_string().contains("there is no device `cuda:7`"),
                "{error}"
            );
        },
    );
}

/// Without settings, CUDA's libraries are found as packages of the `python3` on the path. The graphics driver decides
/// between those of CUDA 12 and 13.
#[test]
fn libraries_are_found_among_the_packages_of_python() {
    for toolkit in [12, 13] {
        let packages = LazyCell::new(|| Packages::new(&[12, 13]));
        let version = toolkit.to_string();
        run_again(
            "libraries_are_found_among_the_packages_of_python",
            |command| packages.put(command).env("STAND_IN_CUDA", &version),
            || {
                let toolkit = std::env::var("STAND_IN_CUDA").expect("set above");
                let driver = CudaDriver::open(0).expect("all is found");
                assert!(driver.has_convolution());
                let maps = std::fs::read_to_string("/proc/self/maps").expect("this process");
                for name in ["libnvrtc", "libcublasLt"] {
                    let is_loaded = |of: &str| maps.contains(&format!("/{name}.so.{of}"));
                    assert!(is_loaded(&toolkit), "CUDA {toolkit}: {maps}");
                    let other = if toolkit == "12" { "13" } else { "12" };
                    assert!(!is_loaded(other), "CUDA {toolkit}: {maps}");
                }
            },
        );
    }
}

/// The error names what is missing in the words of both versions of CUDA.
#[test]
fn a_missing_library_is_named_with_the_packages_that_have_it() {
    let packages = LazyCell::new(|| Packages::new(&[]));
    run_again(
        "a_missing_library_is_named_with_the_packages_that_have_it",
        |command| packages.put(command),
        || {
            let error = CudaDriver::open(0).err().expect("libraries are missing");
            let text = error.to_string();
            let names = [
                "libnvrtc.so.13",
                "libnvrtc.so.12",
                "`nvidia-cuda-nvrtc`",
                "nvidia-cuda-nvrtc-cu12",
                "SEXTANT_CUDA_LIBRARIES",
            ];
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        },
    );
}

/// If a folder keeps compiled code, the compiler is not called again.
#[test]
fn kept_kernels_are_not_compiled_again() {
    let name = "kept_kernels_are_not_compiled_again";
    let packages = LazyCell::new(|| Packages::new(&[13]));
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [used, fresh] = &folders;
    for (folder, refuses) in [(used, None), (used, Some("1")), (fresh, Some("1"))] {
        let opens = std::ptr::eq(folder, used);
        run_again(
            name,
            |command| {
                let command = packages.put(command);
                command.env("SEXTANT_CUDA_KERNELS", folder.path());
                command.envs(refuses.map(|it| ("STAND_IN_REFUSES", it)));
                command.env("TEST_OPENS", if opens { "1" } else { "0" })
            },
            || {
                let opens = std::env::var("TEST_OPENS").as_deref() == Ok("1");
                let opened = CudaDriver::open(0).map(|_| ());
                assert_eq!(opened.is_ok(), opens, "{opened:?}");
            },
        );
    }
}

/// Models move between pages with their graphs. If the device cannot map memory or refuses, their graphs are captured
/// again. All memory is given back.
#[test]
fn models_move_between_pages_over_the_real_driver() {
    let name = "models_move_between_pages_over_the_real_driver";
    for mapping in ["all", "single", "none", "refused", "inaccessible"] {
        let folder = || libraries(&emulator::stand_in(), false);
        run_again(
            name,
            |command| {
                command.env("LD_LIBRARY_PATH", folder());
                command.env("STAND_IN_MAPPING", mapping)
            },
            || {
                let mapping = std::env::var("STAND_IN_MAPPING").expect("set above");
                move_models(["all", "single"].contains(&mapping.as_str()));
                let maps = std::fs::read_to_string("/proc/self/maps").expect("this process");
                assert!(!maps.contains("memfd:stand-in"), "{maps}");
                let files = std::fs::read_dir("/proc/self/fd").expect("this process");
                let files = files
                    .flatten()
                    .filter_map(|it| std::fs::read_link(it.path()).ok());
                let left = files.filter(|it| it.to_string_lossy().contains("stand-in (deleted)"));
                assert_eq!(left.collect::<Vec<_>>(), Vec::<PathBuf>::new());
            },
        );
    }
}

fn move_models(is_mapped: bool) {
    let start = |pages| {
        let driver = Arc::new(CudaDriver::open(0).expect("the stand-in opens"));
        let config = Config {
            pages: Some(pages),
            ..small()
        };
        CudaEngine::new(driver, config).expect("the device is large enough")
    };
    let file = builder::mlp(&[128, 256, 256, 10], 3);
    let named = |name: u32| LoadRequest {
        artefact: Digest::from_bytes([name as u8; 32]),
        model: file.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    let pages = loads::pages(&start(16), &named).expect("it loads");
    assert!(pages > 2, "{pages}");
    let engine = start(2 * pages);
    assert_eq!(engine.has_windows(), is_mapped);
    let mut answers = Vec::new();
    let moves = loads::other_pages(&engine, &named, 4, &mut |model| {
        answers.push(model.run(&random_inputs(model.signature(), &[3], 5))?);
        Ok(())
    });
    let moves = moves.expect("it loads");
    assert!(answers.iter().all(|it| *it == answers[0]), "{answers:?}");
    assert_eq!(answers.len(), 5);
    let mapping: Duration = moves.mapping.iter().sum();
    assert_eq!(mapping > Duration::ZERO, is_mapped);
}

fn test(name: &str, convolution: bool, check: fn(bool)) {
    let folder = || libraries(&emulator::stand_in(), convolution);
    run_again(
        name,
        |command| command.env("LD_LIBRARY_PATH", folder()),
        || check(convolution),
    );
}

/// Runs the test again in a new process, because the loader's path is read when a process starts.
fn run_again(name: &str, prepare: impl FnOnce(&mut Command) -> &mut Command, check: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return check();
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command
        .args(["--exact", &format!("stand_in::{name}"), "--nocapture"])
        .env(INSIDE, "1")
        .env_remove("SEXTANT_CUDA_LIBRARIES")
        .env_remove("SEXTANT_CUDA_KERNELS")
        .env_remove("STAND_IN_CUDA")
        .env_remove("STAND_IN_MAPPING");
    let output = prepare(&mut command).output().expect("this program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{said}\n{problem}");
}

/// A folder in which the library has the names that are looked up.
fn libraries(stand_in: &Path, convolution: bool) -> PathBuf {
    let ending = if convolution { "with-cudnn" } else { "without" };
    let folder = stand_in.with_extension(ending);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut names = vec!["libcuda.so.1", "libcublasLt.so.12", "libnvrtc.so.12"];
    names.extend(convolution.then_some("libcudnn.so.9"));
    for name in names {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(stand_in, link).expect("a link");
        }
    }
    folder
}

fn small() -> Config {
    Config {
        page_bytes: 64 << 10,
        pages: Some(16),
        workspace_bytes: 4 << 20,
        io_bytes: 1 << 20,
        scratch_bytes: 1 << 20,
        largest_batch: 4,
        host_bytes: 4 << 20,
    }
}

fn check(convolution: bool) {
    let driver = CudaDriver::open(0).expect("the stand-in opens");
    assert_eq!(driver.has_convolution(), convolution);
    let engine = CudaEngine::new(Arc::new(driver), small()).expect("the device is large enough");
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    let reference = OrtEngine::new(&library).expect("the library can be used");
    let comparisons = operators::all(&engine, &reference, SEED);
    let bad: Vec<String> = comparisons
        .iter()
        .filter(|comparison| !comparison.passed())
        .map(|comparison| format!("{comparison:?}"))
        .collect();
    assert!(bad.is_empty(), "seed {SEED}:\n{}", bad.join("\n"));
    assert!(!comparisons.is_empty());
}
