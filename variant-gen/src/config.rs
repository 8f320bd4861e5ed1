//! Settings of the variant generator.

use std::{num::NonZero, sync::Arc, thread::available_parallelism, time::Duration};

use sextant_types::{DeviceType, DeviceTypeName, EngineName, Prices};

use crate::{Isolation, measure::Effort, validation::Limits};

/// How models are turned into variants.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How thoroughly configurations are measured.
    pub effort: Effort,
    /// How large validation sets may be.
    pub limits: Limits,
    /// The devices that this process measures on: an engine's is the first that has it. An engine
    /// without one is taken to run on this machine's cores, at the default prices.
    pub devices: Vec<Arc<DeviceType>>,
    /// Most intra-op threads of a variant: the machine's cores.
    pub cores: u16,
    /// Whether only one thread and all of them are tried, and only full optimisation.
    pub extremes_only: bool,
    /// Time after which a registration measures no further configurations; what each engine does first is
    /// measured in any case.
    pub budget: Option<Duration>,
    /// Files of models from this size on are mapped in place of being read into memory, bytes.
    pub map_from_bytes: u64,
    /// Records that static quantisation is calibrated on, from the start of the set.
    pub calibration_records: usize,
    /// Whether registrations are taken. Models that are ready are measured with the engines of this
    /// process in either case.
    pub registers: bool,
    /// Wait before a model is tried again with an engine that failed; doubles from there.
    pub extension_back_off: Duration,
    /// Registrations at once, as long as none is slow. More than one disturb each other's measurements.
    pub parallel: usize,
    /// Registrations at once where those that run are slow and others wait; only where engines are isolated.
    pub most_at_once: usize,
    /// Time after which a registration is slow.
    pub slow_after: Duration,
    /// How long a claimed job stays ours without a sign of life.
    pub lease: Duration,
    /// How long a job goes on trying where a store fails, from its first failure on.
    pub store_patience: Duration,
    /// Wait before the second try; doubles from there, up to five seconds.
    pub back_off: Duration,
    /// How engines are kept apart from this process while they are measured; `None`: not at all.
    pub isolation: Option<Isolation>,
    /// After so many configurations of an engine that ended its process or took too long, the others of the
    /// same engine are left out.
    pub most_crashes: u32,
    /// How often one step may be begun that takes this process down with it: a configuration is left out afterwards, a
    /// registration fails. Where engines are isolated, the end of this process says nothing about a model, unless the
    /// process had grown by much during the step.
    pub starts: u32,
    /// How often one job may be claimed before it fails.
    pub claims: u32,
}

impl Default for Config {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self {
            effort: Effort::default(),
            limits: Limits::default(),
            devices: Vec::new(),
            cores: u16::try_from(cores).unwrap_or(u16::MAX),
            extremes_only: false,
            budget: None,
            map_from_bytes: 512 << 20,
            calibration_records: 1024,
            registers: true,
            extension_back_off: Duration::from_secs(60),
            parallel: 1,
            most_at_once: 2,
            slow_after: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            store_patience: Duration::from_secs(600),
            back_off: Duration::from_millis(200),
            isolation: None,
            most_crashes: 2,
            starts: 3,
            claims: 50,
        }
    }
}

impl Config {
    /// Most registrations at once.
    pub(crate) fn places(&self) -> usize {
        let ordinary = self.parallel.max(1);
        match self.isolation {
            Some(_) => self.most_at_once.max(ordinary),
            None => ordinary,
        }
    }

    /// The device that an engine is measured on.
    pub fn device(&self, engine: &EngineName) -> Arc<DeviceType> {
        let known = self.devices.iter().find(|it| it.engines.contains(engine));
        known.map_or_else(|| Arc::new(processor(self.cores)), Arc::clone)
    }
}

fn processor(cores: u16) -> DeviceType {
    let (name, prices) = (DeviceTypeName::processor(cores), Prices::default());
    DeviceType {
        price_per_hour_usd: prices.processor(&name, cores, 0).0,
        start_ms: prices.start_ms(&name),
        name,
        engines: Vec::new(),
        slots: cores.max(1),
        memory_bytes: 0,
    }
}
