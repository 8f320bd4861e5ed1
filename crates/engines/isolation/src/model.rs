//! A model in another process, which loads it again if the process has ended.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{Error, Interrupt, LoadRequest, LoadedModel, check_inputs};
use sextant_types::{NamedTensor, Signature, Tensor};

use crate::{
    host::{Host, Process},
    link::Answer,
    message::{Loaded, Reply, Request, pack},
};

/// See the module.
pub(crate) struct IsolatedModel {
    host: Arc<Host>,
    /// The request to load it, with the file.
    request: LoadRequest,
    signature: Signature,
    weights_bytes: u64,
    working_bytes: Option<u64>,
    /// The process that has it, and its number there.
    there: Mutex<(Weak<Process>, u32)>,
    /// Mean time of runs in addition to the engine's own time, nanoseconds.
    overhead: AtomicU64,
}

/// Number of runs over which that mean forgets.
const MEMORY: u64 = 16;

/// If a process is still starting, or loading the model again, this long after a run was to end, it is given up.
const SLOWEST_START: Duration = Duration::from_secs(30);

impl IsolatedModel {
    pub(crate) fn load(
        host: Arc<Host>,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let attempt = || {
            let process = host.process()?;
            let loaded = load(&host, &process, request, interrupt)?;
            Ok::<_, Error>((process, loaded))
        };
        // Perhaps nobody has noticed that the process was gone, and the run of another model may end it meanwhile:
        // neither says anything about this file.
        let (process, loaded) = match attempt() {
            Err(Error::Restarted(_)) => attempt()?,
            first => first?,
        };
        Ok(Self {
            host,
            request: request.clone(),
            signature: loaded.signature,
            weights_bytes: loaded.weights_bytes,
            working_bytes: loaded.working_bytes,
            there: Mutex::new((Arc::downgrade(&process), loaded.model)),
            overhead: AtomicU64::new(0),
        })
    }

    /// The process, and the model's number there. A run that is to end while the process is made ready leaves that work
    /// to the next run: on a machine without time a start takes long, and the run is not at fault.
    fn there(&self, interrupt: &Interrupt) -> Result<(Arc<Process>, u32), Error> {
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let started: Arc<OnceLock<Arc<Process>>> = Arc::default();
        let (late, asked) = (Arc::clone(&started), OnceLock::new());
        let end = move || {
            let asked: &Instant = asked.get_or_init(Instant::now);
            if let (true, Some(process)) = (asked.elapsed() > SLOWEST_START, late.get()) {
                process.kill();
            }
        };
        let there = interrupt.over(end, || {
            let process = self.host.process()?;
            let process = started.get_or_init(|| process);
            Ok::<_, Error>((Arc::clone(process), self.loaded_in(process)?))
        })?;
        match interrupt.is_raised() {
            true => Err(Error::Restarted("its process has just started".to_owned())),
            false => Ok(there),
        }
    }

    /// The same if the process is ready, and nobody starts or loads anything.
    fn ready(&self) -> Option<(Arc<Process>, u32)> {
        let process = self.host.running()?;
        let there = self.there.try_lock()?;
        let is_there = std::ptr::eq(there.0.as_ptr(), Arc::as_ptr(&process));
        is_there.then_some((process, there.1))
    }

    /// The model's number in this process; the model is loaded if it is not there.
    fn loaded_in(&self, process: &Arc<Process>) -> Result<u32, Error> {
        let mut there = self.there.lock();
        if !std::ptr::eq(there.0.as_ptr(), Arc::as_ptr(process)) {
            let loaded = load(&self.host, process, &self.request, &Interrupt::default());
            let loaded = loaded.map_err(|error| match error {
                // The model could be loaded before, so the process is at fault, not the batch.
                Error::Restarted(_) => error,
                error => Error::Lost(format!("it cannot be loaded again: {error}")),
            })?;
            *there = (Arc::downgrade(process), loaded.model);
        }
        Ok(there.1)
    }

    fn note(&self, overhead: Duration) {
        let nanos = overhead.as_nanos() as u64;
        let before = self.overhead.load(Ordering::Relaxed);
        // A concurrent run's time may be lost.
        let after = match before {
            0 => nanos,
            before => before - before / MEMORY + nanos / MEMORY,
        };
        self.overhead.store(after, Ordering::Relaxed);
    }
}

impl LoadedModel for IsolatedModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        self.run_interruptible(inputs, &Interrupt::default())
    }

    fn run_interruptible(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        check_inputs(&self.signature, inputs)?;
        let (process, model) = self.there(interrupt)?;
        let packed = inputs.iter().map(|input| pack(&input.name, &input.tensor));
        let (inputs, blobs): (Vec<_>, Vec<_>) = packed.unzip();
        let request = Request::Run { model, inputs };
        let begun = Instant::now();
        match ask(&self.host, &process, (&request, &blobs.concat()), interrupt)? {
            (Reply::Ran { nanos, .. }, outputs) => {
                self.note(begun.elapsed().saturating_sub(Duration::from_nanos(nanos)));
                Ok(outputs.into_iter().map(|it| it.tensor).collect())
            }
            _ => Err(off_topic()),
        }
    }

    fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    fn overhead(&self) -> Duration {
        Duration::from_nanos(self.overhead.load(Ordering::Relaxed))
    }

    fn working_bytes(&self) -> Option<u64> {
        self.working_bytes
    }
}

impl Drop for IsolatedModel {
    fn drop(&mut self) {
        // The process ends with the last model of the artefact. Until then it is told to forget this one.
        if Arc::strong_count(&self.host) == 1 {
            return;
        }
        let (process, model) = {
            let there = self.there.lock();
            (there.0.upgrade(), there.1)
        };
        if let Some(process) = process {
            let request = Request::Unload { model };
            // A process that has ended holds nothing.
            let nobody = Interrupt::default();
            ask(&self.host, &process, (&request, &[]), &nobody).ok();
        }
    }
}

fn load(
    host: &Host,
    process: &Arc<Process>,
    request: &LoadRequest,
    interrupt: &Interrupt,
) -> Result<Loaded, Error> {
    // The process reads no files, so the file of a large model is sent as well.
    let file = request.model.whole()?;
    let order = Request::Load {
        artefact: request.artefact,
        precision: request.precision,
        optimization: request.optimization,
        threads: request.threads,
        model_bytes: file.len() as u64,
    };
    match ask(host, process, (&order, &[file]), interrupt)? {
        (Reply::Loaded(loaded), _) => Ok(loaded),
        _ => Err(off_topic()),
    }
}

fn ask(
    host: &Host,
    process: &Arc<Process>,
    (request, blobs): (&Request, &[Bytes]),
    interrupt: &Interrupt,
) -> Result<Answer, Error> {
    match process.call(request, blobs, interrupt) {
        Ok((Reply::Failed(failure), _)) => Err(failure.into()),
        Ok(answer) => {
            match &answer.0 {
                // The answer came just before the process was killed.
                Reply::Ran { .. } if process.was_ended() => host.forget(process),
                Reply::Ran { .. } => host.answered(),
                Reply::Loaded(Loaded { resident_bytes, .. })
                | Reply::Unloaded { resident_bytes } => {
                    host.resident_bytes
                        .store(*resident_bytes, Ordering::Relaxed);
                }
                Reply::Failed(_) => {}
            }
            Ok(answer)
        }
        Err(error) => {
            tracing::debug!(%error, "a connection to an engine's process ended");
            Err(host.explain(process, interrupt))
        }
    }
}

fn off_topic() -> Error {
    Error::Failed("the engine's process answers something else".to_owned())
}
