//! A simulator that shares nothing with the code under test: it keeps what each running request has
//! left and takes it down at the rate of as many as run.

use std::collections::VecDeque;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// What is simulated.
pub struct Machine<'a> {
    /// Rates of 1, 2, .. running requests, per second.
    pub rates: &'a [f64],
    /// Arrivals, per second.
    pub load: f64,
    /// Coefficient of variation of the gaps.
    pub cv: f64,
    /// Requests that are completed; the first tenth does not count.
    pub requests: usize,
}

/// Gamma with mean 1 by Ahrens and Dieter's method for shapes below 1 and sums of exponentials for
/// the integers: enough for the variations that tests ask for.
pub fn gamma(random: &mut ChaCha8Rng, cv: f64) -> f64 {
    let shape = 1.0 / (cv * cv);
    let exponential = |random: &mut ChaCha8Rng| -(1.0 - random.random::<f64>()).ln();
    if shape >= 1.0 {
        let sum: f64 = (0..shape.round() as usize)
            .map(|_| exponential(random))
            .sum();
        return sum / shape.round();
    }
    let bound = 1.0 + shape / std::f64::consts::E;
    loop {
        let p = bound * random.random::<f64>();
        let (x, accept) = match p <= 1.0 {
            true => {
                let x = p.powf(1.0 / shape);
                (x, (-x).exp())
            }
            false => {
                let x = -((bound - p) / shape).ln();
                (x, x.powf(shape - 1.0))
            }
        };
        if random.random::<f64>() <= accept {
            return x / shape;
        }
    }
}

impl Machine<'_> {
    /// Latencies in order of completion, s.
    pub fn run(&self, random: &mut ChaCha8Rng) -> Vec<f64> {
        let (mut now, mut arrival) = (0.0, gamma(random, self.cv) / self.load);
        let mut queue = VecDeque::new();
        let mut running: Vec<(f64, f64)> = Vec::new();
        let mut latencies = Vec::with_capacity(self.requests);
        while latencies.len() < self.requests {
            let rate = self.rates[running.len().clamp(1, self.rates.len()) - 1];
            let first = (0..running.len()).min_by(|a, b| running[*a].0.total_cmp(&running[*b].0));
            let end = first.map_or(f64::INFINITY, |at| now + running[at].0 / rate);
            let next = arrival.min(end);
            running
                .iter_mut()
                .for_each(|(left, _)| *left -= (next - now) * rate);
            now = next;
            match first {
                Some(at) if end < arrival => latencies.push(now - running.remove(at).1),
                _ => {
                    queue.push_back(now);
                    arrival = now + gamma(random, self.cv) / self.load;
                }
            }
            while running.len() < self.rates.len()
                && let Some(came) = queue.pop_front()
            {
                running.push((1.0, came));
            }
        }
        latencies.split_off(self.requests / 10)
    }

    /// Their mean, s.
    pub fn mean(&self, random: &mut ChaCha8Rng) -> f64 {
        let latencies = self.run(random);
        latencies.iter().sum::<f64>() / latencies.len() as f64
    }
}
