//! The lines above a table: where and with which version figures were made.

/// Machine and version. Simulated figures do not depend on them, but the time that they take does.
pub fn lines() -> String {
    format!(
        "machine: {}\nsextant: {}",
        machine(),
        env!("CARGO_PKG_VERSION")
    )
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or(std::env::consts::ARCH, |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = read("/proc/meminfo");
    let kibibytes: Option<f64> = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))
        .and_then(|size| size.trim().parse().ok());
    let memory = kibibytes.map_or_else(String::new, |size| {
        format!(", {:.0} GiB", size / 1024.0 / 1024.0)
    });
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{model}, {cores} cores{memory}, {} {}",
        std::env::consts::OS,
        kernel.trim()
    )
}
