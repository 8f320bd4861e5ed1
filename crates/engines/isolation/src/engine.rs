//! An engine whose models run in processes of their own, and an engine that has such an engine beside it.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use sextant_engine::{
    Capabilities, Device, Engine, Error, Interrupt, LiveMap, LoadRequest, LoadedModel,
};
use sextant_types::{Digest, Precision};

use crate::{host::Host, model::IsolatedModel, program::Program};

/// See the module. Its capabilities are those of the engine that it replaces; only the models run elsewhere. Each
/// artefact has a process, which all of its variants share.
pub struct IsolatedEngine {
    engine: Arc<dyn Engine>,
    program: Program,
    hosts: LiveMap<Digest, Host>,
}

/// An engine whose models run in this process, with an [`IsolatedEngine`] for models that are to be isolated.
pub struct IsolatableEngine {
    engine: Arc<dyn Engine>,
    isolated: Arc<IsolatedEngine>,
}

impl IsolatedEngine {
    /// Replaces `engine`, whose models `program` serves ([`crate::serve`]).
    pub fn new(engine: Arc<dyn Engine>, program: Program) -> Self {
        Self {
            engine,
            program,
            hosts: LiveMap::default(),
        }
    }
}

impl Engine for IsolatedEngine {
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

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.load_interruptible(request, &Interrupt::default())
    }

    fn load_interruptible(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let made = || Ok::<_, Infallible>(Host::new(self.program.clone()));
        let host = match self.hosts.get_or_make(request.artefact, made) {
            Ok(host) => host,
            Err(never) => match never {},
        };
        Ok(Arc::new(IsolatedModel::load(host, request, interrupt)?))
    }

    fn processes(&self) -> Vec<u32> {
        let hosts = self.hosts.values().into_iter();
        hosts.filter_map(|host| host.number()).collect()
    }

    fn resident_weights_bytes(&self) -> u64 {
        let hosts = self.hosts.values().into_iter();
        hosts
            .map(|host| host.resident_bytes.load(Ordering::Relaxed))
            .sum()
    }
}

impl IsolatableEngine {
    /// `engine`, with `program` to serve the models that are to be isolated ([`crate::serve`]).
    pub fn new(engine: Arc<dyn Engine>, program: Program) -> Self {
        let isolated = IsolatedEngine::new(Arc::clone(&engine), program);
        Self {
            engine,
            isolated: Arc::new(isolated),
        }
    }
}

impl Engine for IsolatableEngine {
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

    fn has_prepared(&self, artefact: &Digest, precision: Precision) -> bool {
        self.engine.has_prepared(artefact, precision)
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.engine.load(request)
    }

    fn load_interruptible(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        self.engine.load_interruptible(request, interrupt)
    }

    fn isolated(&self) -> Option<Arc<dyn Engine>> {
        Some(Arc::clone(&self.isolated) as Arc<dyn Engine>)
    }

    fn processes(&self) -> Vec<u32> {
        let mut processes = self.engine.processes();
        processes.extend(self.isolated.processes());
        processes
    }

    fn resident_weights_bytes(&self) -> u64 {
        let here = self.engine.resident_weights_bytes();
        here + self.isolated.resident_weights_bytes()
    }
}
