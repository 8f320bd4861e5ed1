//! A deterministic engine that computes nothing: it takes the time that a profile says, and answers
//! with values derived from the inputs.
//!
//! Entry points: [`EmulatedEngine`], [`EmulatedModel`], [`EmulatedDevice`], [`emulate`].
//!
//! It is a product engine like the others: with it the service can be tried, and its scheduling
//! tested, with models of any speed on any machine. One engine stands for the host's cores, or for
//! one device with memory of its own and seeded delays; a process may have any number. A closure
//! interprets the file, because this crate cannot read ONNX. Another closure lets time pass, so
//! that a simulated clock can replace sleeping.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_types::{DataType, Digest, Optimization, Precision, Signature};

use crate::{Capabilities, Device, Engine, Error, LoadRequest, LoadedModel};

pub mod answer;
mod device;
mod failures;
mod jitter;
mod model;
mod pace;

pub use answer::emulate;
pub use device::EmulatedDevice;
pub use failures::Failures;
pub use jitter::Jitter;

use device::{DeviceState, PageGuard};
use failures::FailureModel;
use model::Loaded;
use pace::Pace;

/// The engine's name in variant ids.
pub const NAME: &str = "emulated";

/// The emulated model: the linear latency model of INFaaS, section 4.1.
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
    /// The value of [`LoadedModel::weights_bytes`].
    pub weights_bytes: u64,
}

impl EmulatedModel {
    fn at_speed(self, speed: f64) -> Self {
        Self {
            alpha_ms: self.alpha_ms / speed,
            beta_ms: self.beta_ms / speed,
            load_ms: self.load_ms / speed,
            ..self
        }
    }
}

/// Interprets a file, or refuses it with [`Error::InvalidModel`] or [`Error::Unsupported`].
pub type Describe = dyn Fn(&LoadRequest) -> Result<EmulatedModel, Error> + Send + Sync;

/// Lets time pass on the calling thread.
pub type Sleep = dyn Fn(Duration) + Send + Sync;

/// See the module. Cheap to clone; clones share their models and their device.
#[derive(Clone)]
pub struct EmulatedEngine {
    describe: Arc<Describe>,
    pace: Pace,
    speed: f64,
    device: Option<Arc<DeviceState>>,
    failing: Option<Arc<FailureModel>>,
    live: Arc<Live>,
}

type Live = Mutex<HashMap<Digest, Weak<Resident>>>;

/// Weights that live handles share.
struct Resident {
    model: EmulatedModel,
    /// Their pages, on a device that counts pages.
    _held: Option<PageGuard>,
}

impl EmulatedEngine {
    /// An engine on the host's cores. `describe` gives its models, and it sleeps for as long as
    /// they take.
    pub fn new(
        describe: impl Fn(&LoadRequest) -> Result<EmulatedModel, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            describe: Arc::new(describe),
            pace: Pace::Real,
            speed: 1.0,
            device: None,
            failing: None,
            live: Arc::default(),
        }
    }

    /// The same engine on a device of its own: one batch at a time, weights in its pages, inputs
    /// and outputs copied to and from it.
    #[must_use]
    pub fn on(mut self, device: EmulatedDevice) -> Self {
        self.speed = device.speed;
        self.device = Some(Arc::new(DeviceState::new(device)));
        self.live = Arc::default();
        self
    }

    /// The same engine, `speed` times as fast as its models say.
    #[must_use]
    pub fn at_speed(mut self, speed: f64) -> Self {
        self.speed = speed;
        self
    }

    /// The same engine, which sometimes fails.
    #[must_use]
    pub fn failing(mut self, failures: Failures) -> Self {
        self.failing = Some(Arc::new(FailureModel::new(failures)));
        self
    }

    /// Lets time pass in another way; computing then takes no time.
    #[must_use]
    pub fn with_sleep(mut self, sleep: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        self.pace = Pace::Told(Arc::new(sleep));
        self
    }

    /// The weights of the artefact that a live handle holds, or new ones as described.
    fn share(&self, artefact: Digest, described: EmulatedModel) -> Result<Arc<Resident>, Error> {
        let mut live = self.live.lock();
        live.retain(|_, resident| resident.strong_count() > 0);
        if let Some(resident) = live.get(&artefact).and_then(Weak::upgrade)
            && resident.model == described
        {
            return Ok(resident);
        }
        let device = self.device.as_ref();
        let held = device.map(|device| device.hold(described.weights_bytes));
        let resident = Arc::new(Resident {
            model: described,
            _held: held.transpose()?,
        });
        live.insert(artefact, Arc::downgrade(&resident));
        Ok(resident)
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

    fn device(&self) -> Device {
        match &self.device {
            Some(running) => running.describe(),
            None => Device::Cpu,
        }
    }

    fn maps_weights(&self) -> bool {
        true
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let started = Instant::now();
        let described = (self.describe)(request)?.at_speed(self.speed);
        let mut time = duration(described.load_ms);
        if let Some(running) = &self.device {
            time += running.device.loads.draw(&running.loads);
        }
        let weights = self.share(request.artefact, described)?;
        self.pace.pass(started, time);
        self.failing.as_ref().map_or(Ok(()), |it| it.load())?;
        Ok(Arc::new(Loaded {
            weights,
            pace: self.pace.clone(),
            device: self.device.clone(),
            failing: self.failing.clone(),
        }))
    }

    fn resident_weights_bytes(&self) -> u64 {
        let live = self.live.lock();
        live.values()
            .filter_map(Weak::upgrade)
            .map(|resident| resident.model.weights_bytes)
            .sum()
    }
}

/// An invalid value (negative, NaN, beyond what a clock holds) passes no time.
fn duration(milliseconds: f64) -> Duration {
    Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or(Duration::ZERO)
}
