//! What the operating system reports on this process, under the names that Prometheus' own libraries use.
//!
//! It is read from `/proc` at each scrape; without `/proc` there are no such metrics.

use std::{fmt, fs, path::Path};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

/// Ticks of `/proc` in a second: Linux reports this rate to user space on every architecture that the service runs on.
const TICKS_PER_S: f64 = 100.0;

/// Collects the metrics of this process.
#[derive(Debug)]
struct Process;

/// A registry of its own: these names have no prefix.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process));
    registry
}

/// The fields of `/proc/self/stat` after the name in brackets.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stat {
    cpu_s: f64,
    threads: f64,
    /// Start of the process, seconds after the start of the machine.
    started_s: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may contain anything, also brackets and spaces.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc(5): the state is 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_s: (field(14)? + field(15)?) / TICKS_PER_S,
            threads: field(20)?,
            started_s: field(22)? / TICKS_PER_S,
        })
    }
}

/// The number after a name in a text with lines such as `VmRSS:  123 kB`.
fn number(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Most files that the process may open.
fn most_files(limits: &str) -> Option<f64> {
    number(limits, "Max open files")
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let proc = Path::new("/proc/self");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let stat = Stat::parse(&read(&proc.join("stat")));
        let status = read(&proc.join("status"));
        let bytes = |name: &str| number(&status, name).map(|kilobytes| kilobytes * 1024.0);
        let boot_s = number(&read(Path::new("/proc/stat")), "btime");
        let started_s = boot_s
            .zip(stat)
            .map(|(boot_s, stat)| boot_s + stat.started_s);
        let files = fs::read_dir(proc.join("fd")).ok();
        let files = files.map(|files| files.count() as f64);
        if let Some(stat) = stat {
            let help = "Time that the processors worked for this process";
            let (unit, kind) = (Some(&Unit::Seconds), MetricType::Counter);
            let encoder = encoder.encode_descriptor("process_cpu", help, unit, kind)?;
            ConstCounter::new(stat.cpu_s).encode(encoder)?;
        }
        let most = most_files(&read(&proc.join("limits")));
        for (name, help, unit, value) in [
            (
                "process_resident_memory",
                "Memory of this process that is in use",
                Some(Unit::Bytes),
                bytes("VmRSS:"),
            ),
            (
                "process_virtual_memory",
                "Address space of this process",
                Some(Unit::Bytes),
                bytes("VmSize:"),
            ),
            (
                "process_start_time",
                "When this process began, since the Unix epoch",
                Some(Unit::Seconds),
                started_s,
            ),
            (
                "process_threads",
                "Threads of this process",
                None,
                stat.map(|stat| stat.threads),
            ),
            (
                "process_open_fds",
                "Files and sockets that are open",
                None,
                files,
            ),
            (
                "process_max_fds",
                "Files and sockets that may be open",
                None,
                most,
            ),
        ] {
            if let Some(value) = value {
                let encoder =
                    encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
                ConstGauge::new(value).encode(encoder)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_field() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 9 0 12345 99 88\n";
        let wanted = Stat {
            cpu_s: 3.0,
            threads: 9.0,
            started_s: 123.45,
        };
        assert_eq!(Stat::parse(text), Some(wanted));
        assert_eq!(Stat::parse("7 (sextant) S 1"), None);
    }

    #[test]
    fn numbers_are_found_by_name() {
        let status = "Name:\tsextant\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!(number(status, "VmRSS:"), Some(1024.0));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(most_files(limits), Some(1024.0));
        let without = "Max open files  unlimited  unlimited  files\n";
        assert_eq!(most_files(without), None);
    }
}
