//! The engine that registration uses: it makes room for what it loads.

use std::{
    sync::{
        Arc, Mutex, Weak,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use bytes::Bytes;
use sextant_engine::{
    Capabilities, Device, Engine, Error, Interrupt, LoadRequest, LoadedModel, ModelFile, Shortage,
    StagedBatch, pages::PageShortage,
};
use sextant_types::{Digest, NamedTensor, Precision, Signature, Tensor};
use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use super::{BUSY, LOOK, NoRoom};
use crate::{Worker, ledger::Hold, timed_queue::lock};

/// Time for which a model's pages are kept after it was dropped: a model is loaded several times while it is measured.
const LINGER: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Host {
    engine: Arc<dyn Engine>,
    worker: Weak<Worker>,
    runtime: Handle,
    lingering: Arc<LingeringHolds>,
}

/// An artefact with a precision.
type Key = (Digest, Precision);

/// The holds of models that have just been dropped.
#[derive(Default)]
struct LingeringHolds(Mutex<HoldList>);

#[derive(Default)]
struct HoldList {
    /// Number of the last hold.
    number: u64,
    holds: Vec<(u64, Key, Hold)>,
}

/// A model that is measured, with the pages that are kept for it.
struct MeasuredModel {
    key: Key,
    model: Arc<dyn LoadedModel>,
    hold: Option<Hold>,
    runtime: Handle,
    lingering: Arc<LingeringHolds>,
}

impl Host {
    pub(super) fn new(engine: Arc<dyn Engine>, worker: Weak<Worker>, runtime: Handle) -> Self {
        Self {
            engine,
            worker,
            runtime,
            lingering: Arc::default(),
        }
    }

    fn load_hosted(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
        load: impl Fn() -> Result<Arc<dyn LoadedModel>, Error>,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let Some(worker) = self.worker.upgrade() else {
            return load();
        };
        let key = (request.artefact, request.precision);
        let kept = self.lingering.take(key);
        let mut hold = kept.unwrap_or_else(|| worker.ledger.hold());
        let mut kept_since = None;
        let model = loop {
            let shortage = match load() {
                Err(Error::OutOfMemory(shortage)) if !shortage.is_fixed() => shortage,
                loaded => break loaded?,
            };
            if interrupt.is_raised() {
                return Err(Error::Interrupted);
            }
            let wanted = wanted(request, shortage, hold.pages(), &worker)?;
            if hold.pages() >= wanted {
                // The pages are kept, but something else on the device has not given back its memory yet.
                let now = self.pause()?;
                if now - *kept_since.get_or_insert(now) >= BUSY {
                    return Err(self.busy(wanted, wanted, &worker));
                }
                continue;
            }
            kept_since = None;
            hold = self.make_room(hold, wanted, interrupt, &worker)?;
        };
        let pages = worker.ledger.pages_for(model.weights_bytes())
            + worker.ledger.pages_for(model.working_bytes().unwrap_or(0));
        // The model may occupy pages of another measured model that is loaded again; that load then makes room for
        // itself. Or it may occupy pages that a load of the worker has counted on; that load is then refused.
        let missing = hold.grow(pages);
        self.lingering.give(&mut hold, missing);
        hold.shrink(pages);
        Ok(Arc::new(MeasuredModel {
            key,
            model,
            hold: Some(hold),
            runtime: self.runtime.clone(),
            lingering: Arc::clone(&self.lingering),
        }))
    }

    /// Blocks this thread until the worker, on the runtime's threads, has made room, or until `interrupt` is raised.
    fn make_room(
        &self,
        mut hold: Hold,
        wanted: u64,
        interrupt: &Interrupt,
        worker: &Arc<Worker>,
    ) -> Result<Hold, Error> {
        // Nothing is unloaded for pages that become free in a moment.
        let mut since = None;
        while hold.grow(wanted) > 0 && !self.lingering.is_empty() {
            let now = self.pause()?;
            if now - *since.get_or_insert(now) >= LINGER {
                break;
            }
        }
        let (asked, _asks) = oneshot::channel();
        let (reply, made) = mpsc::channel();
        let making = Arc::clone(worker);
        self.runtime.spawn(async move {
            // The send fails if the caller has stopped waiting.
            reply.send(making.make_room(hold, wanted, asked).await).ok();
        });
        let made = loop {
            match made.recv_timeout(LOOK) {
                Ok(made) => break made,
                Err(RecvTimeoutError::Timeout) if interrupt.is_raised() => {
                    break Err(NoRoom::Unwanted);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Err(NoRoom::ShuttingDown),
            }
        };
        made.map_err(|no_room| match no_room {
            NoRoom::Busy { missing } => self.busy(wanted, missing, worker),
            NoRoom::ShuttingDown => self.ends(),
            NoRoom::Unwanted => Error::Interrupted,
        })
    }

    /// Sleeps for [`LOOK`], because an engine does not say when its memory is free again. Returns the time on the
    /// runtime's clock after that.
    fn pause(&self) -> Result<Instant, Error> {
        let (reply, over) = mpsc::channel();
        self.runtime.spawn(async move {
            tokio::time::sleep(LOOK).await;
            reply.send(Instant::now()).ok();
        });
        over.recv().map_err(|_| self.ends())
    }

    fn ends(&self) -> Error {
        Error::Unavailable {
            engine: self.engine.name(),
            reason: "its worker ends".to_owned(),
        }
    }

    fn busy(&self, wanted: u64, missing: u64, worker: &Worker) -> Error {
        let pages = worker.ledger.pages();
        Error::Unavailable {
            engine: self.engine.name(),
            reason: format!(
                "`{wanted}` pages of `{}` bytes are needed to measure the model, the device has `{}`, and `{missing}` of \
                 them could not be freed: batches run on what is loaded, or other models are measured; register the model \
                 again when the device has less to do",
                pages.page_bytes, pages.total
            ),
        }
    }
}

/// Pages to keep for a model that did not fit although `kept` pages were kept for it. Fails if the device has too few
/// pages.
fn wanted(
    request: &LoadRequest,
    shortage: Shortage,
    kept: u64,
    worker: &Worker,
) -> Result<u64, Error> {
    let pages = worker.ledger.pages();
    let Some(short) = shortage.pages() else {
        // Weights are most of a model's memory. If the pages for the weights were too few, twice as many may suffice.
        let weights = worker.ledger.pages_for(file_bytes(&request.model));
        let wanted = match kept < weights {
            true => weights,
            false => kept.saturating_mul(2).min(pages.total),
        };
        return match kept < wanted && wanted <= pages.total {
            true => Ok(wanted),
            false => Err(Error::OutOfMemory(shortage)),
        };
    };
    if short.needed <= pages.total {
        return Ok(short.needed);
    }
    let reason = format!(
        "`{}` pages of `{}` bytes are needed, and the device has `{}` in all: register a smaller model, or run it on a \
         device with more memory",
        short.needed, pages.page_bytes, pages.total
    );
    let free = pages.free;
    let short = PageShortage { free, ..short };
    Err(Error::OutOfMemory(Shortage::of_pages(reason, short)))
}

/// Bytes of a model's file, in memory and on disk.
fn file_bytes(model: &ModelFile) -> u64 {
    let weights = model.weights.as_ref().and_then(|of| of.file().ok());
    let weights = weights.and_then(|file| file.metadata().ok());
    model.graph.len() as u64 + weights.map_or(0, |of| of.len())
}

impl Engine for Host {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn device(&self) -> Device {
        self.engine.device()
    }

    fn device_model(&self) -> Option<String> {
        self.engine.device_model()
    }

    fn reads(&self, model: &Bytes) -> bool {
        self.engine.reads(model)
    }

    fn maps_weights(&self) -> bool {
        self.engine.maps_weights()
    }

    fn keeps_prepared(&self) -> bool {
        self.engine.keeps_prepared()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let load = || self.engine.load(request);
        self.load_hosted(request, &Interrupt::default(), load)
    }

    fn load_interruptible(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let load = || self.engine.load_interruptible(request, interrupt);
        self.load_hosted(request, interrupt, load)
    }

    fn isolated(&self) -> Option<Arc<dyn Engine>> {
        self.engine.isolated()
    }

    fn processes(&self) -> Vec<u32> {
        self.engine.processes()
    }

    fn resident_weights_bytes(&self) -> u64 {
        self.engine.resident_weights_bytes()
    }
}

impl LoadedModel for MeasuredModel {
    fn signature(&self) -> &Signature {
        self.model.signature()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        self.model.run(inputs)
    }

    fn run_interruptible(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        self.model.run_interruptible(inputs, interrupt)
    }

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        self.model.stage(inputs)
    }

    fn stage_joined(
        &self,
        parts: &[&[NamedTensor]],
    ) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        self.model.stage_joined(parts)
    }

    fn weights_bytes(&self) -> u64 {
        self.model.weights_bytes()
    }

    fn overhead(&self) -> Duration {
        self.model.overhead()
    }

    fn working_bytes(&self) -> Option<u64> {
        self.model.working_bytes()
    }
}

impl Drop for MeasuredModel {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        let lingering = Arc::clone(&self.lingering);
        let number = lingering.put(self.key, hold);
        self.runtime.spawn(async move {
            tokio::time::sleep(LINGER).await;
            lingering.end(number);
        });
    }
}

// === impl LingeringHolds ===

impl LingeringHolds {
    /// Keeps a model's hold; returns the hold's number.
    fn put(&self, key: Key, hold: Hold) -> u64 {
        let mut kept = lock(&self.0);
        kept.number += 1;
        let number = kept.number;
        kept.holds.push((number, key, hold));
        number
    }

    /// Takes the hold of this model only: the other models are loaded again soon.
    fn take(&self, key: Key) -> Option<Hold> {
        let mut kept = lock(&self.0);
        let at = kept.holds.iter().position(|(_, of, _)| *of == key)?;
        Some(kept.holds.swap_remove(at).2)
    }

    /// Moves up to `pages` pages of kept holds to a hold.
    fn give(&self, to: &mut Hold, pages: u64) {
        let mut missing = pages;
        for (_, _, hold) in &mut lock(&self.0).holds {
            let before = to.pages();
            to.take_over(hold, missing);
            missing -= to.pages() - before;
        }
    }

    fn is_empty(&self) -> bool {
        lock(&self.0).holds.is_empty()
    }

    /// Gives back the pages of a hold, unless the hold was taken.
    fn end(&self, number: u64) {
        let mut kept = lock(&self.0);
        kept.holds.retain(|(of, _, _)| *of != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    fn key(artefact: u8) -> Key {
        (Digest::from_bytes([artefact; 32]), Precision::Fp32)
    }

    #[test]
    fn each_model_comes_back_to_its_own_pages() {
        let ledger = Arc::new(Ledger::new(1, 10));
        let hold = |pages| {
            let mut hold = ledger.hold();
            assert_eq!(hold.grow(pages), 0);
            hold
        };
        let lingering = LingeringHolds::default();
        let first = lingering.put(key(1), hold(3));
        let second = lingering.put(key(2), hold(5));
        assert!(lingering.take(key(3)).is_none());
        let mut taken = lingering.take(key(1)).expect("it has just left");
        assert_eq!(taken.pages(), 3);
        // The load of another model found the pages free, although they belong to a kept hold.
        lingering.give(&mut taken, 4);
        assert_eq!((taken.pages(), ledger.kept()), (7, 8));
        lingering.end(first);
        let taken = lingering.take(key(2)).map(|hold| hold.pages());
        assert_eq!(taken, Some(1));
        lingering.put(key(2), hold(1));
        lingering.end(second);
        assert!(!lingering.is_empty(), "it is another one");
    }
}
