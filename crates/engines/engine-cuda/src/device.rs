//! The device as the models see it: streams, memory, and the locks on them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sextant_engine::Error;

use crate::{
    arena::{Layout, PageLease, Pages, Space, SpaceLease},
    driver::{Driver, Event, Graph, Priority, Reservation, StagingAddress, Stream},
    engine::Config,
    lower::ALIGNMENT,
    operation::{Address, Operation, Staging},
    parked::ParkedGraphs,
};

/// Staging chunks through which weights are copied: one is filled while another is copied.
const CHUNKS: u64 = 4;

/// Share of free memory that is left alone, as one part in this many, if the number of pages is not configured. Drivers
/// and libraries need memory of their own.
const LEFT_ALONE: u64 = 10;

pub(crate) struct Device {
    pub driver: Arc<dyn Driver>,
    pub layout: Layout,
    pub pages: Arc<Pages>,
    /// Device memory for inputs and outputs.
    pub io: Arc<Space>,
    /// Pinned memory for inputs and outputs.
    pub staging: Arc<Space<Staging>>,
    /// Pinned memory for the pages of models that can be loaded.
    pub pinned: Arc<Space<Staging>>,
    /// Addresses at which models read their pages; `None` where the device cannot map pages.
    windows: Option<Arc<Space>>,
    /// The graphs of models that are not on the device.
    pub parked: ParkedGraphs,
    /// Total time that mapping took, nanoseconds.
    mapping_ns: AtomicU64,
    pub input: Stream,
    pub output: Stream,
    capture: Mutex<Stream>,
    execution: Mutex<Execution>,
    loading: Mutex<Loading>,
    events: Mutex<Vec<Event>>,
}

/// Lock that the one executing batch holds.
pub(crate) struct Execution {
    pub stream: Stream,
    pub start: Event,
    pub end: Event,
}

/// Lock that the one loading model holds.
struct Loading {
    stream: Stream,
    /// Each event is reached when the copy of its chunk is done.
    copied: Vec<Event>,
    /// First staging address of the chunks.
    chunks: StagingAddress,
}

/// The bytes of a model's pages on the host.
pub(crate) enum Images {
    /// In pinned memory, contiguous: the device copies them by itself.
    Pinned {
        lease: SpaceLease<Staging>,
        lengths: Vec<u64>,
    },
    /// In ordinary memory: they are copied through the staging chunks.
    Ordinary(Vec<Bytes>),
}

// === impl Device ===

impl Device {
    pub fn start(driver: Arc<dyn Driver>, config: &Config) -> Result<Arc<Self>, Error> {
        let granularity = driver.page_granularity();
        let layout = layout(&*driver, config, granularity)?;
        let chunks = Address::new(layout.io_bytes);
        let pinned = chunks + CHUNKS * layout.page_bytes;
        let end = pinned + config.host_bytes;
        let has_windows = driver.start(&Reservation {
            arena_bytes: layout.bytes(),
            staging_bytes: end.get(),
            scratch_bytes: config.scratch_bytes,
            paging: granularity.map(|_| layout.paging()),
        })?;
        let windows = || Space::new(layout.paging().range(), "windows");
        let events = |count: u64| -> Result<Vec<Event>, Error> {
            (0..count).map(|_| driver.create_event()).collect()
        };
        let loading = Loading {
            stream: driver.create_stream(Priority::Normal)?,
            copied: events(CHUNKS)?,
            chunks,
        };
        let execution = Execution {
            stream: driver.create_stream(Priority::Normal)?,
            start: driver.create_event()?,
            end: driver.create_event()?,
        };
        Ok(Arc::new(Self {
            pages: Pages::new(layout.pages as u32),
            io: Space::new(layout.io(), "device memory for inputs and outputs"),
            staging: Space::new(
                Address::new(0)..chunks,
                "pinned memory for inputs and outputs",
            ),
            pinned: Space::new(pinned..end, "pinned memory for models"),
            windows: has_windows.then(windows),
            parked: ParkedGraphs::new(driver.free_bytes()?),
            mapping_ns: AtomicU64::new(0),
            input: driver.create_stream(Priority::High)?,
            output: driver.create_stream(Priority::High)?,
            capture: Mutex::new(driver.create_stream(Priority::Normal)?),
            execution: Mutex::new(execution),
            loading: Mutex::new(loading),
            events: Mutex::new(events(16)?),
            layout,
            driver,
        }))
    }

    /// Waits until no other batch executes.
    pub fn execution(&self) -> MutexGuard<'_, Execution> {
        self.execution.lock()
    }

    /// Writes page images into pinned memory, if there is room.
    pub fn pin(&self, images: &[Bytes]) -> Result<Images, Error> {
        let lease = self.pinned.lend(pinned_bytes(images))?;
        let mut at = lease.start();
        let mut lengths = Vec::new();
        for image in images {
            self.driver.write_staging(at, image)?;
            lengths.push(image.len() as u64);
            at = at + room(image.len());
        }
        Ok(Images::Pinned { lease, lengths })
    }

    /// Addresses at which a model of `pages` pages reads its pages, whichever pages it gets; `None` where the device
    /// cannot map pages or no addresses are left.
    pub fn window(&self, pages: usize) -> Option<SpaceLease> {
        let bytes = pages as u64 * self.layout.page_bytes;
        let windows = self.windows.as_ref().filter(|_| bytes > 0)?;
        windows.lend(bytes).ok()
    }

    /// Whether pages can be mapped into windows.
    pub fn has_windows(&self) -> bool {
        self.windows.is_some()
    }

    /// Total time that mapping took.
    pub fn mapping_time(&self) -> Duration {
        Duration::from_nanos(self.mapping_ns.load(Ordering::Relaxed))
    }

    /// Fills pages and maps them into the model's window, one model at a time. The pages are written in the arena, and
    /// the device copies while they are mapped. Returns the address of the window in which the model reads the pages;
    /// `None` if it reads them where they lie.
    pub fn fill_pages(
        &self,
        images: &Images,
        lease: &PageLease,
        window: Option<Address>,
    ) -> Result<Option<Address>, Error> {
        let loading = self.loading.lock();
        let copied = self.copy_images(&loading, images, lease);
        let mapped = window.filter(|window| self.map(*window, lease.pages()));
        // This also waits after an error, because others will soon use the memory that the copies read and write.
        let done = self.driver.synchronize(loading.stream);
        copied.and(done)?;
        Ok(mapped)
    }

    /// Maps pages into a window and returns whether the device did so. An error is only logged: if the device itself
    /// has failed, the next call reports it too.
    fn map(&self, window: Address, pages: &[u32]) -> bool {
        let started = Instant::now();
        let mapped = self.driver.map(window, pages);
        let took = started.elapsed().as_nanos() as u64;
        self.mapping_ns.fetch_add(took, Ordering::Relaxed);
        if let Err(error) = &mapped {
            tracing::warn!(%error, "pages cannot be mapped: the model's graphs are captured again");
        }
        mapped.is_ok()
    }

    fn copy_images(
        &self,
        loading: &Loading,
        images: &Images,
        lease: &PageLease,
    ) -> Result<(), Error> {
        let pages = lease.pages().iter();
        let pages = pages.map(|page| self.layout.page(*page));
        match images {
            Images::Pinned { lease, lengths } => {
                let mut from = lease.start();
                for (length, to) in lengths.iter().zip(pages) {
                    self.driver.copy_in(loading.stream, from, to, *length)?;
                    from = from + room(*length as usize);
                }
            }
            Images::Ordinary(images) => {
                for (index, (image, to)) in images.iter().zip(pages).enumerate() {
                    self.copy_through_chunk(loading, index, image, to)?;
                }
            }
        }
        Ok(())
    }

    fn copy_through_chunk(
        &self,
        loading: &Loading,
        index: usize,
        image: &Bytes,
        to: Address,
    ) -> Result<(), Error> {
        let chunk = index % loading.copied.len();
        let copied = loading.copied[chunk];
        let staged = loading.chunks + chunk as u64 * self.layout.page_bytes;
        self.driver.synchronize_event(copied)?;
        self.driver.write_staging(staged, image)?;
        let bytes = image.len() as u64;
        self.driver.copy_in(loading.stream, staged, to, bytes)?;
        self.driver.record(copied, loading.stream)
    }

    /// Captures operations into a graph. The graph takes device memory that belongs to the driver.
    pub fn capture(&self, operations: &[Operation]) -> Result<Graph, Error> {
        let stream = self.capture.lock();
        self.parked.make_room(self.driver.free_bytes()?);
        for operation in operations {
            self.driver.prepare(operation)?;
        }
        self.driver.begin_capture(*stream)?;
        let launched = operations
            .iter()
            .try_for_each(|operation| self.driver.launch(*stream, operation));
        let graph = self.driver.end_capture(*stream);
        let Err(error) = launched else {
            return graph;
        };
        // This graph holds only what was launched before the error.
        if let Ok(graph) = graph {
            self.driver.destroy_graph(graph);
        }
        Err(error)
    }

    /// Runs `work` in a stream and waits for the stream.
    pub fn wait_for(
        &self,
        stream: Stream,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let event = match self.events.lock().pop() {
            Some(event) => event,
            None => self.driver.create_event()?,
        };
        let done = work()
            .and_then(|()| self.driver.record(event, stream))
            .and_then(|()| self.driver.synchronize_event(event));
        self.events.lock().push(event);
        done
    }
}

/// Bytes of pinned memory that page images take.
pub(crate) fn pinned_bytes(images: &[Bytes]) -> u64 {
    images.iter().map(|image| room(image.len())).sum()
}

/// Bytes of pinned memory that an image of a given length takes.
fn room(length: usize) -> u64 {
    (length as u64).next_multiple_of(ALIGNMENT)
}

/// Divides the arena. A page has the configured size, rounded up to the unit in which the device maps memory.
fn layout(driver: &dyn Driver, config: &Config, granularity: Option<u64>) -> Result<Layout, Error> {
    let up = |bytes: u64| bytes.next_multiple_of(ALIGNMENT);
    let page_bytes = config.page_bytes;
    if page_bytes == 0 || !page_bytes.is_multiple_of(ALIGNMENT) {
        return Err(Error::Unsupported(format!(
            "pages of {page_bytes} bytes: the size must be a multiple of {ALIGNMENT}"
        )));
    }
    let page_bytes = page_bytes.next_multiple_of(granularity.unwrap_or(ALIGNMENT));
    if page_bytes != config.page_bytes {
        let configured = config.page_bytes;
        tracing::info!(configured, page_bytes, "the device maps larger pages");
    }
    let (workspace_bytes, io_bytes) = (up(config.workspace_bytes), up(config.io_bytes));
    let rest = workspace_bytes + io_bytes + config.scratch_bytes;
    let pages = match config.pages {
        Some(pages) => pages,
        None => {
            let free = driver.free_bytes()?;
            let usable = free - free / LEFT_ALONE;
            usable.saturating_sub(rest) / page_bytes
        }
    };
    if pages == 0 || pages > u64::from(u32::MAX) {
        return Err(Error::OutOfMemory(
            format!("{pages} pages of {page_bytes} bytes beside {rest} bytes for everything else")
                .into(),
        ));
    }
    Ok(Layout {
        page_bytes,
        pages,
        workspace_bytes,
        io_bytes,
    })
}
