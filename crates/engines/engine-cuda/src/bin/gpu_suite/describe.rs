//! Describes the device and the compiled kernels.

use sextant_engine::Error;
use sextant_engine_cuda::driver::{Driver, cuda::CudaDriver};

use crate::{
    agreement,
    arguments::Arguments,
    record::{note, record},
    setup,
};

/// Beginnings of the names of libraries whose paths are printed.
const LIBRARIES: [&str; 5] = [
    "libcuda.so",
    "libnvrtc.so",
    "libcublasLt.so",
    "libcudnn.so",
    "libnvidia-ml.so",
];

/// Prints the device, and the versions of the libraries with the paths at which they were found.
pub fn device(arguments: &Arguments) -> Result<bool, Error> {
    let driver = setup::driver(arguments)?;
    let properties = driver.properties();
    let versions = driver.versions();
    let device = &properties.name;
    let (major, minor) = properties.compute_capability;
    let (nvrtc_major, nvrtc_minor) = versions.nvrtc;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let known = [
        ("memory", properties.memory_bytes as f64, "bytes"),
        ("memory_free", driver.free_bytes()? as f64, "bytes"),
        ("clock", f64::from(driver.clock_mhz()?), "MHz"),
        ("cores", cores as f64, "cores"),
    ];
    for (metric, value, unit) in known {
        record(device, metric, value, unit);
    }
    let cudnn = versions.cudnn.map(|version| version.to_string());
    let found = [
        ("compute_capability", format!("{major}.{minor}")),
        ("driver_cuda_version", versions.driver.to_string()),
        ("nvrtc_version", format!("{nvrtc_major}.{nvrtc_minor}")),
        ("cublaslt_version", versions.cublaslt.to_string()),
        (
            "cudnn_version",
            cudnn.unwrap_or_else(|| "missing".to_owned()),
        ),
    ];
    for (metric, text) in found {
        note(device, metric, &text);
    }
    for path in loaded() {
        note(device, "library", &path);
    }
    let reference = agreement::library();
    let path = reference.map_or_else(|| "missing".to_owned(), |it| it.display().to_string());
    note(device, "onnxruntime", &path);
    Ok(true)
}

/// Compiles all kernels for the devices that most servers have.
pub fn compile() -> Result<bool, Error> {
    for (major, minor) in [(8, 0), (9, 0)] {
        let sources = CudaDriver::compile((major, minor))?;
        let kernels: usize = sources.iter().map(|(names, _)| names.len()).sum();
        let bytes: usize = sources.iter().map(|(_, bytes)| bytes).sum();
        let (version, revision) = CudaDriver::compiler()?;
        let cell = format!("sm_{major}{minor}, NVRTC {version}.{revision}");
        record(&cell, "kernels_compiled", kernels as f64, "kernels");
        record(&cell, "machine_code", bytes as f64, "bytes");
    }
    Ok(true)
}

/// Paths of NVIDIA's libraries in this process.
fn loaded() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let is_wanted = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        LIBRARIES.iter().any(|library| name.starts_with(library))
    };
    let mut paths: Vec<String> = paths.filter(is_wanted).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    paths
}
