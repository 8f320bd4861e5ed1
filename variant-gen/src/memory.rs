//! Peak resident memory of this process, from `/proc`.
//!
//! Engines allocate behind our back, so what a variant needs is seen as growth of the process
//! between two moments. The kernel keeps the peak; writing `5` to `clear_refs` starts it again.
//! Growth is a lower bound: an allocator that reuses what earlier work freed does not grow.
//!
//! Where the process does nothing else, the memory that was touched between the two moments is a better bound. Writing
//! `1` to `clear_refs` makes the kernel note anew which pages are used. What was unmapped meanwhile is not among them,
//! nor are pages that the processor still has in its buffer of translations, a few megabytes at most: the larger of the
//! two figures counts. The caller never believes less than what weights and tensors occupy.
//!
//! An engine with memory of its own says what it holds there; the process has nothing to do with it.

use std::{
    fs,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};

/// Where a figure for peak memory comes from.
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
    /// Starts counting now; `in_own_process` where this process does nothing else meanwhile.
    pub fn take(in_own_process: bool) -> Self {
        let reset = reset(in_own_process)
            .map_err(|e| format!("the process's peak memory cannot be reset: {e}"));
        Self {
            resident: reset.and_then(|()| read("VmRSS:")),
            in_own_process,
        }
    }

    /// Forgets the peak so far; growth is still counted from where it was. Where that cannot be done, growth
    /// counts what was freed meanwhile.
    pub fn lower_peak(&self) {
        reset(self.in_own_process).ok();
    }

    /// Bytes by which the process has grown at its peak, or that it has touched where that is more; or why that is not
    /// known. Takes some milliseconds where the process does nothing else.
    pub fn growth(&self) -> Result<u64, String> {
        let grown = self.grown()?;
        match self.in_own_process {
            true => Ok(grown.max(touched()?)),
            false => Ok(grown),
        }
    }

    /// Bytes by which the process has grown at its peak; less than [`Self::growth`] where it uses memory again.
    pub fn grown(&self) -> Result<u64, String> {
        let before = self.resident.clone()?;
        Ok(read("VmHWM:")?.saturating_sub(before))
    }
}

/// Bytes that this process has in memory now, where that is known.
pub(crate) fn resident() -> Option<u64> {
    read("VmRSS:").ok()
}

/// Peak memory of something that cannot need less than `floor` bytes, where the process has grown by so many.
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

/// Sets the peak to what the process has now, and forgets which pages were touched where that is asked for. The file
/// is not cut off first: a confined process may only write to it.
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

/// Bytes of memory that belongs to no file and was touched since the last reset.
fn touched() -> Result<u64, String> {
    let maps = fs::read_to_string("/proc/self/smaps");
    let maps = maps.map_err(|e: io::Error| format!("memory cannot be read: {e}"))?;
    Ok(touched_of(&maps))
}

/// The pages of one mapping may be those of a file in part.
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
            // A sandbox may hide the counters; then it says so.
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

    /// Memory that was there before makes nothing grow, and is seen where it is touched.
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
