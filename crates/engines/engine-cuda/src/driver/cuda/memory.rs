//! The arena, the pinned staging area and the libraries' scratch memory.

use std::{ffi::c_void, ptr::NonNull, sync::Arc};

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use sextant_engine::Error;

use super::{errors::driver_error, paged::PagedArena};
use crate::{
    driver::{Reservation, StagingAddress},
    operation::Address,
};

/// All memory that this process has on a device, made once.
pub(super) struct Memory {
    arena: Arena,
    scratch: Allocation,
    staging: Staging,
}

enum Arena {
    /// An arena whose pages cannot be mapped elsewhere.
    Fixed(Allocation),
    Paged(PagedArena),
}

/// Device memory.
struct Allocation {
    context: Arc<CudaContext>,
    start: sys::CUdeviceptr,
    bytes: u64,
}

/// Pinned host memory.
struct Staging {
    context: Arc<CudaContext>,
    start: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the pointer is to memory that belongs to the process, not to a thread. Reads and writes
// through a shared reference are of ranges that the contract of `Driver` keeps apart: what a copy or
// another thread uses is left alone until it is done.
unsafe impl Send for Staging {}
// SAFETY: as above.
unsafe impl Sync for Staging {}

// === impl Memory ===

impl Memory {
    pub(super) fn new(
        context: &Arc<CudaContext>,
        reservation: &Reservation,
    ) -> Result<Self, Error> {
        context.bind_to_thread().map_err(driver_error)?;
        Ok(Self {
            arena: Arena::new(context, reservation)?,
            scratch: Allocation::new(context, reservation.scratch_bytes)?,
            staging: Staging::new(context, reservation.staging_bytes)?,
        })
    }

    /// The arena's address on the device.
    pub(super) fn arena(&self) -> u64 {
        self.arena.start()
    }

    pub(super) fn has_windows(&self) -> bool {
        matches!(self.arena, Arena::Paged(_))
    }

    /// Maps pages into a window.
    pub(super) fn map(&self, window: Address, pages: &[u32]) -> Result<(), Error> {
        match &self.arena {
            Arena::Paged(arena) => arena.map(window, pages),
            Arena::Fixed(_) => Err(Error::Failed("there are no windows".to_owned())),
        }
    }

    /// Scratch memory of the libraries: its address on the device and its size in bytes. Only operations of one stream
    /// may use it at a time; the engine executes in one stream.
    pub(super) fn scratch(&self) -> (u64, u64) {
        (self.scratch.start, self.scratch.bytes)
    }

    pub(super) fn write_staging(&self, to: StagingAddress, bytes: &[u8]) -> Result<(), Error> {
        let target = self.staging.at(to, bytes.len() as u64)?;
        // SAFETY: the target range lies in the staging area; it cannot overlap `bytes`, which is
        // memory that Rust knows.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    pub(super) fn read_staging(&self, from: StagingAddress, bytes: &mut [u8]) -> Result<(), Error> {
        let source = self.staging.at(from, bytes.len() as u64)?;
        // SAFETY: the source range lies in the staging area, which was zeroed when it was made; it
        // cannot overlap `bytes`, which is memory that Rust knows.
        unsafe { source.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }

    pub(super) fn copy_in(
        &self,
        stream: &CudaStream,
        from: StagingAddress,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        let source = self.staging.at(from, bytes)?;
        let target = self.arena.at(to, bytes)?;
        // SAFETY: both ranges were checked and live as long as the driver, which waits for its
        // device before it frees them; the stream belongs to the bound context.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(
                target,
                source.as_ptr() as *const c_void,
                bytes as usize,
                stream.cu_stream(),
            )
        };
        result.result().map_err(driver_error)
    }

    /// The device addresses at which a kernel reads a range of the staging area and writes a range of the arena. Pinned
    /// memory has the same address on the device.
    pub(super) fn mapped(
        &self,
        from: StagingAddress,
        to: Address,
        bytes: u64,
    ) -> Result<(u64, u64), Error> {
        let source = self.staging.at(from, bytes)?;
        Ok((source.as_ptr() as u64, self.arena.at(to, bytes)?))
    }

    pub(super) fn copy_out(
        &self,
        stream: &CudaStream,
        from: Address,
        to: StagingAddress,
        bytes: u64,
    ) -> Result<(), Error> {
        let source = self.arena.read_at(from, bytes)?;
        let target = self.staging.at(to, bytes)?;
        // SAFETY: as in `copy_in`.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                target.as_ptr().cast(),
                source,
                bytes as usize,
                stream.cu_stream(),
            )
        };
        result.result().map_err(driver_error)
    }

    pub(super) fn copy_within(
        &self,
        stream: &CudaStream,
        from: Address,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        let source = self.arena.read_at(from, bytes)?;
        let target = self.arena.at(to, bytes)?;
        // SAFETY: as in `copy_in`.
        let result = unsafe {
            sys::cuMemcpyDtoDAsync_v2(target, source, bytes as usize, stream.cu_stream())
        };
        result.result().map_err(driver_error)
    }
}

// === impl Arena ===

impl Arena {
    /// Makes the arena, with windows if they are desired and possible.
    fn new(context: &Arc<CudaContext>, reservation: &Reservation) -> Result<Self, Error> {
        if let Some(paging) = reservation.paging {
            match PagedArena::new(context, reservation, paging) {
                Ok(arena) => return Ok(Self::Paged(arena)),
                Err(error) => tracing::warn!(
                    %error,
                    "pages cannot be mapped: a model in other pages has its graphs captured again"
                ),
            }
        }
        Allocation::new(context, reservation.arena_bytes).map(Self::Fixed)
    }

    /// First address on the device.
    fn start(&self) -> sys::CUdeviceptr {
        match self {
            Self::Fixed(allocation) => allocation.start,
            Self::Paged(arena) => arena.start(),
        }
    }

    fn at(&self, address: Address, bytes: u64) -> Result<sys::CUdeviceptr, Error> {
        let size = match self {
            Self::Fixed(allocation) => allocation.bytes,
            Self::Paged(arena) => arena.bytes(),
        };
        check(address.get(), bytes, size)?;
        Ok(self.start() + address.get())
    }

    /// The device address of a range that is read; windows are allowed.
    fn read_at(&self, address: Address, bytes: u64) -> Result<sys::CUdeviceptr, Error> {
        match self {
            Self::Paged(arena) if arena.windows().contains(&address) => {
                check(address.get(), bytes, arena.windows().end.get())?;
                Ok(self.start() + address.get())
            }
            _ => self.at(address, bytes),
        }
    }
}

// === impl Allocation ===

impl Allocation {
    fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, Error> {
        // An allocation of no bytes is an error to CUDA.
        // SAFETY: the context is bound; nothing reads the memory before operations wrote it.
        let start =
            unsafe { result::malloc_sync(bytes.max(256) as usize) }.map_err(driver_error)?;
        Ok(Self {
            context: context.clone(),
            start,
            bytes,
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: from `malloc_sync`, freed once; the driver waits for its device before this.
        self.context
            .record_err(unsafe { result::free_sync(self.start) });
    }
}

// === impl Staging ===

impl Staging {
    fn new(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, Error> {
        let size = bytes.max(256) as usize;
        // Not write-combined: outputs are read from it.
        // SAFETY: the context is bound; the memory is written below before anything reads it.
        let start = unsafe { result::malloc_host(size, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start = start.map_err(driver_error)?;
        let null = || Error::OutOfMemory("no pinned host memory".into());
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(null)?;
        // SAFETY: the allocation has `size` bytes.
        unsafe { start.write_bytes(0, size) };
        Ok(Self {
            context: context.clone(),
            start,
            bytes,
        })
    }

    fn at(&self, address: StagingAddress, bytes: u64) -> Result<NonNull<u8>, Error> {
        check(address.get(), bytes, self.bytes)?;
        // SAFETY: inside the allocation, as was checked.
        Ok(unsafe { self.start.add(address.get() as usize) })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: from `malloc_host`, freed once; the driver waits for its device before this.
        self.context
            .record_err(unsafe { result::free_host(self.start.as_ptr().cast()) });
    }
}

fn check(address: u64, bytes: u64, size: u64) -> Result<(), Error> {
    match address.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Failed(format!(
            "a copy of {bytes} bytes at {address} leaves the {size} bytes that there are"
        ))),
    }
}
