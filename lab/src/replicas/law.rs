//! Durations, and the arrival times of requests within their minute.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use sextant_scaling::autoscale::Service;

use super::{Nanos, SECOND, seconds};
use sextant_simulator::{Jitter, workload::normal};

/// The law of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// Random durations, as measured by Faro's authors.
    Measured,
    /// Constant durations in nanoseconds, with requests spread evenly over each minute.
    Fixed {
        /// A pass of the router.
        router: u64,
        /// A request on a replica.
        service: u64,
    },
    /// Constant durations in nanoseconds, with all requests at the beginning of their minute.
    Burst {
        /// A pass of the router.
        router: u64,
        /// A request on a replica.
        service: u64,
    },
}

/// A random time: `least_s + more_s * exp(sigma * z)`, where z is standard normal.
struct Scatter {
    least_s: f64,
    more_s: f64,
    sigma: f64,
}

/// A request on a replica, as measured.
const SERVICE: Scatter = Scatter {
    least_s: 0.079_301_582_149_987_45,
    more_s: 0.068_580_786_497_694_31,
    sigma: 0.422_471_193_248_412_4,
};

/// A pass of the router, as measured.
const ROUTER: Scatter = Scatter {
    least_s: 0.003_485_330_525_882_586,
    more_s: 0.000_987_812_095_765_591,
    sigma: 0.480_784_073_899_767_8,
};

/// Mean and standard deviation of a request on a replica, as measured.
const MEASURED: Service = Service {
    mean_s: 0.154_28,
    deviation_s: 0.033_1,
};

/// A request of a job's minute; the first has number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MinuteRequest {
    pub(super) at: Nanos,
    pub(super) minute: usize,
    pub(super) number: u32,
}

// === impl Law ===

impl Law {
    /// Time of a request on a replica.
    pub fn service(self) -> Service {
        match self {
            Self::Measured => MEASURED,
            Self::Fixed { service, .. } | Self::Burst { service, .. } => Service {
                mean_s: seconds(service),
                deviation_s: 0.0,
            },
        }
    }

    /// The distribution of a request's time around its mean.
    pub(super) fn jitter(self) -> Jitter {
        match self {
            Self::Measured => Jitter::Lognormal {
                least: SERVICE.least_s / MEASURED.mean_s,
                more: SERVICE.more_s / MEASURED.mean_s,
                sigma: SERVICE.sigma,
            },
            Self::Fixed { .. } | Self::Burst { .. } => Jitter::None,
        }
    }

    /// Time that a replica runs the next request, ns.
    pub(super) fn run(self, chance: &mut ChaCha8Rng) -> Nanos {
        match self {
            Self::Measured => SERVICE.draw(chance),
            Self::Fixed { service, .. } | Self::Burst { service, .. } => service,
        }
    }

    /// Time of the next pass of a router, ns.
    pub(super) fn pass(self, chance: &mut ChaCha8Rng) -> Nanos {
        match self {
            Self::Measured => ROUTER.draw(chance),
            Self::Fixed { router, .. } | Self::Burst { router, .. } => router,
        }
    }

    /// The request after `sent`, if `count` requests come in its minute.
    pub(super) fn next(
        self,
        sent: MinuteRequest,
        count: u32,
        gaps: &mut ChaCha8Rng,
    ) -> Option<MinuteRequest> {
        let number = sent.number + 1;
        if number >= count {
            return None;
        }
        let at = match self {
            Self::Measured => {
                let gap_s = -(1.0 - gaps.random::<f64>()).ln() * 60.0 / f64::from(count);
                sent.at + (gap_s * 1e9) as Nanos
            }
            Self::Fixed { .. } => {
                let from = sent.minute as Nanos * 60 * SECOND;
                from + Nanos::from(number) * 60 * SECOND / Nanos::from(count)
            }
            Self::Burst { .. } => sent.at,
        };
        Some(MinuteRequest { at, number, ..sent })
    }
}

// === impl Scatter ===

impl Scatter {
    fn draw(&self, chance: &mut ChaCha8Rng) -> Nanos {
        let scatter = (self.sigma * normal(chance)).exp();
        ((self.least_s + self.more_s * scatter) * 1e9) as Nanos
    }
}
