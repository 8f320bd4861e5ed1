//! Mean latency of a configuration under Poisson arrivals (SERF, section V-B).
//!
//! The paper calls the model M/D_interf/c: up to c requests run, each at a rate that depends on how many run, and each
//! has the same work. The states of the exponential counterpart are exact (equations 1 to 6). Cosmetatos' factor
//! converts its wait to that of constant work (7 to 10). The service time is that of the state that an arrival finds
//! (11). The terms are built by a recurrence, so that no factorial overflows.

use super::Rates;

/// The steady state of a serving unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    load_per_s: f64,
    utilization: f64,
    /// p_0 .. p_c.
    states: Vec<f64>,
    exponential_wait_s: f64,
    service_s: f64,
}

/// The method by which the mean latency is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// M/D_interf/c, equation 12.
    Serf,
    /// M/M_interf/c: interference, exponential work.
    ExponentialInterference,
    /// M/D/c at the rate of a lone request: constant work, no interference.
    Deterministic,
    /// M/M/c at the rate of a lone request.
    Exponential,
}

/// Cosmetatos' factor ½ (1 + f(c) g(rho)) between the waits of M/D/c and M/M/c (equations 7 to 9).
pub fn cosmetatos(service: usize, utilization: f64) -> f64 {
    let c = service as f64;
    let f = (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * c);
    let g = (1.0 - utilization) / utilization;
    // With one server f is 0 and g may be infinite; the factor is that of M/D/1.
    if service <= 1 {
        return 0.5;
    }
    0.5 * (1.0 + f * g)
}

// === impl Queue ===

impl Queue {
    /// Solves for `load_per_s` requests per second; `None` if the unit cannot keep up with them, or if the load is
    /// negative or not a number.
    pub fn solve(rates: &Rates, load_per_s: f64) -> Option<Self> {
        let service = rates.service();
        let utilization = load_per_s / rates.capacity_per_s();
        if !(0.0..1.0).contains(&utilization) {
            return None;
        }
        // t_n = p_n / p_0: t_0 = 1, t_n = t_(n-1) * lambda / (n * mu_n).
        let mut states = Vec::with_capacity(service + 1);
        states.push(1.0);
        for running in 1..=service {
            let before = states[running - 1];
            states.push(before * load_per_s / (running as f64 * rates.at(running)));
        }
        let full = states[service];
        let waiting = full / (1.0 - utilization);
        let sum = states[..service].iter().sum::<f64>() + waiting;
        states.iter_mut().for_each(|state| *state /= sum);

        let found = |running: usize| states[running - 1] / rates.at(running);
        let full = states[service];
        let service_s = (1..=service).map(found).sum::<f64>()
            + full / (rates.at(service) * (1.0 - utilization));
        let queued = full * utilization / (1.0 - utilization).powi(2);
        let exponential_wait_s = match load_per_s > 0.0 {
            true => queued / load_per_s,
            false => 0.0,
        };
        Some(Self {
            load_per_s,
            utilization,
            states,
            exponential_wait_s,
            service_s,
        })
    }

    /// Arrivals, per second.
    pub fn load_per_s(&self) -> f64 {
        self.load_per_s
    }

    /// rho = lambda / (c mu_c).
    pub fn utilization(&self) -> f64 {
        self.utilization
    }

    /// The most requests that run side by side: c.
    pub fn service(&self) -> usize {
        self.states.len() - 1
    }

    /// p_n: the share of time with `requests` running or waiting (equations 1 to 3).
    pub fn probability(&self, requests: usize) -> f64 {
        let beyond = requests.saturating_sub(self.service());
        self.states[requests - beyond] * self.utilization.powf(beyond as f64)
    }

    /// The share of arrivals that must wait.
    pub fn waiting_share(&self) -> f64 {
        self.states[self.service()] / (1.0 - self.utilization)
    }

    /// Mean number of running requests.
    pub fn busy(&self) -> f64 {
        let service = self.service();
        let some: f64 = (1..service).map(|n| n as f64 * self.states[n]).sum();
        some + service as f64 * self.waiting_share()
    }

    /// Mean wait with exponential work, s (equation 6).
    pub fn exponential_wait_s(&self) -> f64 {
        self.exponential_wait_s
    }

    /// Mean wait with constant work, s (equation 10).
    pub fn wait_s(&self) -> f64 {
        match self.utilization > 0.0 {
            true => cosmetatos(self.service(), self.utilization) * self.exponential_wait_s,
            false => 0.0,
        }
    }

    /// Mean time from start to end, s (equation 11).
    pub fn service_s(&self) -> f64 {
        self.service_s
    }

    /// Mean latency, s (equation 12).
    pub fn mean_s(&self) -> f64 {
        self.service_s() + self.wait_s()
    }
}

// === impl Model ===

impl Model {
    /// All models, the paper's first.
    pub const ALL: [Self; 4] = [
        Self::Serf,
        Self::ExponentialInterference,
        Self::Deterministic,
        Self::Exponential,
    ];

    /// The name of the model in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serf => "M/D_interf/c",
            Self::ExponentialInterference => "M/M_interf/c",
            Self::Deterministic => "M/D/c",
            Self::Exponential => "M/M/c",
        }
    }

    /// Mean latency, s; `None` if the predicted queue grows without bound.
    pub fn mean_s(self, rates: &Rates, load_per_s: f64) -> Option<f64> {
        let queue = match self {
            Self::Serf | Self::ExponentialInterference => Queue::solve(rates, load_per_s),
            Self::Deterministic | Self::Exponential => Queue::solve(&rates.constant(), load_per_s),
        }?;
        Some(match self {
            Self::Serf | Self::Deterministic => queue.mean_s(),
            Self::ExponentialInterference | Self::Exponential => {
                queue.service_s() + queue.exponential_wait_s()
            }
        })
    }
}
