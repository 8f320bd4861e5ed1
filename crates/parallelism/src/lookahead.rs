//! Plays requests on profiled rates: first come first served, c side by side, each running one
//! progressing at the rate of as many as run.
//!
//! As all running requests progress alike, one number says how far: the work that a request which
//! had been there from the start would have got. A request ends when it has grown by the request's
//! work, so an event costs one look at the running ones, of which there are at most c.

use super::Rates;
use sextant_types::random::Random;

/// What is to be played.
#[derive(Debug, Clone, Copy)]
pub struct Scenario<'a> {
    /// Rates of the configuration.
    pub rates: &'a Rates,
    /// Gaps before each arrival, s; the first counts from time 0.
    pub gaps_s: &'a [f64],
    /// Work of each request, as many as gaps or repeated: 1 takes 1 / mu_1 s when alone.
    pub work: &'a [f64],
    /// Requests that run at time 0, partly done.
    pub running: usize,
    /// Requests that wait at time 0.
    pub queued: usize,
}

/// Arrivals that go on alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrivals {
    /// Requests per second.
    pub per_s: f64,
    /// Coefficient of variation of the gaps, gamma distributed: 1 for Poisson arrivals.
    pub cv: f64,
}

/// Latencies of a played scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latencies {
    /// In order of arrival, those there at time 0 first and counted from then, s.
    pub all_s: Vec<f64>,
}

/// The state of a unit while it is played.
struct Unit<'a> {
    rates: &'a Rates,
    now_s: f64,
    /// Work done by a request that is there from the start.
    done: f64,
    /// Of the running ones: `done` at which each ends, and its number.
    running: Vec<(f64, usize)>,
}

/// Work with mean 1 and squared coefficient of variation `scv`.
pub fn work(random: &mut Random, count: usize, scv: f64) -> Vec<f64> {
    (0..count).map(|_| random.gamma(scv)).collect()
}

/// Work of mean 1 and squared coefficient of variation `scv`, up to 1, out of normal draws: many
/// configurations get the same accidents, and draws are most of the cost (Wilson and Hilferty's
/// approximation of the gamma distribution).
pub fn work_of(normals: &[f64], scv: f64) -> Vec<f64> {
    let ninth = scv.clamp(0.0, 1.0) / 9.0;
    let root = ninth.sqrt();
    let draw = |normal: &f64| (1.0 - ninth + normal * root).max(0.0).powi(3);
    normals.iter().map(draw).collect()
}

/// Latencies under steady arrivals: `requests` of them with work of squared coefficient of variation
/// `work_scv`, beginning with an idle unit. A load that the unit cannot keep up with makes latencies
/// grow all along.
pub fn steady(
    rates: &Rates,
    arrivals: Arrivals,
    work_scv: f64,
    requests: usize,
    random: &mut Random,
) -> Latencies {
    let gaps_s = random.gaps(requests, 1.0 / arrivals.per_s, arrivals.cv);
    let work = work(random, requests, work_scv);
    play(&Scenario {
        rates,
        gaps_s: &gaps_s,
        work: &work,
        running: 0,
        queued: 0,
    })
}

/// Plays a scenario until all of its requests have ended.
pub fn play(scenario: &Scenario<'_>) -> Latencies {
    let service = scenario.rates.service();
    let present = scenario.running + scenario.queued;
    let total = present + scenario.gaps_s.len();
    let mut unit = Unit {
        rates: scenario.rates,
        now_s: 0.0,
        done: 0.0,
        running: Vec::with_capacity(service),
    };
    let mut began_s = vec![0.0; total];
    let mut all_s = vec![0.0; total];
    let mut gaps = scenario.gaps_s.iter();
    let mut arrival_s = gaps.next().copied();
    let (mut arrived, mut admitted, mut ended) = (present, 0, 0);
    while ended < total {
        while unit.running.len() < service && admitted < arrived {
            unit.admit(admitted, left(scenario, admitted));
            admitted += 1;
        }
        match (arrival_s, unit.next_end_s()) {
            (Some(at), end) if end.is_none_or(|end| at < end) => {
                unit.advance(at);
                began_s[arrived] = at;
                arrived += 1;
                arrival_s = gaps.next().map(|gap| at + gap.max(0.0));
            }
            (_, Some(end)) => {
                unit.advance(end);
                let request = unit.complete();
                all_s[request] = unit.now_s - began_s[request];
                ended += 1;
            }
            (_, None) => break,
        }
    }
    Latencies { all_s }
}

/// Work that request number `at` has left when it is first admitted: those that run already are
/// taken to be spread evenly over their work.
fn left(scenario: &Scenario<'_>, at: usize) -> f64 {
    let work = match scenario.work.len() {
        0 => 1.0,
        count => scenario.work[at % count],
    };
    match at < scenario.running {
        true => work * (at as f64 + 0.5) / scenario.running as f64,
        false => work,
    }
}

// === impl Unit ===

impl Unit<'_> {
    fn admit(&mut self, request: usize, work: f64) {
        self.running.push((self.done + work, request));
    }

    fn rate(&self) -> f64 {
        self.rates.at(self.running.len())
    }

    fn next(&self) -> Option<(usize, f64)> {
        let ends = self.running.iter().enumerate();
        ends.map(|(at, (end, _))| (at, *end))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    fn next_end_s(&self) -> Option<f64> {
        let (_, end) = self.next()?;
        Some(self.now_s + (end - self.done).max(0.0) / self.rate())
    }

    fn advance(&mut self, to_s: f64) {
        let passed = (to_s - self.now_s).max(0.0);
        if !self.running.is_empty() {
            self.done += passed * self.rate();
        }
        self.now_s = self.now_s.max(to_s);
    }

    /// Takes out the request that ends now.
    fn complete(&mut self) -> usize {
        match self.next() {
            Some((at, end)) => {
                // Rounding must not leave it a little short.
                self.done = self.done.max(end);
                self.running.swap_remove(at).1
            }
            None => unreachable!("an end was due"),
        }
    }
}

// === impl Latencies ===

impl Latencies {
    /// The mean without the first `skipped`, s; 0 of none.
    pub fn mean_s(&self, skipped: usize) -> f64 {
        let counted = self.all_s.get(skipped..).unwrap_or_default();
        counted.iter().sum::<f64>() / counted.len().max(1) as f64
    }

    /// The quantile `share` without the first `skipped`, s: the smallest latency that at least this
    /// share of requests do not exceed; 0 of none.
    pub fn quantile_s(&self, share: f64, skipped: usize) -> f64 {
        let mut counted = self.all_s.get(skipped..).unwrap_or_default().to_vec();
        let Some(last) = counted.len().checked_sub(1) else {
            return 0.0;
        };
        let rank = (share.clamp(0.0, 1.0) * counted.len() as f64).ceil() as usize;
        let at = rank.saturating_sub(1).min(last);
        *counted.select_nth_unstable_by(at, f64::total_cmp).1
    }
}
