//! Device types: hardware with a price.
//!
//! Devices of one type run every variant alike and cost the same, so a measurement on one holds for all of them.
//! Workers agree only on a name; the facts come with each announcement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DeviceTypeName, EngineName};

/// Price of a GPU or a runtime without a configured price, US dollars an hour: one V100 with 8 cores, on demand
/// (p3.2xlarge, us-east-1), the accelerator of the INFaaS evaluation. It is rather too high, because a price that is
/// too low would draw every query to the most expensive hardware of the fleet.
pub const ACCELERATOR_HOUR_USD: f64 = 3.06;

/// Time until a new worker is up if none is configured, ms: a virtual machine boots and a process starts.
pub const START_MS: u64 = 60_000;

/// By how much the memory of two workers of a type may differ, as a share: the operating system does not reserve the
/// same amount on every machine.
const MEMORY_TOLERANCE: f64 = 0.1;

/// A type of device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceType {
    /// The name of the type: `cpu-8`, `nvidia-h200`.
    pub name: DeviceTypeName,
    /// Engines that run on it, sorted.
    pub engines: Vec<EngineName>,
    /// The number of slots, at least 1: the cores of a processor, or 1 if one batch runs at a time.
    pub slots: u16,
    /// Bytes that loaded variants may occupy.
    pub memory_bytes: u64,
    /// Price of the device, US dollars an hour.
    pub price_per_hour_usd: f64,
    /// Time until a new worker of it is up, ms.
    pub start_ms: u64,
}

/// The cost of running a variant on a device type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Price of the slots that a batch occupies, US dollars an hour.
    pub per_hour_usd: f64,
    /// Price of a thousand rows at saturation, US dollars.
    pub per_1k_usd: f64,
}

/// The prices of resources, from the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Price of one core of a processor without a price of its own, US dollars an hour.
    pub core_hour_usd: f64,
    /// Price of one gibibyte of such a processor's memory, US dollars an hour.
    pub memory_gib_hour_usd: f64,
    /// Device types with prices of their own.
    pub devices: BTreeMap<DeviceTypeName, DevicePrice>,
}

/// The configuration of a device type.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DevicePrice {
    /// Price of one device, US dollars an hour.
    pub hour_usd: Option<f64>,
    /// Time until a new worker is up, ms.
    pub start_ms: Option<u64>,
}

/// The origin of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceSource {
    /// The type is configured.
    Configured,
    /// It is computed from the cores and memory of a processor.
    Computed,
    /// It is [`ACCELERATOR_HOUR_USD`]. The type should be configured.
    Assumed,
}

// === impl DeviceType ===

impl DeviceType {
    /// Cost of a variant whose batches run on `threads` threads, if one session answers `saturation_rps` rows per
    /// second here.
    pub fn cost(&self, threads: u16, saturation_rps: f64) -> Cost {
        let slots = f64::from(self.slots.max(1));
        let share = (f64::from(threads.max(1)) / slots).min(1.0);
        let per_hour_usd = self.price_per_hour_usd * share;
        Cost {
            per_hour_usd,
            per_1k_usd: per_hour_usd / 3600.0 / saturation_rps.max(1e-9) * 1000.0,
        }
    }

    /// The first fact in which an announcement of the same name differs.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let far = |a: f64, b: f64, share: f64| (a - b).abs() > share * a.abs().max(b.abs());
        let (memory, others) = (self.memory_bytes as f64, other.memory_bytes as f64);
        let (price, others_price) = (self.price_per_hour_usd, other.price_per_hour_usd);
        let facts = [
            ("engines", self.engines != other.engines),
            ("slots", self.slots != other.slots),
            ("memory", far(memory, others, MEMORY_TOLERANCE)),
            ("price", far(price, others_price, 1e-6)),
            ("start time", self.start_ms != other.start_ms),
        ];
        facts.into_iter().find_map(|(fact, is)| is.then_some(fact))
    }
}

// === impl Prices ===

impl Default for Prices {
    /// A general-purpose cloud instance at 0.384 USD an hour for 8 cores and 32 GiB, with three quarters of the price
    /// attributed to the cores.
    fn default() -> Self {
        Self {
            core_hour_usd: 0.036,
            memory_gib_hour_usd: 0.003,
            devices: BTreeMap::new(),
        }
    }
}

impl Prices {
    /// Price of a processor, US dollars an hour. Its memory counts in whole gibibytes, so that machines that are sold
    /// as equal cost the same.
    pub fn processor(
        &self,
        name: &DeviceTypeName,
        cores: u16,
        memory_bytes: u64,
    ) -> (f64, PriceSource) {
        let gib = (memory_bytes as f64 / (1u64 << 30) as f64).round();
        let computed = || f64::from(cores) * self.core_hour_usd + gib * self.memory_gib_hour_usd;
        match self.configured(name) {
            Some(price) => (price, PriceSource::Configured),
            None => (computed(), PriceSource::Computed),
        }
    }

    /// Price of a device that is not a processor, US dollars an hour.
    pub fn accelerator(&self, name: &DeviceTypeName) -> (f64, PriceSource) {
        match self.configured(name) {
            Some(price) => (price, PriceSource::Configured),
            None => (ACCELERATOR_HOUR_USD, PriceSource::Assumed),
        }
    }

    /// Time until a new worker of a type is up, ms.
    pub fn start_ms(&self, name: &DeviceTypeName) -> u64 {
        let configured = self.devices.get(name).and_then(|of| of.start_ms);
        configured.unwrap_or(START_MS)
    }

    fn configured(&self, name: &DeviceTypeName) -> Option<f64> {
        self.devices.get(name)?.hour_usd
    }
}

// === impl DeviceTypeName ===

impl DeviceTypeName {
    /// `cpu-8`.
    pub fn processor(cores: u16) -> Self {
        Self::new(format!("cpu-{cores}")).expect("letters, a dash and digits obey the rule")
    }

    /// The name of a device's model as a device type: `NVIDIA H200 NVL` becomes `nvidia-h200-nvl`. `None` if no
    /// character of it can be kept.
    pub fn from_model(model: &str) -> Option<Self> {
        let lower = model.to_ascii_lowercase();
        let words = lower.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '.');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        Self::new(words.join("-")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, slots: u16, price_per_hour_usd: f64) -> DeviceType {
        DeviceType {
            name: DeviceTypeName::new(name).expect("valid"),
            engines: vec![EngineName("ort".to_owned())],
            slots,
            memory_bytes: 8 << 30,
            price_per_hour_usd,
            start_ms: START_MS,
        }
    }

    #[test]
    fn a_batch_pays_for_the_slots_that_it_occupies() {
        // By hand: 2 of 8 cores of 0.8 USD an hour are 0.2 USD; at 100 rows a second an hour has
        // 360,000 rows.
        let cost = device("cpu-8", 8, 0.8).cost(2, 100.0);
        assert!((cost.per_hour_usd - 0.2).abs() < 1e-12);
        assert!((cost.per_1k_usd - 0.2 / 360.0).abs() < 1e-12);
        // A device that runs one batch at a time is paid for as a whole, and never more than that.
        assert_eq!(device("gpu", 1, 3.0).cost(1, 1.0).per_hour_usd, 3.0);
        assert_eq!(device("cpu-2", 2, 1.0).cost(16, 1.0).per_hour_usd, 1.0);
    }

    #[test]
    fn a_price_is_the_configured_one_or_computed_or_assumed() {
        let mut prices = Prices::default();
        let name = DeviceTypeName::processor(8);
        let (price, source) = prices.processor(&name, 8, 32 << 30);
        assert!((price - 0.384).abs() < 1e-12);
        assert_eq!(source, PriceSource::Computed);
        let assumed = (ACCELERATOR_HOUR_USD, PriceSource::Assumed);
        assert_eq!(prices.accelerator(&name), assumed);
        let price = DevicePrice {
            hour_usd: Some(1.5),
            start_ms: Some(7),
        };
        prices.devices.insert(name.clone(), price);
        let configured = (1.5, PriceSource::Configured);
        assert_eq!(prices.processor(&name, 8, 0), configured);
        assert_eq!(prices.accelerator(&name), configured);
        assert_eq!(prices.start_ms(&name), 7);
    }

    #[test]
    fn facts_of_one_name_are_compared() {
        let one = device("cpu-8", 8, 0.8);
        let mut other = one.clone();
        other.memory_bytes = 8 << 30 | 200 << 20;
        assert_eq!(one.difference(&other), None, "about the same memory");
        other.memory_bytes = 16 << 30;
        assert_eq!(one.difference(&other), Some("memory"));
        other.slots = 4;
        assert_eq!(one.difference(&other), Some("slots"));
        assert_eq!(one.difference(&device("cpu-8", 8, 0.9)), Some("price"));
    }

    #[test]
    fn models_become_names() {
        let name = |model: &str| DeviceTypeName::from_model(model).map(String::from);
        assert_eq!(name("NVIDIA H200").as_deref(), Some("nvidia-h200"));
        assert_eq!(
            name("Tesla V100-SXM2-16GB (x)").as_deref(),
            Some("tesla-v100-sxm2-16gb-x")
        );
        assert_eq!(name("--"), None);
    }
}
