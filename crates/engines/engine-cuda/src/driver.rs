//! The interface between the engine and a device.
//!
//! Entry points: [`Driver`]; [`recording::RecordingDriver`] computes on the host and checks that the engine keeps the
//! contract; `cuda` is the real driver.
//!
//! All device memory is one arena. All host memory that the device reads or writes is one pinned staging area.
//! [`Driver::start`] makes both once. Addresses are byte offsets into them. Behind the arena there may be windows:
//! addresses without memory of their own, at which pages of the arena are read.

use std::{ops::Range, time::Duration};

use sextant_engine::Error;

use crate::operation::{Address, Operation, Staging};

pub mod cuda;
pub mod recording;

/// A byte offset into the pinned staging area.
pub type StagingAddress = Address<Staging>;

/// A queue of work; the work in one stream runs in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u32);

/// A point in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub u32);

/// A captured graph that can be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Graph(pub u32);

/// Which of the streams with work the device prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Weights and execution.
    Normal,
    /// Inputs and outputs: short copies that others wait for.
    High,
}

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// The maker's name for the device.
    pub name: String,
    /// Its number in this process: the `0` in `cuda:0`.
    pub ordinal: u32,
    /// Compute capability, major and minor. Brain floats and TF32 need 8.0.
    pub compute_capability: (u32, u32),
    /// All its memory, bytes.
    pub memory_bytes: u64,
}

/// Computations that not every device supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Convolutions by a library ([`crate::operation::Method::Library`]).
    pub convolution: bool,
    /// Attention in one kernel ([`crate::operation::Attention`]): on tensor cores of 8.0 or newer.
    pub attention: bool,
}

/// The memory that is made at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The arena, device memory that operations and copies address. Aligned to 256 bytes or more.
    pub arena_bytes: u64,
    /// The pinned staging area of the host.
    pub staging_bytes: u64,
    /// Device memory that belongs to the driver and that its libraries use while they compute.
    pub scratch_bytes: u64,
    /// The desired windows.
    pub paging: Option<Paging>,
}

/// Pages that can be mapped into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    /// Size of a page, a multiple of [`Driver::page_granularity`].
    pub page_bytes: u64,
    /// Number of pages; they begin at address 0 of the arena.
    pub pages: u32,
    /// First address of the windows: a multiple of `page_bytes`, not before the end of the arena.
    pub windows: Address,
    /// Number of pages for which all windows together have room.
    pub slots: u64,
}

// === impl Paging ===

impl Paging {
    /// All addresses of the windows.
    pub fn range(&self) -> Range<Address> {
        self.windows..self.windows + self.slots * self.page_bytes
    }

    /// The slots that `pages` take from an address of a window on.
    ///
    /// # Errors
    /// [`Error::Failed`] if the range is not inside the windows or a page is not one of the arena's.
    pub(crate) fn slots_of(&self, window: Address, pages: &[u32]) -> Result<Range<usize>, Error> {
        let wrong = || {
            Error::Failed(format!(
                "there is no window at {window:?} for pages {pages:?}"
            ))
        };
        let offset = window
            .get()
            .checked_sub(self.windows.get())
            .ok_or_else(wrong)?;
        let (first, count) = (offset / self.page_bytes, pages.len() as u64);
        let is_inside = offset.is_multiple_of(self.page_bytes) && first + count <= self.slots;
        if !is_inside || pages.iter().any(|page| *page >= self.pages) {
            return Err(wrong());
        }
        Ok(first as usize..(first + count) as usize)
    }
}

/// One device.
///
/// Contract:
/// - [`Self::start`] is called once, first; afterwards no call allocates pinned memory, and none but
///   [`Self::end_capture`] and [`Self::map`] device memory: a device keeps some of its own for a graph until it is
///   destroyed, and for tables of addresses.
/// - Copies and launches are asynchronous, in the order of their stream. Host memory that a copy
///   reads must stay as it is until the copy is done; what a copy wrote may be read from then on.
/// - A capture concerns the calling thread alone: others go on working in other streams.
/// - While a stream is captured, [`Self::launch`] and [`Self::copy_within`] on it are recorded and
///   not run; only one stream is captured at a time, and no other call is made on that stream.
/// - Calls may come from several threads at once.
/// - A page is written in the arena, and read there or in the window into which it was mapped last. Windows are only
///   read.
/// - Errors: [`Error::OutOfMemory`] when the memory asked for at the start is not there,
///   [`Error::Unsupported`] from [`Self::prepare`], [`Error::Lost`] after which nothing works
///   any more, else [`Error::Failed`]. Errors of asynchronous work come from a later call.
pub trait Driver: Send + Sync {
    /// The description of the device.
    fn properties(&self) -> &Properties;

    /// Free device memory now, bytes.
    fn free_bytes(&self) -> Result<u64, Error>;

    /// The clock of the multiprocessors now, MHz.
    fn clock_mhz(&self) -> Result<u32, Error>;

    /// Whether a library for convolutions is there
    /// ([`crate::operation::Method::Library`]).
    fn has_convolution(&self) -> bool;

    /// The operations that may be planned for the device.
    fn abilities(&self) -> Abilities {
        Abilities {
            convolution: self.has_convolution(),
            attention: self.properties().compute_capability >= (8, 0),
        }
    }

    /// The size of pages in windows must be a multiple of this, bytes; `None` where windows are impossible.
    fn page_granularity(&self) -> Option<u64>;

    /// Makes the arena and the staging area, and the windows if they are desired. Returns whether there are windows: a
    /// device that refuses them still has everything else.
    fn start(&self, reservation: &Reservation) -> Result<bool, Error>;

    /// Maps pages into a window, contiguously from `window` on, in place of what was there. This costs nothing if the
    /// pages are already there. Copies into the pages may be running, but nothing that reads the window.
    fn map(&self, window: Address, pages: &[u32]) -> Result<(), Error>;

    /// A new stream.
    fn create_stream(&self, priority: Priority) -> Result<Stream, Error>;

    /// Waits until everything in a stream is done.
    fn synchronize(&self, stream: Stream) -> Result<(), Error>;

    /// Writes into the staging area, on the calling thread.
    fn write_staging(&self, to: StagingAddress, bytes: &[u8]) -> Result<(), Error>;

    /// Reads from the staging area, on the calling thread.
    fn read_staging(&self, from: StagingAddress, bytes: &mut [u8]) -> Result<(), Error>;

    /// Copies from the staging area to the arena.
    fn copy_in(
        &self,
        stream: Stream,
        from: StagingAddress,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error>;

    /// Copies from the arena to the staging area.
    fn copy_out(
        &self,
        stream: Stream,
        from: Address,
        to: StagingAddress,
        bytes: u64,
    ) -> Result<(), Error>;

    /// Copies inside the arena.
    fn copy_within(
        &self,
        stream: Stream,
        from: Address,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error>;

    /// A new event. It counts as reached until it is recorded.
    fn create_event(&self) -> Result<Event, Error>;

    /// Puts the event into the stream behind the work that is there now. An earlier recording is forgotten.
    fn record(&self, event: Event, stream: Stream) -> Result<(), Error>;

    /// Makes work that enters the stream from now on wait until the event's last recording is reached.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), Error>;

    /// Blocks the calling thread until the event's last recording is reached.
    fn synchronize_event(&self, event: Event) -> Result<(), Error>;

    /// Device time between two events that have been reached.
    fn elapsed(&self, from: Event, to: Event) -> Result<Duration, Error>;

    /// Prepares what [`Self::launch`] of this operation needs: loads the kernel, lets the libraries choose an
    /// algorithm. It is called before the first launch of an operation and never while a stream is captured. It may be
    /// slow. [`Error::Unsupported`] if the device has no way to compute the operation.
    fn prepare(&self, operation: &Operation) -> Result<(), Error>;

    /// Puts a prepared operation into the stream.
    fn launch(&self, stream: Stream, operation: &Operation) -> Result<(), Error>;

    /// Makes the stream record from now on instead of running.
    fn begin_capture(&self, stream: Stream) -> Result<(), Error>;

    /// Ends the recording and makes a graph of it; [`Error::Failed`] if nothing was recorded. The recording ends even
    /// if this fails.
    fn end_capture(&self, stream: Stream) -> Result<Graph, Error>;

    /// Puts all of a graph into the stream.
    fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), Error>;

    /// Frees a graph that is not running.
    fn destroy_graph(&self, graph: Graph);
}
