//! An arena whose pages can be mapped elsewhere: CUDA's virtual memory management.
//!
//! Entry points: [`granularity`] says whether the device supports it; [`PagedArena::new`].
//!
//! One range of addresses is reserved for arena and windows. Each page is a piece of physical memory. It is mapped
//! permanently at its place in the arena and, for reading, wherever [`PagedArena::map`] puts it. The same memory at two
//! addresses is coherent as long as nothing reads it while something writes it (CUDA's programming guide, "Virtual
//! aliasing support"). LOAD ensures this: a model runs only when its pages are filled. An earlier mapping that is left
//! in a window does no harm, because nothing reads it. It is unmapped when the next mapping comes, which saves calls if
//! the same pages come back.

use std::{ops::Range, sync::Arc, time::Instant};

use cudarc::driver::{CudaContext, DriverError, sys};
use parking_lot::Mutex;
use sextant_engine::Error;

use super::errors::driver_error;
use crate::{
    driver::{Paging, Reservation},
    operation::Address,
};

/// The functions that are needed. Drivers before CUDA 10.2 lack them.
const FUNCTIONS: [&[u8]; 8] = [
    b"cuMemAddressFree\0",
    b"cuMemAddressReserve\0",
    b"cuMemCreate\0",
    b"cuMemGetAllocationGranularity\0",
    b"cuMemMap\0",
    b"cuMemRelease\0",
    b"cuMemSetAccess\0",
    b"cuMemUnmap\0",
];

/// A paged arena; see the module. The parts are freed in this order.
pub(super) struct PagedArena {
    windows: Windows,
    /// The arena's own mappings.
    mapped: Vec<MappedRange>,
    /// The pages, and the rest of the arena behind them.
    physical: Vec<Physical>,
    reserved: AddressRange,
    arena_bytes: u64,
}

struct Windows {
    paging: Paging,
    /// First address of the windows on the device.
    start: sys::CUdeviceptr,
    access: sys::CUmemAccessDesc,
    /// The page in each slot.
    slots: Mutex<Vec<Option<u32>>>,
}

/// A reserved range of addresses.
struct AddressRange {
    start: sys::CUdeviceptr,
    bytes: u64,
}

/// Physical memory without an address.
struct Physical {
    handle: sys::CUmemGenericAllocationHandle,
    bytes: u64,
}

/// Physical memory mapped at an address.
struct MappedRange {
    start: sys::CUdeviceptr,
    bytes: u64,
}

/// The unit in which the device maps memory, bytes; `None` if it cannot map memory.
pub(super) fn granularity(context: &CudaContext) -> Option<u64> {
    let supported =
        sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if !has_functions() || context.attribute(supported).unwrap_or(0) == 0 {
        tracing::info!(
            "the device cannot map pages: a model in other pages has its graphs captured again"
        );
        return None;
    }
    let mut bytes = 0;
    let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let of = properties(context);
    // SAFETY: the function was found; reads and writes live variables.
    let result =
        unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &raw const of, recommended) };
    match result.result() {
        Ok(()) if bytes.is_power_of_two() => Some(bytes as u64),
        other => {
            tracing::warn!(?other, bytes, "the device does not say how it maps pages");
            None
        }
    }
}

fn has_functions() -> bool {
    FUNCTIONS.iter().all(|name| {
        // SAFETY: the driver is loaded, or there would be no context; the address is not called.
        unsafe { sys::culib().get::<unsafe extern "C" fn()>(*name) }.is_ok()
    })
}

fn location(context: &CudaContext) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: context.cu_device(),
    }
}

/// Properties of memory on the device that is not shared with other processes.
fn properties(context: &CudaContext) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

// === impl PagedArena ===

impl PagedArena {
    /// Takes memory and addresses, and tests whether pages can be mapped elsewhere. The context must be bound.
    pub(super) fn new(
        context: &Arc<CudaContext>,
        reservation: &Reservation,
        paging: Paging,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let refused = || Error::Failed("the device does not map pages".to_owned());
        let unit = granularity(context).ok_or_else(refused)?;
        let reserved = AddressRange::new(paging.range().end.get())?;
        let of = properties(context);
        let mut arena = Self {
            windows: Windows {
                paging,
                start: reserved.start + paging.windows.get(),
                access: sys::CUmemAccessDesc {
                    location: location(context),
                    flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                },
                slots: Mutex::new(vec![None; paging.slots as usize]),
            },
            mapped: Vec::new(),
            physical: Vec::new(),
            reserved,
            arena_bytes: reservation.arena_bytes,
        };
        let paged = u64::from(paging.pages) * paging.page_bytes;
        let rest = (reservation.arena_bytes - paged).next_multiple_of(unit);
        let pages = (0..paging.pages).map(|_| paging.page_bytes);
        for bytes in pages.chain((rest > 0).then_some(rest)) {
            arena.add(Physical::new(bytes, &of)?)?;
        }
        arena.windows.allow(arena.reserved.start, paged + rest)?;
        arena.windows.trial(&arena.physical)?;
        let milliseconds = started.elapsed().as_millis();
        let pages = paging.pages;
        tracing::info!(
            pages,
            paging.page_bytes,
            unit,
            milliseconds,
            "pages can be mapped"
        );
        Ok(arena)
    }

    /// Maps the next piece of the arena.
    fn add(&mut self, physical: Physical) -> Result<(), Error> {
        let end = self.mapped.last().map(|it| it.start + it.bytes);
        let start = end.unwrap_or(self.reserved.start);
        self.mapped.push(MappedRange::new(start, &physical)?);
        self.physical.push(physical);
        Ok(())
    }

    /// The arena's address on the device.
    pub(super) fn start(&self) -> sys::CUdeviceptr {
        self.reserved.start
    }

    pub(super) fn bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// The windows' addresses.
    pub(super) fn windows(&self) -> Range<Address> {
        self.windows.paging.range()
    }

    /// Maps pages into a window in place of what was there. The context must be bound.
    pub(super) fn map(&self, window: Address, pages: &[u32]) -> Result<(), Error> {
        self.windows.map(&self.physical, window, pages)
    }
}

// === impl Windows ===

impl Windows {
    fn map(&self, physical: &[Physical], window: Address, pages: &[u32]) -> Result<(), Error> {
        let range = self.paging.slots_of(window, pages)?;
        let mut slots = self.slots.lock();
        let mut at = range.start;
        while at < range.end {
            let moves = |slot: usize| slots[slot] != Some(pages[slot - range.start]);
            let end = (at..range.end)
                .find(|slot| !moves(*slot))
                .unwrap_or(range.end);
            let run = at..end;
            self.replace(
                &mut slots,
                physical,
                run,
                &pages[at - range.start..end - range.start],
            )?;
            at = end + 1;
        }
        Ok(())
    }

    /// Maps other pages into neighbouring slots.
    fn replace(
        &self,
        slots: &mut [Option<u32>],
        physical: &[Physical],
        run: Range<usize>,
        pages: &[u32],
    ) -> Result<(), Error> {
        self.clear(slots, run.clone())?;
        let mut mapped = Vec::new();
        for (slot, page) in run.clone().zip(pages) {
            mapped.push(MappedRange::new(self.at(slot), &physical[*page as usize])?);
        }
        if !mapped.is_empty() {
            self.allow(
                self.at(run.start),
                run.len() as u64 * self.paging.page_bytes,
            )?;
        }
        // From here on, the slots record what is mapped.
        mapped.into_iter().for_each(std::mem::forget);
        for (slot, page) in run.zip(pages) {
            slots[slot] = Some(*page);
        }
        Ok(())
    }

    /// Unmaps what is mapped in neighbouring slots.
    fn clear(&self, slots: &mut [Option<u32>], run: Range<usize>) -> Result<(), Error> {
        let mut at = run.start;
        while at < run.end {
            let gap = (at..run.end).find(|slot| slots[*slot].is_none());
            let end = gap.unwrap_or(run.end);
            if at < end {
                self.unmap(slots, at..end)?;
            }
            at = end + 1;
        }
        Ok(())
    }

    /// Unmaps neighbouring slots in one call, or one by one if the driver accepts only one mapping a call.
    fn unmap(&self, slots: &mut [Option<u32>], run: Range<usize>) -> Result<(), Error> {
        let page_bytes = self.paging.page_bytes;
        if unmap(self.at(run.start), run.len() as u64 * page_bytes).is_ok() {
            slots[run].fill(None);
            return Ok(());
        }
        for slot in run {
            unmap(self.at(slot), page_bytes).map_err(driver_error)?;
            slots[slot] = None;
        }
        Ok(())
    }

    /// Allows the device to read and write what is mapped.
    fn allow(&self, start: sys::CUdeviceptr, bytes: u64) -> Result<(), Error> {
        // SAFETY: the range is mapped, and the description is alive.
        let result =
            unsafe { sys::cuMemSetAccess(start, bytes as usize, &raw const self.access, 1) };
        result.result().map_err(driver_error)
    }

    /// Maps two pages, and the same two in reverse order, before anything relies on it.
    fn trial(&self, physical: &[Physical]) -> Result<(), Error> {
        let mut pages: Vec<u32> = (0..self.paging.pages.min(2)).collect();
        self.map(physical, self.paging.windows, &pages)?;
        pages.reverse();
        self.map(physical, self.paging.windows, &pages)
    }

    fn at(&self, slot: usize) -> sys::CUdeviceptr {
        self.start + slot as u64 * self.paging.page_bytes
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        let mut slots = std::mem::take(&mut *self.slots.lock());
        let all = 0..slots.len();
        if let Err(error) = self.clear(&mut slots, all) {
            tracing::warn!(%error, "windows of a CUDA device stay mapped");
        }
    }
}

// === impl AddressRange ===

impl AddressRange {
    fn new(bytes: u64) -> Result<Self, Error> {
        let mut start = 0;
        // SAFETY: writes to a live variable.
        let result = unsafe { sys::cuMemAddressReserve(&raw mut start, bytes as usize, 0, 0, 0) };
        result.result().map_err(driver_error)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: reserved with this size and freed once; what was mapped there was unmapped before.
        let result = unsafe { sys::cuMemAddressFree(self.start, self.bytes as usize) };
        note(result.result());
    }
}

// === impl Physical ===

impl Physical {
    fn new(bytes: u64, of: &sys::CUmemAllocationProp) -> Result<Self, Error> {
        let mut handle = 0;
        // SAFETY: reads and writes live variables.
        let result = unsafe { sys::cuMemCreate(&raw mut handle, bytes as usize, of, 0) };
        result.result().map_err(driver_error)?;
        Ok(Self { handle, bytes })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: created and released once. What still maps it keeps the memory.
        let result = unsafe { sys::cuMemRelease(self.handle) };
        note(result.result());
    }
}

// === impl MappedRange ===

impl MappedRange {
    fn new(start: sys::CUdeviceptr, physical: &Physical) -> Result<Self, Error> {
        let bytes = physical.bytes;
        // SAFETY: the range is reserved, nothing is mapped there, and the handle is alive.
        let result = unsafe { sys::cuMemMap(start, bytes as usize, 0, physical.handle, 0) };
        result.result().map_err(driver_error)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        note(unmap(self.start, self.bytes));
    }
}

fn unmap(start: sys::CUdeviceptr, bytes: u64) -> Result<(), DriverError> {
    // SAFETY: all of the range is mapped, each piece in whole, and no work uses it: the engine maps windows of models
    // that do not run, and the driver waits for its device before the arena goes.
    unsafe { sys::cuMemUnmap(start, bytes as usize) }.result()
}

/// Logs what cannot be freed; nothing more can be done.
fn note(result: Result<(), DriverError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "memory of a CUDA device is not freed");
    }
}
