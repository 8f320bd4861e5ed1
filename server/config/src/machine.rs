//! What this machine has, as far as the process may use it.

use std::{fs, path::Path, thread};

use sextant_types::WorkerId;

mod groups;

/// Memory that is assumed where the system does not tell: 4 GiB.
const ASSUMED_MEMORY_BYTES: u64 = 4 << 30;

/// Cores that the process may use: those that it may run on, and no more than the quotas of its control group and
/// of those around it pay for, both of which the standard library counts. A share of a core is left out; one core
/// there is always.
pub fn cores() -> u16 {
    thread::available_parallelism()
        .map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX))
}

/// Bytes of memory that the process may use: the least of the machine's and of the limits of its control group and
/// of those around it.
pub fn memory_bytes() -> u64 {
    memory_bytes_below(Path::new("/"))
}

/// The same of a machine whose files lie below `root`.
fn memory_bytes_below(root: &Path) -> u64 {
    let machine = fs::read_to_string(root.join("proc/meminfo"))
        .ok()
        .and_then(|text| total_of(&text));
    let known = machine.into_iter().chain(groups::memory_bytes(root));
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
mod tests;
