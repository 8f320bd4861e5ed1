//! A deterministic engine that computes nothing: it takes the time a profile says and answers
//! with values derived from the inputs.
//!
//! Entry points: [`EmulatedEngine`], [`EmulatedModel`], [`emulate`].
//!
//! It is a product engine like the others: it lets the service be tried, and its scheduling
//! tested, with models of any speed on any machine. How a file is understood is left to a
//! closure, because this crate cannot read ONNX; how time passes is another, so that a simulated
//! clock can take the place of sleeping.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Signature, Tensor};

use crate::{Capabilities, Engine, Error, LoadRequest, LoadedModel, check_inputs};

pub mod answer;

pub use answer::emulate;

/// The engine's name in variant ids.
pub const NAME: &str = "emulated";

/// What is emulated: the linear latency model of INFaaS, section 4.1.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatedModel {
    /// Inputs and outputs.
    pub signature: Signature,
    /// Time for each row of a batch, milliseconds.
    pub alpha_ms: f64,
    /// Time for each batch, milliseconds.
    pub beta_ms: f64,
    /// Time to load, milliseconds.
    pub load_ms: f64,
    /// What [`LoadedModel::weights_bytes`] says.
    pub weights_bytes: u64,
}

/// Understands a file, or refuses it with [`Error::InvalidModel`] or [`Error::Unsupported`].
pub type Describe = dyn Fn(&LoadRequest) -> Result<EmulatedModel, Error> + Send + Sync;

/// Lets time pass on the calling thread.
pub type Sleep = dyn Fn(Duration) + Send + Sync;

/// See the module. Cheap to clone; clones share their models.
#[derive(Clone)]
pub struct EmulatedEngine {
    describe: Arc<Describe>,
    sleep: Arc<Sleep>,
    live: Arc<Live>,
}

type Live = Mutex<HashMap<Digest, Weak<EmulatedModel>>>;

impl EmulatedEngine {
    /// An engine whose models are what `describe` says, and that sleeps for as long as they take.
    pub fn new(
        describe: impl Fn(&LoadRequest) -> Result<EmulatedModel, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            describe: Arc::new(describe),
            sleep: Arc::new(sleep),
            live: Arc::default(),
        }
    }

    /// Lets time pass in another way.
    #[must_use]
    pub fn with_sleep(mut self, sleep: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.sleep = Arc::new(sleep);
        self
    }

    /// The model of the artefact that a live handle holds, or `described`.
    fn share(&self, artefact: Digest, described: EmulatedModel) -> Arc<EmulatedModel> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, model| model.strong_count() > 0);
        if let Some(model) = live.get(&artefact).and_then(Weak::upgrade)
            && *model == described
        {
            return model;
        }
        let model = Arc::new(described);
        live.insert(artefact, Arc::downgrade(&model));
        model
    }
}

impl Engine for EmulatedEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: DataType::ALL.to_vec(),
        }
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let described = (self.describe)(request)?;
        (self.sleep)(duration(described.load_ms));
        Ok(Arc::new(Loaded {
            model: self.share(request.artefact, described),
            sleep: Arc::clone(&self.sleep),
        }))
    }

    fn resident_weights_bytes(&self) -> u64 {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.values()
            .filter_map(Weak::upgrade)
            .map(|model| model.weights_bytes)
            .sum()
    }
}

struct Loaded {
    model: Arc<EmulatedModel>,
    sleep: Arc<Sleep>,
}

impl LoadedModel for Loaded {
    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        check_inputs(&self.model.signature, inputs)?;
        let outputs = emulate(&self.model.signature, inputs)?;
        let rows = answer::rows(&self.model.signature, inputs) as f64;
        (self.sleep)(duration(self.model.alpha_ms * rows + self.model.beta_ms));
        Ok(outputs)
    }

    fn weights_bytes(&self) -> u64 {
        self.model.weights_bytes
    }
}

/// Nonsense (negative, NaN, beyond what a clock holds) passes no time.
fn duration(milliseconds: f64) -> Duration {
    Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or(Duration::ZERO)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the emulated work is the passing of time itself, no state is waited for"
)]
fn sleep(time: Duration) {
    if !time.is_zero() {
        thread::sleep(time);
    }
}
