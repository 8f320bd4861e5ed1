//! The parts of a run: models, devices, delays, and the source of requests.

use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use sextant_schedule::{Delay, LatencyTable, Nanos, Options, QueueSpec};
use sextant_types::index::{DeviceIx, TenantIx, VariantIx};

use crate::workload::{exponential, normal};

/// A model under test.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name in reports.
    pub name: String,
    /// Time within which an answer counts, ns; [`NEVER`](sextant_schedule::NEVER) for no limit.
    pub target: Nanos,
    /// Run times by kind of device; `None` if it cannot run there. The table's length is the largest batch.
    pub latency: Vec<Option<Arc<LatencyTable>>>,
    /// Requests of a higher priority go first.
    pub priority: u8,
    /// Share under overload; 1 is normal.
    pub weight: f32,
}

/// An emulated device, which runs one batch at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Position in [`Model::latency`]. Devices of a kind form a pool.
    pub kind: u32,
}

/// How measured run times scatter around the profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// They do not scatter.
    None,
    /// By a factor that is uniform in `1 - spread ..= 1 + spread`.
    Uniform {
        /// Half the width, 0 to 1.
        spread: f64,
    },
    /// Longer by `factor` with probability `share`.
    Spikes {
        /// Probability, 0 to 1.
        share: f64,
        /// At least 1.
        factor: f64,
    },
    /// By a factor of `least + more * exp(sigma * z)`, where z is standard normal: a lognormal time in addition to a
    /// constant one.
    Lognormal {
        /// At least 0.
        least: f64,
        /// At least 0; the median of the lognormal part.
        more: f64,
        /// Standard deviation of its logarithm.
        sigma: f64,
    },
    /// Shorter or longer with the same probability, by exponentially distributed times, and occasionally much longer.
    Tails {
        /// Mean of the time by which shorter runs are shorter, ns.
        shorter: Nanos,
        /// Mean of the time by which longer runs are longer, ns.
        longer: Nanos,
        /// Probability of an outlier, 0 to 1.
        outlier_share: f64,
        /// The least additional time of outliers, ns; the greatest is twice as much.
        outlier: Nanos,
    },
}

/// A device goes away and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Position of the device.
    pub device: DeviceIx,
    /// When it goes away, ns.
    pub from: Nanos,
    /// When it comes back, ns.
    pub until: Nanos,
}

/// How the devices of a world are presented to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// As in a fleet: the controller learns of the devices one by one, and of what is loaded on each.
    #[default]
    Fleet,
    /// The scheduler alone, with all devices of a kind as one pool. The fleet is compared with it.
    Pool,
}

/// Everything about a run except its arrivals.
#[derive(Debug, Clone)]
pub struct Setting<S = Options> {
    /// By position: the models.
    pub models: Vec<Model>,
    /// By position: the devices.
    pub devices: Vec<Device>,
    /// By kind: price of a device, US dollars an hour; 1 where it is missing.
    pub prices: Vec<f64>,
    /// How the devices are presented.
    pub shape: Shape,
    /// The policy, with the delays for which it allows.
    pub options: S,
    /// The real delays of the network. If they exceed those in `options`, batches are late.
    pub network: Network,
    /// Scatter of run times.
    pub jitter: Jitter,
    /// Devices that fail.
    pub failures: Vec<Failure>,
    /// The seed of the scatter and the network.
    pub seed: u64,
    /// Keep a histogram of latencies for each model.
    pub histograms: bool,
}

/// Delays of messages: a constant part, and a uniform part in addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Network {
    /// The least delays.
    pub base: Delay,
    /// The most that is added to each.
    pub spread: Delay,
}

/// A request as a source makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The time, ns.
    pub at: Nanos,
    /// The model, by a number that is meaningful to the receiver of the requests: in a world it is that of the variant.
    pub model: u32,
    /// The client, for a source that waits for answers.
    pub client: u32,
}

/// A source of requests, in order of time.
pub trait Source {
    /// When the next request comes, as far as is known.
    fn peek(&mut self) -> Option<Nanos>;

    /// The next request. It is called only after [`Self::peek`] has returned a time.
    fn next(&mut self) -> Arrival;

    /// When the answer to the next request is due, ns; `None` for the target of its model. It is called only after
    /// [`Self::peek`] has returned a time.
    fn due(&mut self) -> Option<Nanos> {
        None
    }

    /// A request was answered.
    fn on_answer(&mut self, _now: Nanos, _model: u32, _client: u32) {}

    /// A request was dropped, or failed on a worker. By default it is handled like an answer.
    fn on_drop(&mut self, now: Nanos, model: u32, client: u32) {
        self.on_answer(now, model, client);
    }
}

/// The measured part of a run.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// The time from which arrivals count, ns.
    pub from: Nanos,
    /// The time until which they count, ns.
    pub until: Nanos,
    /// By model: the run ends early if there are more misses than this. Empty: it never does.
    pub most_missed: Vec<u64>,
}

// === impl Setting ===

impl<S> Setting<S> {
    /// A model, which the controller knows as a variant.
    pub fn model(&self, model: VariantIx) -> &Model {
        &self.models[model.get() as usize]
    }

    /// A device.
    pub fn device(&self, device: DeviceIx) -> Device {
        self.devices[device.get() as usize]
    }

    /// The numbers of the devices.
    pub fn device_numbers(&self) -> impl Iterator<Item = DeviceIx> + use<S> {
        (0..self.devices.len() as u32).map(DeviceIx::new)
    }

    /// Price of a device of a kind, US dollars an hour.
    pub fn price(&self, kind: u32) -> f64 {
        self.prices.get(kind as usize).copied().unwrap_or(1.0)
    }
}

// === impl Model ===

impl Model {
    /// Its queue on devices with these run times, if their price does not matter.
    pub fn queue(&self, latency: &LatencyTable) -> QueueSpec {
        QueueSpec {
            max_rows: latency.measured_rows(),
            planned_rows: u32::MAX,
            batched: true,
            slots: 1,
            latency: latency.clone(),
            max_waiting_rows: u32::MAX,
            tenant: TenantIx::new(0),
            priority: self.priority,
            weight: self.weight,
            price: 1.0,
        }
    }
}

// === impl Jitter ===

impl Jitter {
    /// Runs of a dedicated V100 as in Clockwork's figure 10. If each run is predicted as the 99th percentile of the
    /// last ten, 99 of 100 predictions that are too long are too long by less than 144 us, and of those that are too
    /// short by less than 55 us. Outliers of more than 10 ms are rare there. As 58 of 208 million requests failed
    /// because of them, they are one in four million here.
    pub const CLOCKWORK_INFER: Self = Self::Tails {
        shorter: 28_000,
        longer: 12_000,
        outlier_share: 2.5e-7,
        outlier: 10_000_000,
    };

    /// The same for loads, with 431 us and 348 us.
    pub const CLOCKWORK_LOAD: Self = Self::Tails {
        shorter: 1_000,
        longer: 76_000,
        outlier_share: 2.5e-7,
        outlier: 10_000_000,
    };

    /// The run time if the profile says `profile` ns, at least 1 ns.
    pub fn apply(&self, profile: Nanos, random: &mut ChaCha8Rng) -> Nanos {
        let factor = match *self {
            Self::None => return profile,
            Self::Uniform { spread } => 1.0 + spread * (2.0 * random.random::<f64>() - 1.0),
            Self::Spikes { share, factor } if random.random::<f64>() < share => factor,
            Self::Spikes { .. } => 1.0,
            Self::Lognormal { least, more, sigma } => least + more * (sigma * normal(random)).exp(),
            Self::Tails {
                shorter,
                longer,
                outlier_share,
                outlier,
            } => {
                let is_longer = random.random::<bool>();
                let mean = if is_longer { longer } else { shorter };
                let by = (exponential(random) * mean as f64) as Nanos;
                let mut nanos = if is_longer {
                    profile.saturating_add(by)
                } else {
                    profile.saturating_sub(by)
                };
                if random.random::<f64>() < outlier_share {
                    let share = 1.0 + random.random::<f64>();
                    nanos = nanos.saturating_add((outlier as f64 * share) as Nanos);
                }
                return nanos.max(1);
            }
        };
        (profile as f64 * factor).round() as Nanos
    }
}
