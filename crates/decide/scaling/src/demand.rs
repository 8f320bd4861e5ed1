//! How many queries to expect.
//!
//! The expected demand of a need is the largest of
//!
//! - the demand of the last minute, and the part of the demand in shorter times that chance does not explain at the
//!   same rate. A burst therefore counts from its first seconds (the traffic envelope of InferLine, section 5), and the
//!   largest of many looks at a constant rate is that rate;
//! - the forecast for the time until a new device would be up. There are forecasters of trend and of periods, and the
//!   one whose forecasts have been most accurate is used (the same forecasters decide over replicas in
//!   [`crate::autoscale`]).

use std::collections::VecDeque;

use crate::autoscale::forecast::{Forecaster, MINUTE};

/// The times over which rates are computed, s, longest first.
const WINDOWS_S: [f64; 4] = [60.0, 20.0, 5.0, 2.0];

/// By how many deviations the rate of a short time must differ from chance.
const CERTAIN: f64 = 3.0;

/// Length of a tick of the forecasters, ms.
const TICK_MS: u64 = crate::autoscale::TICK_S as u64 * 1000;

/// By how many deviations of its own errors a forecast is raised.
const RAISED: f64 = 0.5;

/// The time in which half of the late or refused queries are forgotten, ms.
const BAD_HALF_LIFE_MS: f64 = 10_000.0;

/// After this time a share of bad queries of one has faded below [`super::fleet::BAD`], ms: a hundredth is 6.65
/// half-lives.
pub(super) const BAD_FADED_MS: u64 = 66_500;

/// The arrivals of one need's queries.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// The latest is last.
    samples: VecDeque<ArrivalSample>,
    forecaster: Forecaster,
    /// The current tick: when it began, ms, and what arrived in it.
    tick: Option<(u64, f64)>,
    /// The number of complete ticks that were pushed.
    ticks: u64,
}

/// The arrivals in a span of time.
#[derive(Debug, Clone, Copy)]
struct ArrivalSample {
    /// When the span ended, ms, and how long it was, s.
    ended_ms: u64,
    window_s: f64,
    rows: f64,
    queries: f64,
}

/// The expected rates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expected {
    /// Rate of the last minute, 1/s.
    pub mean_rps: f64,
    /// The largest rate of a shorter time without the part that may be chance, 1/s. It is at least the mean.
    pub burst_rps: f64,
    /// The forecast, 1/s; 0 before there is one.
    pub forecast_rps: f64,
}

/// One need over time: the arrivals of its queries, and how they ended.
#[derive(Debug, Clone, Default)]
pub struct Load {
    arrivals: Arrivals,
    /// When the last query came, ms.
    last_ms: u64,
    /// All rows, the rows of queries that were late or refused for lack of time, and the number of those queries. All
    /// fade.
    recent: f64,
    bad: f64,
    bad_queries: f64,
}

/// Queries that ended in a span of time. Devices answer rows; queries arrive at random.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DemandSample {
    /// Rows of all queries, including refused ones.
    pub offered: f64,
    /// Those of them in queries that were late or refused for lack of time, which more devices could have answered.
    pub bad: f64,
    /// The number of queries.
    pub queries: f64,
    /// Those of them that were late or refused for lack of time.
    pub bad_queries: f64,
}

/// The demand to plan for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forecast {
    /// The expected rates.
    pub expected: Expected,
    /// The rate to plan for, 1/s.
    pub rps: f64,
    /// The share of the last seconds' queries that were late or refused for lack of time, 0 to 1, without the part that
    /// may be chance.
    pub bad_share: f64,
    /// The number of rows of the last seconds, fading.
    pub recent: f64,
}

/// The mean number of rows of a query.
fn rows_each(rows: f64, queries: f64) -> f64 {
    match queries > 0.0 {
        true => rows / queries,
        false => 1.0,
    }
}

// === impl DemandSample ===

impl DemandSample {
    /// Adds one query of one row.
    pub fn add_query(&mut self, is_bad: bool) {
        let bad = f64::from(u8::from(is_bad));
        self.offered += 1.0;
        self.queries += 1.0;
        self.bad += bad;
        self.bad_queries += bad;
    }
}

// === impl Load ===

impl Load {
    /// Queries ended in the `window_ms` that end at `now_ms`.
    pub fn observe(&mut self, now_ms: u64, window_ms: u64, ended: DemandSample) {
        let came = (ended.offered, ended.queries);
        self.arrivals.observe_rows(now_ms, window_ms, came);
        if ended.offered > 0.0 {
            self.last_ms = now_ms;
        }
        let fades = 0.5f64.powf(window_ms as f64 / BAD_HALF_LIFE_MS);
        self.recent = self.recent * fades + ended.offered;
        self.bad = self.bad * fades + ended.bad;
        self.bad_queries = self.bad_queries * fades + ended.bad_queries;
    }

    /// The demand to plan for in the next `ahead_s`; zero if no query came in `idle_ms`.
    pub fn forecast(&self, now_ms: u64, ahead_s: f64, idle_ms: u64) -> Forecast {
        let expected = self.arrivals.expect(ahead_s);
        let is_idle = now_ms.saturating_sub(self.last_ms) >= idle_ms;
        // All rows of a query are bad together.
        let each = rows_each(self.bad, self.bad_queries);
        let chance = CERTAIN * (self.bad * each).sqrt();
        Forecast {
            expected,
            rps: if is_idle { 0.0 } else { expected.rps() },
            // A burst makes several queries bad at once, and a few do not show that devices are missing.
            bad_share: (self.bad - chance).max(0.0) / self.recent.max(1.0),
            recent: self.recent,
        }
    }

    /// When the last query came, ms; 0 before the first.
    pub fn last_ms(&self) -> u64 {
        self.last_ms
    }
}

// === impl Arrivals ===

impl Arrivals {
    /// `count` queries of one row came in the `window_ms` that end at `now_ms`.
    pub fn observe(&mut self, now_ms: u64, window_ms: u64, count: f64) {
        self.observe_rows(now_ms, window_ms, (count, count));
    }

    /// This many rows came in this many queries.
    pub fn observe_rows(&mut self, now_ms: u64, window_ms: u64, (rows, queries): (f64, f64)) {
        let counted = |count: f64| match count.is_finite() {
            true => count.max(0.0),
            false => 0.0,
        };
        let sample = ArrivalSample {
            ended_ms: now_ms,
            window_s: window_ms.max(1) as f64 / 1e3,
            rows: counted(rows),
            queries: counted(queries),
        };
        // An observer that did not look for long knows nothing of the last minute.
        let longest_ms = (WINDOWS_S[0] * 1e3) as u64;
        self.samples
            .retain(|known| now_ms.saturating_sub(known.ended_ms) <= longest_ms);
        self.samples.push_back(sample);
        let mut covered: f64 = self.samples.iter().map(|sample| sample.window_s).sum();
        while let Some(sample) = self.samples.front()
            && covered - sample.window_s >= WINDOWS_S[0]
        {
            covered -= sample.window_s;
            self.samples.pop_front();
        }
        self.fill_tick(now_ms, sample.rows);
    }

    /// The expected rates in the next `ahead_s`.
    pub fn expect(&self, ahead_s: f64) -> Expected {
        let mean_rps = self.rate(WINDOWS_S[0]).0;
        let sum = |of: fn(&ArrivalSample) -> f64| self.samples.iter().map(of).sum::<f64>();
        let each = rows_each(sum(|it| it.rows), sum(|it| it.queries));
        let short = WINDOWS_S[1..].iter().map(|window| {
            let (rps, covered_s) = self.rate(*window);
            // Queries come at random, each with all its rows.
            let spread = mean_rps.max(each / WINDOWS_S[0]) * each;
            let chance = CERTAIN * (spread / covered_s.max(1e-3)).sqrt();
            rps - chance
        });
        let burst_rps = short.fold(mean_rps, f64::max);
        Expected {
            mean_rps,
            burst_rps,
            forecast_rps: self.forecast(ahead_s),
        }
    }

    /// Whether no query came in the last minute.
    pub fn is_idle(&self) -> bool {
        self.samples.iter().all(|sample| sample.rows <= 0.0)
    }

    fn forecast(&self, ahead_s: f64) -> f64 {
        if self.ticks < MINUTE as u64 {
            return 0.0;
        }
        let minutes = (ahead_s / 60.0).ceil().max(0.0) as usize;
        let expected = self.forecaster.look();
        let ahead = expected.iter().take(minutes + 1);
        let raised = ahead.map(|of| of.rps * (of.deviation * RAISED).exp());
        raised.fold(0.0, f64::max)
    }

    /// The mean rate over the last `window_s`, 1/s, and the part of that time that was observed, s.
    fn rate(&self, window_s: f64) -> (f64, f64) {
        let (mut covered, mut sum) = (0.0, 0.0);
        for sample in self.samples.iter().rev() {
            if covered >= window_s {
                break;
            }
            covered += sample.window_s;
            sum += sample.rows;
        }
        (sum / f64::max(covered, 1e-3), covered)
    }

    /// Ticks that were not reported had no queries.
    fn fill_tick(&mut self, now_ms: u64, count: f64) {
        let (mut since, sum) = self.tick.unwrap_or((now_ms, 0.0));
        let mut sum = sum;
        let mut pushed = 0;
        while now_ms >= since.saturating_add(TICK_MS) {
            self.forecaster.push(sum);
            self.ticks += 1;
            since += TICK_MS;
            sum = 0.0;
            pushed += 1;
            // An observer that was away for long starts again.
            if pushed > 6 * MINUTE {
                since = now_ms;
            }
        }
        self.tick = Some((since, sum + count));
    }
}

// === impl Expected ===

impl Expected {
    /// The largest of the rates.
    pub fn rps(&self) -> f64 {
        self.burst_rps.max(self.forecast_rps)
    }
}
