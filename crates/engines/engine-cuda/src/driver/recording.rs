//! A driver without a device: it records the calls and computes them on the host.
//!
//! Entry point: [`RecordingDriver::new`]. Everything up to the driver call (lowering, places of weights and
//! activations, staging, graphs) runs as it would with a device, and the numbers can be checked.
//!
//! Work in streams is done late, when somebody waits for it. So a copy that is read too early, or staging memory that
//! is written again too early, becomes visible. The driver refuses with [`Error::Failed`]: copies beyond the memory,
//! reads of bytes that were never written, operations that were not prepared, access to staging memory while a copy of
//! it is pending, any use before the start, a second start.

use std::{
    collections::{BTreeMap, HashSet, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    ops::Range,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use sextant_engine::Error;

use super::{Driver, Event, Graph, Priority, Properties, Reservation, StagingAddress, Stream};
use crate::{
    operation::{Address, Operation, Stage, Staging},
    reference::Memory,
};

mod state;
mod windows;

use state::{Command, State};
use windows::Windows;

/// Most calls that are remembered one by one.
const REMEMBERED: usize = 4096;

/// The properties of the simulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pretence {
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Whether it has a library for convolutions.
    pub convolution: bool,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Memory that the device keeps for each captured graph, bytes.
    pub graph_bytes: u64,
    /// Its support for mapping pages.
    pub mapping: Mapping,
}

/// A device's support for mapping pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Pages stay where they are.
    None,
    /// The device says that it can map pages, and refuses at the start.
    Refused,
    /// The device maps pages whose size is a multiple of so many bytes.
    Granularity(u64),
}

/// One call of the driver interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the arguments")]
pub enum Call {
    Start(Reservation),
    /// The number of pages that were not there before.
    Map {
        window: Address,
        pages: usize,
        moved: usize,
    },
    CreateStream(Priority),
    CreateEvent,
    CopyIn {
        stream: Stream,
        from: StagingAddress,
        to: Address,
        bytes: u64,
    },
    CopyOut {
        stream: Stream,
        from: Address,
        to: StagingAddress,
        bytes: u64,
    },
    CopyWithin {
        stream: Stream,
        from: Address,
        to: Address,
        bytes: u64,
    },
    /// A launch, with the name of the operation.
    Launch {
        stream: Stream,
        operation: &'static str,
    },
    EndCapture {
        stream: Stream,
        operations: usize,
    },
    LaunchGraph {
        stream: Stream,
        graph: Graph,
    },
    DestroyGraph(Graph),
}

/// A driver that records; see the module.
pub struct RecordingDriver {
    properties: Properties,
    pretence: Pretence,
    state: Mutex<State>,
    calls: Mutex<VecDeque<Call>>,
}

// === impl Pretence ===

impl Default for Pretence {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            convolution: false,
            compute_capability: (8, 0),
            graph_bytes: 0,
            mapping: Mapping::Granularity(256),
        }
    }
}

// === impl RecordingDriver ===

impl RecordingDriver {
    /// A driver of a simulated device.
    pub fn new(pretence: Pretence) -> Self {
        Self {
            properties: Properties {
                name: "recording".to_owned(),
                ordinal: 0,
                compute_capability: pretence.compute_capability,
                memory_bytes: pretence.memory_bytes,
            },
            pretence,
            state: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    /// The last calls, oldest first, without preparing, waiting and staging.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().iter().copied().collect()
    }

    /// Makes every call from now on fail with [`Error::Lost`], as after a failure of a device.
    pub fn lose(&self) {
        self.state.lock().lost = true;
    }

    /// Makes mapping fail from now on, or succeed again.
    pub fn refuse_mapping(&self, refuse: bool) {
        self.state.lock().refuses_mapping = refuse;
    }

    /// The state of a started device that works.
    fn started(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.alive()?;
        if state.started {
            return Ok(state);
        }
        Err(wrong("the device was not started"))
    }

    fn alive(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.state.lock();
        if state.lost {
            return Err(Error::Lost("the recording device".to_owned()));
        }
        Ok(state)
    }

    fn remember(&self, call: Call) {
        let mut calls = self.calls.lock();
        if calls.len() == REMEMBERED {
            calls.pop_front();
        }
        calls.push_back(call);
    }
}

impl Driver for RecordingDriver {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        let state = self.alive()?;
        let graphs = state.graphs.len() as u64 * self.pretence.graph_bytes;
        let used = state.arena.len() as u64 + graphs;
        Ok(self.pretence.memory_bytes.saturating_sub(used))
    }

    fn clock_mhz(&self) -> Result<u32, Error> {
        self.alive().map(|_| 1000)
    }

    fn has_convolution(&self) -> bool {
        self.pretence.convolution
    }

    fn page_granularity(&self) -> Option<u64> {
        match self.pretence.mapping {
            Mapping::None => None,
            Mapping::Refused => Some(256),
            Mapping::Granularity(bytes) => Some(bytes),
        }
    }

    fn start(&self, reservation: &Reservation) -> Result<bool, Error> {
        let mut state = self.alive()?;
        if state.started {
            return Err(wrong("a second start"));
        }
        let wanted = reservation.arena_bytes + reservation.scratch_bytes;
        if wanted > self.pretence.memory_bytes {
            let memory = self.pretence.memory_bytes;
            return Err(Error::OutOfMemory(
                format!("{wanted} of {memory} bytes").into(),
            ));
        }
        if let (Some(paging), Mapping::Granularity(unit)) =
            (reservation.paging, self.pretence.mapping)
        {
            state.windows = Some(Windows::new(paging, unit, reservation.arena_bytes)?);
        }
        state.arena = Memory::new(reservation.arena_bytes as usize);
        state.staging = Memory::new(reservation.staging_bytes as usize);
        state.started = true;
        self.remember(Call::Start(*reservation));
        Ok(state.windows.is_some())
    }

    fn map(&self, window: Address, pages: &[u32]) -> Result<(), Error> {
        let mut state = self.started()?;
        if state.refuses_mapping {
            return Err(Error::OutOfMemory(
                "no memory for mapping".to_owned().into(),
            ));
        }
        let moved = state.map(window, pages)?;
        self.remember(Call::Map {
            window,
            pages: pages.len(),
            moved,
        });
        Ok(())
    }

    fn create_stream(&self, priority: Priority) -> Result<Stream, Error> {
        let mut state = self.started()?;
        state.streams.push(VecDeque::new());
        self.remember(Call::CreateStream(priority));
        Ok(Stream(state.streams.len() as u32 - 1))
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Error> {
        self.started()?.drain(stream)
    }

    fn write_staging(&self, to: StagingAddress, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.started()?;
        state.no_pending(&(to..to + bytes.len() as u64))?;
        state.staging.write(to, bytes)
    }

    fn read_staging(&self, from: StagingAddress, bytes: &mut [u8]) -> Result<(), Error> {
        let state = self.started()?;
        let range = from..from + bytes.len() as u64;
        state.no_pending(&range)?;
        bytes.copy_from_slice(state.staging.read(range)?);
        Ok(())
    }

    fn copy_in(
        &self,
        stream: Stream,
        from: StagingAddress,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        self.remember(Call::CopyIn {
            stream,
            from,
            to,
            bytes,
        });
        self.started()?
            .push(stream, Command::CopyIn { from, to, bytes })
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: Address,
        to: StagingAddress,
        bytes: u64,
    ) -> Result<(), Error> {
        self.remember(Call::CopyOut {
            stream,
            from,
            to,
            bytes,
        });
        self.started()?
            .push(stream, Command::CopyOut { from, to, bytes })
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: Address,
        to: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        self.remember(Call::CopyWithin {
            stream,
            from,
            to,
            bytes,
        });
        let command = Command::CopyWithin { from, to, bytes };
        self.started()?.push_or_capture(stream, command)
    }

    fn create_event(&self) -> Result<Event, Error> {
        self.remember(Call::CreateEvent);
        Ok(self.started()?.create_event())
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), Error> {
        self.started()?.record(event, stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), Error> {
        self.started()?.wait(stream, event)
    }

    fn synchronize_event(&self, event: Event) -> Result<(), Error> {
        self.started()?.reach(event)
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<Duration, Error> {
        let state = self.started()?;
        let (from, to) = (state.reached_at(from)?, state.reached_at(to)?);
        Ok(Duration::from_micros(to.saturating_sub(from)))
    }

    fn prepare(&self, operation: &Operation) -> Result<(), Error> {
        let mut state = self.started()?;
        if state.capture.is_some() {
            return Err(wrong("an operation is prepared during a capture"));
        }
        state.prepared.insert(fingerprint(operation));
        Ok(())
    }

    fn launch(&self, stream: Stream, operation: &Operation) -> Result<(), Error> {
        let mut state = self.started()?;
        let name = operation.name();
        if !state.prepared.contains(&fingerprint(operation)) {
            return Err(wrong(&format!("{name} was not prepared")));
        }
        self.remember(Call::Launch {
            stream,
            operation: name,
        });
        state.push_or_capture(stream, Command::Compute(*operation))
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), Error> {
        self.started()?.begin_capture(stream)
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph, Error> {
        let mut state = self.started()?;
        let (graph, operations) = state.end_capture(stream)?;
        self.remember(Call::EndCapture { stream, operations });
        Ok(graph)
    }

    fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), Error> {
        self.remember(Call::LaunchGraph { stream, graph });
        let mut state = self.started()?;
        if !state.graphs.contains_key(&graph) {
            return Err(wrong("a graph that does not exist"));
        }
        state.push(stream, Command::Replay(graph))
    }

    fn destroy_graph(&self, graph: Graph) {
        self.remember(Call::DestroyGraph(graph));
        self.state.lock().graphs.remove(&graph);
    }
}

fn fingerprint(operation: &Operation) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{operation:?}").hash(&mut hasher);
    hasher.finish()
}

fn wrong(text: &str) -> Error {
    Error::Failed(format!("the driver is used wrongly: {text}"))
}

fn overlap<S: Stage>(a: &Range<Address<S>>, b: &Range<Address<S>>) -> bool {
    a.start < b.end && b.start < a.end
}
