//! Peak resident memory of this process, from `/proc`.
//!
//! Engines allocate outside this program's allocator, so the need of a variant is measured as the growth of the process
//! between two moments. The kernel keeps the peak; writing `5` to `clear_refs` resets it. Growth is a lower bound: an
//! allocator that reuses memory that earlier work freed does not grow.
//!
//! If the process does nothing else, the memory that was touched between the two moments is a better bound. Writing `1`
//! to `clear_refs` makes the kernel record anew which pages are used. Pages that were unmapped meanwhile are not
//! counted, nor are pages that the processor still has in its translation buffer, a few megabytes at most; so the
//! larger of the two figures counts. The caller never accepts less than the size of weights and tensors.
//!
//! An engine with memory of its own reports what it holds there; the process does not measure it.

use std::{
    fs,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};

/// The source of a figure for peak memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// Growth of the process's peak.
    Measured,
    /// What the engine holds on its device.
    Device,
    /// Weights, inputs and outputs added up.
    Estimated {
        /// Why it was not measured.
        reason: String,
    },
}

/// A moment from which growth is counted.
#[derive(Debug, Clone)]
pub struct Baseline {
    resident: Result<u64, String>,
    in_own_process: bool,
}

impl Baseline {
    /// Begins to count; `in_own_process` if this process does nothing else meanwhile.
    pub fn take(in_own_process: bool) -> Self {
        let reset = reset(in_own_process)
            .map_err(|e| format!("the process's peak memory cannot be reset: {e}"));
        Self {
            resident: reset.and_then(|()| read("VmRSS:")),
            in_own_process,
        }
    }

    /// Resets the peak; growth is still counted from the beginning. If the peak cannot be reset, growth includes memory
    /// that was freed meanwhile.
    pub fn lower_peak(&self) {
        reset(self.in_own_process).ok();
    }

    /// The growth of the process at its peak, bytes, or the memory that it has touched if that is more; the error says
    /// why neither is known. Takes some milliseconds if the process does nothing else.
    pub fn growth(&self) -> Result<u64, String> {
        let grown = self.grown()?;
        match self.in_own_process {
            true => Ok(grown.max(touched()?)),
            false => Ok(grown),
        }
    }

    /// The growth of the process at its peak, bytes; less than [`Self::growth`] if it reuses memory.
    pub fn grown(&self) -> Result<u64, String> {
        let before = self.resident.clone()?;
        Ok(read("VmHWM:")?.saturating_sub(before))
    }
}

/// Bytes that this process has in memory now, if known.
pub(crate) fn resident() -> Option<u64> {
    read("VmRSS:").ok()
}

/// Peak memory of something that needs at least `floor` bytes, from the growth of the process.
pub fn peak(growth: Result<u64, String>, floor: u64) -> (u64, MemorySource) {
    match growth {
        Ok(growth) if growth >= floor => (growth, MemorySource::Measured),
        Ok(growth) => {
            let reason = format!(
                "the process grew by `{growth}` bytes, less than weights and tensors occupy"
            );
            (floor, MemorySource::Estimated { reason })
        }
        Err(reason) => (floor, MemorySource::Estimated { reason }),
    }
}

/// Resets the peak to the present memory and, if `touched` is set, the record of touched pages. The file is not
/// truncated first: a confined process may only write to it.
fn reset(touched: bool) -> io::Result<()> {
    let orders: &[&[u8]] = match touched {
        true => &[b"5", b"1"],
        false => &[b"5"],
    };
    orders.iter().try_for_each(|order| {
        let mut counter = fs::OpenOptions::new()
            .write(true)
            .open("/proc/self/clear_refs")?;
        counter.write_all(order)
    })
}

fn read(field: &str) -> Result<u64, String> {
    let status = fs::read_to_string("/proc/self/status");
    let status = status.map_err(|e: io::Error| format!("memory cannot be read: {e}"))?;
    parse(&status, field).ok_or_else(|| format!("`{field}` is not in /proc/self/status"))
}

/// Bytes of memory that belong to no file and were touched since the last reset.
fn touched() -> Result<u64, String> {
    let maps = fs::read_to_string("/proc/self/smaps");
    let maps = maps.map_err(|e: io::Error| format!("memory cannot be read: {e}"))?;
    Ok(touched_of(&maps))
}

/// Some pages of one mapping may belong to a file.
fn touched_of(maps: &str) -> u64 {
    let (mut sum, mut referenced) = (0, 0);
    for line in maps.lines() {
        if let Some(bytes) = parse(line, "Referenced:") {
            referenced = bytes;
        }
        if let Some(bytes) = parse(line, "Anonymous:") {
            sum += bytes.min(referenced);
        }
    }
    sum
}

/// `VmRSS:     1234 kB` in bytes.
fn parse(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!(parse(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(parse(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(parse(status, "VmSwap:"), None);
    }

    #[test]
    fn counts_touched_pages_that_belong_to_no_file() {
        let maps = "1000-2000 r-xp 00000000 fe:00 18504 /usr/lib/x\nReferenced:  64 kB\nAnonymous:  0 kB\n\
            2000-9000 rw-p 00000000 00:00 0\nReferenced:  8 kB\nAnonymous:  28 kB\n";
        assert_eq!(touched_of(maps), 8 << 10);
    }

    /// One test, because the peak is one for the whole process.
    #[test]
    fn sees_a_large_allocation_even_after_it_is_gone() {
        let baseline = Baseline::take(false);
        let buffer = vec![1u8; 64 << 20];
        assert!(std::hint::black_box(&buffer).iter().all(|byte| *byte == 1));
        drop(buffer);
        match peak(baseline.growth(), 1 << 20) {
            (peak, MemorySource::Measured) => assert!(peak >= 60 << 20, "{peak}"),
            // A sandbox may hide the counters, and the result then says so.
            (peak, MemorySource::Estimated { reason }) => {
                assert_eq!(peak, 1 << 20, "{reason}");
                assert!(baseline.growth().is_err(), "{reason}");
            }
            (_, MemorySource::Device) => unreachable!("the process knows of no device"),
        }
        sees_what_is_used_again();
        let (peak, source) = peak(baseline.growth(), u64::MAX);
        assert_eq!(peak, u64::MAX);
        assert!(matches!(source, MemorySource::Estimated { .. }));
    }

    /// Reused memory makes the process not grow, and is seen when it is touched.
    fn sees_what_is_used_again() {
        const BYTES: u64 = 64 << 20;
        let mut buffer = vec![1u8; BYTES as usize];
        let alone = Baseline::take(true);
        let (Ok(before), Ok(among_others)) = (alone.growth(), Baseline::take(false).growth())
        else {
            return;
        };
        assert!(before < BYTES / 2 && among_others < BYTES / 2);
        std::hint::black_box(&mut buffer).fill(2);
        let touched = alone.growth().expect("it was known before");
        assert!(touched >= BYTES / 8 * 7, "{touched}");
        let grown = Baseline::take(false).growth().expect("it was known before");
        assert!(grown < BYTES / 2, "{grown}");
    }
}
