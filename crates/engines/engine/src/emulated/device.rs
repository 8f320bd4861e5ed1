//! An emulated device: memory in pages, one batch at a time, copies over a bus.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::jitter::{Draws, Jitter};
use crate::{Device, DeviceMemory, Error, Shortage, pages::PageShortage};

/// The properties of an emulated device.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatedDevice {
    /// `emulated:0`.
    pub name: String,
    /// Its page cache.
    pub memory: DeviceMemory,
    /// Speed of copies of inputs and outputs, bytes per second. The time that weights take is the
    /// model's [`super::EmulatedModel::load_ms`].
    pub bytes_per_s: f64,
    /// Factor by which it loads and runs faster than a model says.
    pub speed: f64,
    /// Delays of runs.
    pub runs: Jitter,
    /// Delays of loads.
    pub loads: Jitter,
    /// The delays' seed.
    pub seed: u64,
}

/// A device and its state.
pub(super) struct DeviceState {
    pub(super) device: EmulatedDevice,
    pub(super) runs: Draws,
    pub(super) loads: Draws,
    pages: Arc<Mutex<u64>>,
    executing: Mutex<()>,
}

/// Pages in use; dropping it frees them.
pub(super) struct PageGuard {
    pages: u64,
    free: Arc<Mutex<u64>>,
}

// === impl EmulatedDevice ===

impl EmulatedDevice {
    /// The device numbered `ordinal`, of the kind that Clockwork was measured on: 1,376 pages of 16
    /// MiB, 12.3 GB/s to the host, delays as in its figure 10.
    pub fn v100(ordinal: u32, seed: u64) -> Self {
        Self {
            name: format!("{}:{ordinal}", super::NAME),
            memory: DeviceMemory {
                page_bytes: 16 << 20,
                pages: 1376,
            },
            bytes_per_s: 12.3e9,
            speed: 1.0,
            runs: Jitter::RUNS,
            loads: Jitter::LOADS,
            seed: seed ^ u64::from(ordinal) << 32,
        }
    }
}

// === impl DeviceState ===

impl DeviceState {
    pub(super) fn new(device: EmulatedDevice) -> Self {
        Self {
            runs: Draws::new(device.seed),
            loads: Draws::new(!device.seed),
            pages: Arc::new(Mutex::new(device.memory.pages)),
            executing: Mutex::default(),
            device,
        }
    }

    pub(super) fn describe(&self) -> Device {
        Device::Dedicated {
            name: self.device.name.clone(),
            memory: self.device.memory,
        }
    }

    /// Takes the pages that `bytes` need.
    pub(super) fn hold(&self, bytes: u64) -> Result<PageGuard, Error> {
        let page_bytes = self.device.memory.page_bytes.max(1);
        let needed = bytes.div_ceil(page_bytes);
        let mut free = self.pages.lock();
        match free.checked_sub(needed) {
            Some(left) => *free = left,
            None => {
                let name = &self.device.name;
                let free = *free;
                let reason = format!(
                    "`{needed}` pages of `{page_bytes}` bytes are needed on `{name}`, `{free}` \
                     are free"
                );
                let short = PageShortage { needed, free };
                return Err(Error::OutOfMemory(Shortage::of_pages(reason, short)));
            }
        }
        Ok(PageGuard {
            pages: needed,
            free: Arc::clone(&self.pages),
        })
    }

    /// The device, for exclusive use.
    pub(super) fn executing(&self) -> MutexGuard<'_, ()> {
        self.executing.lock()
    }

    /// Time to copy `bytes`, milliseconds.
    pub(super) fn copy_ms(&self, bytes: usize) -> f64 {
        bytes as f64 / self.device.bytes_per_s * 1e3
    }
}

impl Drop for PageGuard {
    fn drop(&mut self) {
        *self.free.lock() += self.pages;
    }
}
