//! What this machine has, as far as the process may use it.

use std::{fs, thread};

use sextant_types::WorkerId;

/// Memory that is assumed where the system does not tell: 4 GiB.
const ASSUMED_MEMORY_BYTES: u64 = 4 << 30;

/// Cores that the process may use (affinity and control-group quota included).
pub fn cores() -> u16 {
    thread::available_parallelism()
        .map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX))
}

/// Bytes of memory that the process may use: the smaller of the machine's and the control group's.
pub fn memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of(&text));
    let group = ["memory.max", "memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|file| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok())
        .filter_map(|text| text.trim().parse().ok())
        .min();
    let known = machine.into_iter().chain(group);
    known.min().unwrap_or(ASSUMED_MEMORY_BYTES)
}

/// The machine's name as the name of a worker, where it has one that can be.
pub fn name() -> Option<WorkerId> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_ascii_lowercase();
    WorkerId::new(name.split('.').next()?).ok()
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kibibytes() {
        let text = "MemTotal:       16384 kB\nMemFree:        1 kB\n";
        assert_eq!(total_of(text), Some(16 << 20));
        assert_eq!(total_of("nothing"), None);
    }

    #[test]
    fn the_machine_has_something() {
        assert!(cores() >= 1);
        assert!(memory_bytes() > 1 << 20);
    }
}
