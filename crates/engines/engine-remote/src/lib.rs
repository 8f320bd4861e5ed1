//! Servers that speak the Open Inference Protocol (KServe v2 over HTTP) behind the engine trait.
//!
//! Entry points: [`RemoteEngine::new`] with a [`RemoteConfig`]; [`manifest::parse`].
//!
//! A *runtime* is such a server: Triton, MLServer, a container of one's own. It runs at an address,
//! or is started as a child process. A model that it runs is registered by a *manifest* instead of
//! an ONNX file. The manifest names a configured runtime and a model there, never a command or an
//! address: an uploaded file can neither start programs nor reach other machines.
//!
//! A runtime is one device: one worker sends it batches. Its answers are checked as any other input
//! from outside: names, types, shapes, lengths, time and size.
//!
//! **Invariant:** only the configuration decides what is started and where requests go. A child
//! process ends with its engine, with its whole process group, and is reaped.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{
    Capabilities, Device, Engine, Error, Interrupt, LiveMap, LoadRequest, LoadedModel, is_manifest,
};
use sextant_types::{DataType, Digest, Optimization, Precision};

mod child;
mod client;
mod config;
pub mod manifest;
mod metadata;
mod model;
mod runtime;
mod server;
mod text;
mod wire;

pub use config::{Binary, InvalidConfig, Load, Program, RemoteConfig, Source};
pub use manifest::Manifest;
pub use metadata::TensorDeclaration;

use crate::{
    model::{RemoteModel, Weights},
    runtime::Runtime,
};

/// One runtime. Cheap to clone; clones share the server and its child process, which ends with the
/// last clone.
#[derive(Clone)]
pub struct RemoteEngine {
    runtime: Arc<Runtime>,
    weights: Arc<LiveMap<Digest, Weights>>,
}

impl RemoteEngine {
    /// An engine for the runtime. Nothing is started or reached before the first load.
    ///
    /// # Errors
    /// If a name, an address, a header or a command cannot be used.
    pub fn new(config: RemoteConfig) -> Result<Self, InvalidConfig> {
        config.check()?;
        let name = intern(&config.name);
        Ok(Self {
            runtime: Arc::new(Runtime::new(name, config)),
            weights: Arc::default(),
        })
    }

    /// Process id of the child process that runs now, if the runtime is one.
    pub fn child_id(&self) -> Option<u32> {
        self.runtime.child_id()
    }

    fn manifest(&self, model: &Bytes) -> Result<Manifest, Error> {
        let manifest = manifest::parse(model)?;
        let (wanted, own) = (&manifest.runtime, self.name());
        if wanted != own {
            return Err(Error::InvalidModel(format!(
                "the manifest names runtime `{wanted}`, this is `{own}`"
            )));
        }
        Ok(manifest)
    }
}

impl Engine for RemoteEngine {
    fn name(&self) -> &'static str {
        self.runtime.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: DataType::ALL.to_vec(),
        }
    }

    fn device(&self) -> Device {
        Device::Dedicated {
            name: self.name().to_owned(),
            memory: self.runtime.memory(),
        }
    }

    /// Other files are not parsed: that takes many times their size.
    fn reads(&self, model: &Bytes) -> bool {
        is_manifest(model) && self.manifest(model).is_ok()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.load_interruptible(request, &Interrupt::default())
    }

    fn load_interruptible(
        &self,
        request: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let manifest = self.manifest(&request.model.graph)?;
        if request.precision != Precision::Fp32 {
            let precision = request.precision.name();
            return Err(Error::Unsupported(format!(
                "a runtime computes in its own precision, it cannot be asked for {precision}"
            )));
        }
        let server = self.runtime.server(interrupt)?;
        let make = || Ok::<_, Error>(Weights::of(&manifest));
        let weights = self.weights.get_or_make(request.artefact, make)?;
        Ok(Arc::new(RemoteModel::load(server, &manifest, weights)?))
    }

    fn resident_weights_bytes(&self) -> u64 {
        let live = self.weights.values();
        live.iter().map(|weights| weights.bytes).sum()
    }
}

/// The name for the rest of the process: the trait needs a name with such a lifetime. Runtimes come
/// from the configuration, so there are few.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}
