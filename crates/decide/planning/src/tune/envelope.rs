//! Traffic envelopes: the most arrivals in any window, for windows of several lengths.

use std::collections::VecDeque;

use crate::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// The longest window, which is also the length of the remembered traffic, ns (InferLine, section 4.5.2).
const LONGEST: Nanos = 60 * SECOND;

/// The highest rate of any window, by its length. Lengths double from the time of a query to a minute.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    windows: Vec<Nanos>,
    rates: Vec<f64>,
}

/// The envelope of the last minute, updated with each arrival.
#[derive(Debug, Clone)]
pub struct Watch {
    arrivals: VecDeque<Nanos>,
    /// The number of arrivals that were dropped from the front.
    dropped: usize,
    scales: Vec<Scale>,
}

/// One window length.
#[derive(Debug, Clone)]
struct Scale {
    window: Nanos,
    /// The number of the first arrival in the window that ends with the last arrival.
    first: usize,
    /// (time, arrivals in the window that ends then), for those that no later one exceeds.
    most: VecDeque<(Nanos, u32)>,
}

fn windows(service: Nanos) -> Vec<Nanos> {
    let shortest = service.clamp(1_000_000, LONGEST);
    let mut windows: Vec<Nanos> = std::iter::successors(Some(shortest), |window| Some(window * 2))
        .take_while(|window| *window < LONGEST)
        .collect();
    windows.push(LONGEST);
    windows
}

// === impl Envelope ===

impl Envelope {
    /// The envelope of a sample. `service` is the time that a query takes without waiting, ns.
    pub fn of(arrivals: &[Nanos], service: Nanos) -> Self {
        let windows = windows(service);
        let rates = windows.iter().map(|window| {
            let (mut first, mut most) = (0, 0);
            for (at, now) in arrivals.iter().enumerate() {
                while arrivals[first] + window <= *now {
                    first += 1;
                }
                most = most.max(at + 1 - first);
            }
            most as f64 * 1e9 / *window as f64
        });
        Self {
            rates: rates.collect(),
            windows,
        }
    }

    /// The lengths of the windows, ns.
    pub fn windows(&self) -> &[Nanos] {
        &self.windows
    }

    /// Arrivals a second, by window.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The rate of the first window that is at least this long.
    pub fn at(&self, window: Nanos) -> f64 {
        let at = self.windows.partition_point(|known| *known < window);
        self.rates
            .get(at.min(self.rates.len() - 1))
            .copied()
            .unwrap_or(0.0)
    }
}

// === impl Watch ===

impl Watch {
    /// Starts without arrivals.
    pub fn new(service: Nanos) -> Self {
        let scales = windows(service).into_iter().map(|window| Scale {
            window,
            first: 0,
            most: VecDeque::new(),
        });
        Self {
            arrivals: VecDeque::new(),
            dropped: 0,
            scales: scales.collect(),
        }
    }

    /// A query has arrived, no earlier than those that are known.
    pub fn arrived(&mut self, at: Nanos) {
        self.arrivals.push_back(at);
        let count = self.dropped + self.arrivals.len();
        for scale in &mut self.scales {
            while self.arrivals[scale.first - self.dropped] + scale.window <= at {
                scale.first += 1;
            }
            let within = (count - scale.first) as u32;
            while scale.most.back().is_some_and(|(_, most)| *most <= within) {
                scale.most.pop_back();
            }
            scale.most.push_back((at, within));
        }
        self.forget(at);
    }

    fn forget(&mut self, now: Nanos) {
        while self.arrivals.front().is_some_and(|at| *at + LONGEST <= now) {
            self.arrivals.pop_front();
            self.dropped += 1;
        }
        for scale in &mut self.scales {
            scale.first = scale.first.max(self.dropped);
            while scale
                .most
                .front()
                .is_some_and(|(at, _)| *at + LONGEST <= now)
            {
                scale.most.pop_front();
            }
        }
    }

    /// The envelope of the last minute.
    pub fn envelope(&mut self, now: Nanos) -> Envelope {
        self.forget(now);
        let rate = |scale: &Scale| {
            let most = scale.most.front().map_or(0, |(_, most)| *most);
            f64::from(most) * 1e9 / scale.window as f64
        };
        Envelope {
            windows: self.scales.iter().map(|scale| scale.window).collect(),
            rates: self.scales.iter().map(rate).collect(),
        }
    }

    /// The highest rate of consecutive windows of length `window` in the last `within` ns.
    pub fn highest(&self, now: Nanos, within: Nanos, window: Nanos) -> f64 {
        let count = (within / window).max(1) as usize;
        let mut counts = vec![0u32; count];
        for at in self.arrivals.iter().rev() {
            let back = (now.saturating_sub(*at) / window) as usize;
            match counts.get_mut(back) {
                Some(count) => *count += 1,
                None => break,
            }
        }
        let most = counts.into_iter().max().unwrap_or(0);
        f64::from(most) * 1e9 / window as f64
    }

    /// The arrivals of the last minute, in order.
    pub fn recent(&self, now: Nanos) -> Vec<Nanos> {
        let recent = self.arrivals.iter().copied();
        recent.filter(|at| at + LONGEST > now).collect()
    }
}
