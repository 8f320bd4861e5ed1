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
    /// The devices that this process measures on: an engine is measured on the first one that has it. An engine without
    /// a device is taken to run on this machine's cores, at the default prices.
    pub devices: Vec<Arc<DeviceType>>,
    /// Most intra-op threads of a variant: the machine's cores.
    pub cores: u16,
    /// Whether only one thread and all threads are tried, and only full optimisation.
    pub extremes_only: bool,
    /// Time after which a registration measures no further configurations; the first configuration of each engine is
    /// measured in any case.
    pub budget: Option<Duration>,
    /// Size from which files of models are mapped instead of read into memory, bytes.
    pub map_from_bytes: u64,
    /// Records that calibrate static quantisation, from the start of the set.
    pub calibration_records: usize,
    /// Whether this process takes registrations. In either case it measures ready models with its engines.
    pub registers: bool,
    /// Wait before a model is tried again with an engine that failed; it doubles each time.
    pub extension_back_off: Duration,
    /// Most registrations at once while none is slow. More than one disturb each other's measurements.
    pub parallel: usize,
    /// Most registrations at once if the running ones are slow and others wait; only if engines are isolated.
    pub most_at_once: usize,
    /// Time after which a registration is slow.
    pub slow_after: Duration,
    /// How long this process holds a claimed job without a sign of life.
    pub lease: Duration,
    /// How long a job tries again if a store fails, from the first failure on.
    pub store_patience: Duration,
    /// Wait before the second attempt; it doubles each time, up to five seconds.
    pub back_off: Duration,
    /// How engines are isolated from this process while they are measured; `None`: not at all.
    pub isolation: Option<Isolation>,
    /// After this many configurations of an engine that ended its process or took too long, the engine's other
    /// configurations are left out.
    pub most_crashes: u32,
    /// How often a step that takes this process down may be begun: after that, a configuration is left out, and a
    /// registration fails. If engines are isolated, the end of this process says nothing about a model, unless the
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
