//! Streams, events and graphs, by their numbers.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use cudarc::driver::{CudaContext, CudaEvent, CudaGraph, CudaStream, result, sys};
use parking_lot::{Mutex, RwLock};
use sextant_engine::Error;

use super::errors::driver_error;
use crate::driver::{Event, Graph, Priority, Stream};

/// All objects that are named by a number.
pub(super) struct Objects {
    context: Arc<CudaContext>,
    streams: RwLock<Vec<Arc<CudaStream>>>,
    events: RwLock<Vec<Arc<CudaEvent>>>,
    graphs: Mutex<Graphs>,
}

#[derive(Default)]
struct Graphs {
    next: u32,
    /// Each graph with the stream on which it was captured.
    all: HashMap<u32, CudaCapture>,
}

struct CudaCapture(CudaGraph);

/// `cuEventElapsedTime`.
type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

// SAFETY: a graph may be used by any thread as long as one at a time does; they are reached through
// a mutex.
unsafe impl Send for CudaCapture {}

// === impl Objects ===

impl Objects {
    pub(super) fn new(context: Arc<CudaContext>) -> Self {
        Self {
            context,
            streams: RwLock::default(),
            events: RwLock::default(),
            graphs: Mutex::default(),
        }
    }

    pub(super) fn create_stream(&self, priority: Priority) -> Result<Stream, Error> {
        self.context.bind_to_thread().map_err(driver_error)?;
        let (least, greatest) = result::stream::get_priority_range().map_err(driver_error)?;
        let number = match priority {
            Priority::Normal => least,
            Priority::High => greatest,
        };
        let stream = self.context.new_stream_with_priority(number);
        let mut streams = self.streams.write();
        streams.push(stream.map_err(driver_error)?);
        Ok(Stream(streams.len() as u32 - 1))
    }

    pub(super) fn stream(&self, stream: Stream) -> Result<Arc<CudaStream>, Error> {
        let streams = self.streams.read();
        let found = streams.get(stream.0 as usize).cloned();
        found.ok_or_else(|| unknown("stream", stream.0))
    }

    pub(super) fn create_event(&self) -> Result<Event, Error> {
        // The default flags measure times and make waiting spin, which answers sooner than sleeping.
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = self.context.new_event(Some(flags)).map_err(driver_error)?;
        let mut events = self.events.write();
        events.push(Arc::new(event));
        Ok(Event(events.len() as u32 - 1))
    }

    pub(super) fn event(&self, event: Event) -> Result<Arc<CudaEvent>, Error> {
        let events = self.events.read();
        let found = events.get(event.0 as usize).cloned();
        found.ok_or_else(|| unknown("event", event.0))
    }

    /// Device time between two events that have been reached.
    pub(super) fn elapsed(&self, from: Event, to: Event) -> Result<Duration, Error> {
        let (from, to) = (self.event(from)?, self.event(to)?);
        self.context.bind_to_thread().map_err(driver_error)?;
        let missing = || Error::Failed("the NVIDIA driver cannot time events".to_owned());
        let read = elapsed_function().ok_or_else(missing)?;
        let mut milliseconds = 0.0f32;
        // SAFETY: the events are alive and of the bound context; writes to a live variable.
        let result = unsafe { read(&raw mut milliseconds, from.cu_event(), to.cu_event()) };
        result.result().map_err(driver_error)?;
        Ok(Duration::from_secs_f64(
            f64::from(milliseconds.max(0.0)) / 1e3,
        ))
    }

    pub(super) fn end_capture(&self, stream: Stream) -> Result<Graph, Error> {
        let stream = self.stream(stream)?;
        let flags = sys::CUgraphInstantiate_flags(0);
        let graph = stream.end_capture(flags).map_err(driver_error)?;
        let empty = || Error::Failed("nothing was captured".to_owned());
        let graph = graph.ok_or_else(empty)?;
        // With this, the first launch takes no longer than later ones.
        graph.upload().map_err(driver_error)?;
        stream.synchronize().map_err(driver_error)?;
        let mut graphs = self.graphs();
        let number = graphs.next;
        graphs.next += 1;
        graphs.all.insert(number, CudaCapture(graph));
        Ok(Graph(number))
    }

    /// The caller must have bound the context.
    pub(super) fn launch_graph(&self, stream: Stream, graph: Graph) -> Result<(), Error> {
        let stream = self.stream(stream)?;
        let graphs = self.graphs();
        let found = graphs.all.get(&graph.0);
        let CudaCapture(graph) = found.ok_or_else(|| unknown("graph", graph.0))?;
        // SAFETY: graph and stream are alive and of the bound context; the mutex keeps other threads
        // from the graph.
        unsafe { result::graph::launch(graph.cu_graph_exec(), stream.cu_stream()) }
            .map_err(driver_error)
    }

    pub(super) fn destroy_graph(&self, graph: Graph) {
        self.context.record_err(self.context.bind_to_thread());
        let _dropped = self.graphs().all.remove(&graph.0);
    }

    fn graphs(&self) -> parking_lot::MutexGuard<'_, Graphs> {
        self.graphs.lock()
    }
}

/// Looks the function up by the name that every driver has. The bindings of CUDA 13 know only its second version, which
/// drivers before 570 lack.
fn elapsed_function() -> Option<Elapsed> {
    static FOUND: OnceLock<Option<Elapsed>> = OnceLock::new();
    let find = || {
        // SAFETY: the driver is loaded, or there would be no event; the function has this type in `cuda.h`, and the
        // library stays loaded.
        unsafe { sys::culib().get::<Elapsed>(b"cuEventElapsedTime\0") }
            .ok()
            .map(|function| *function)
    };
    *FOUND.get_or_init(find)
}

fn unknown(kind: &str, number: u32) -> Error {
    Error::Failed(format!("there is no {kind} {number}"))
}
