//! An engine as registration uses it: it makes room for what it loads.

use std::{
    sync::{Arc, Mutex, Weak, mpsc},
    time::Duration,
};

use bytes::Bytes;
use sextant_engine::{
    Capabilities, Device, Engine, Error, Interrupt, LoadRequest, LoadedModel, ModelFile, Shortage,
    Staged, pages::Short,
};
use sextant_types::{NamedTensor, Signature, Tensor};
use tokio::{runtime::Handle, time::Instant};

use super::{BUSY, LOOK, NoRoom};
use crate::{Worker, ledger::Hold, timed_queue::lock};

/// A model is loaded several times while it is measured: its pages are kept for so long after each.
const LINGER: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Host {
    engine: Arc<dyn Engine>,
    worker: Weak<Worker>,
    runtime: Handle,
    lingering: Arc<Lingering>,
}

/// The hold of the model that has left last.
#[derive(Default)]
struct Lingering(Mutex<(u64, Option<Hold>)>);

/// A model that is measured, with the pages that are kept for it.
struct Measured {
    model: Arc<dyn LoadedModel>,
    hold: Option<Hold>,
    runtime: Handle,
    lingering: Arc<Lingering>,
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
        load: impl Fn() -> Result<Arc<dyn LoadedModel>, Error>,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let Some(worker) = self.worker.upgrade() else {
            return load();
        };
        let mut kept_since = None;
        let kept = self.lingering.take();
        let mut hold = kept.unwrap_or_else(|| worker.ledger.hold());
        let model = loop {
            let shortage = match load() {
                Err(Error::OutOfMemory(shortage)) => shortage,
                loaded => break loaded?,
            };
            let wanted = self.wanted(request, shortage, &worker)?;
            if hold.pages() >= wanted {
                // The pages are kept, and something else on the device has not given them back yet.
                let now = self.pause()?;
                if now - *kept_since.get_or_insert(now) >= BUSY {
                    return Err(self.busy(wanted, wanted, &worker));
                }
                continue;
            }
            kept_since = None;
            hold = self.make_room(hold, wanted, &worker)?;
        };
        let pages = worker.ledger.pages_for(model.weights_bytes())
            + worker.ledger.pages_for(model.working_bytes().unwrap_or(0));
        // It may lie in pages that a load of the worker has counted on, which is refused then.
        hold.grow(pages);
        hold.shrink(pages);
        Ok(Arc::new(Measured {
            model,
            hold: Some(hold),
            runtime: self.runtime.clone(),
            lingering: Arc::clone(&self.lingering),
        }))
    }

    /// Pages that a model needs which found too few, unless the device has too few of them.
    fn wanted(
        &self,
        request: &LoadRequest,
        shortage: Shortage,
        worker: &Worker,
    ) -> Result<u64, Error> {
        let Some(short) = shortage.pages() else {
            // Most of a model are its weights.
            let wanted = worker.ledger.pages_for(file_bytes(&request.model));
            return match wanted <= worker.ledger.pages().total {
                true => Ok(wanted),
                false => Err(Error::OutOfMemory(shortage)),
            };
        };
        let pages = worker.ledger.pages();
        if short.needed <= pages.total {
            return Ok(short.needed);
        }
        let reason = format!(
            "`{}` pages of `{}` bytes are needed, and the device has `{}` in all: register a smaller model, or run it on a \
             device with more memory",
            short.needed, pages.page_bytes, pages.total
        );
        let free = pages.free;
        let short = Short { free, ..short };
        Err(Error::OutOfMemory(Shortage::of_pages(reason, short)))
    }

    /// Waits on this thread for what the worker does on the runtime's.
    fn make_room(&self, hold: Hold, wanted: u64, worker: &Arc<Worker>) -> Result<Hold, Error> {
        let (reply, made) = mpsc::channel();
        let making = Arc::clone(worker);
        self.runtime.spawn(async move {
            // Whoever waits is there until then.
            reply.send(making.make_room(hold, wanted).await).ok();
        });
        match made.recv().unwrap_or(Err(NoRoom::ShuttingDown)) {
            Ok(hold) => Ok(hold),
            Err(NoRoom::Busy { missing }) => Err(self.busy(wanted, missing, worker)),
            Err(NoRoom::ShuttingDown) => Err(self.ends()),
        }
    }

    /// Waits for a moment, as an engine tells nobody when its memory is free again; what time it is then on the runtime's
    /// clock.
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

/// Bytes of a model's file, wherever they are.
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

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.load_hosted(request, || self.engine.load(request))
    }

    fn load_interruptible(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let load = || self.engine.load_interruptible(request, interrupt);
        self.load_hosted(request, load)
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

impl LoadedModel for Measured {
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

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn Staged>>, Error> {
        self.model.stage(inputs)
    }

    fn stage_joined(&self, parts: &[&[NamedTensor]]) -> Result<Option<Box<dyn Staged>>, Error> {
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

impl Drop for Measured {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        let (lingering, number) = (Arc::clone(&self.lingering), self.lingering.put(hold));
        self.runtime.spawn(async move {
            tokio::time::sleep(LINGER).await;
            lingering.end(number);
        });
    }
}

// === impl Lingering ===

impl Lingering {
    /// Keeps a hold; returns its number.
    fn put(&self, hold: Hold) -> u64 {
        let mut kept = lock(&self.0);
        kept.0 += 1;
        kept.1 = Some(hold);
        kept.0
    }

    fn take(&self) -> Option<Hold> {
        lock(&self.0).1.take()
    }

    /// Gives the pages of a hold back, unless it was taken.
    fn end(&self, number: u64) {
        let mut kept = lock(&self.0);
        if kept.0 == number {
            kept.1 = None;
        }
    }
}
