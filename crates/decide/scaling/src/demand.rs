//! How many queries to expect.
//!
//! What is expected of a need is the largest of
//!
//! - what came in the last minute, and in shorter times as much of it as chance does not make of the
//!   same rate: a burst counts from its first seconds (the traffic envelope of InferLine, section 5),
//!   and the largest of many looks at the same rate is that rate;
//! - what a forecast says of the time until a new device would be up: forecasters of trend and of
//!   periods, of which the one is asked whose forecasts have come true best (the same that decide over
//!   replicas in [`crate::autoscale`]).

use std::collections::VecDeque;

use crate::autoscale::forecast::{Forecaster, MINUTE};

/// Times over which rates are looked at, s, longest first.
const WINDOWS_S: [f64; 4] = [60.0, 20.0, 5.0, 2.0];

/// By how many deviations a short time must differ from chance.
const CERTAIN: f64 = 3.0;

/// Length of a tick of the forecasters, ms.
const TICK_MS: u64 = crate::autoscale::TICK_S as u64 * 1000;

/// By how many deviations of its own errors a forecast is raised.
const RAISED: f64 = 0.5;

/// How long it takes until half of what was bad is forgotten, ms.
const BAD_HALF_LIFE_MS: f64 = 10_000.0;

/// After so long a time in which everything was bad has faded below [`super::fleet::BAD`], ms: a
/// hundredth is 6.65 halves.
pub(super) const BAD_FADED_MS: u64 = 66_500;

/// Queries of one need as they came.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// Latest last.
    samples: VecDeque<ArrivalSample>,
    forecaster: Forecaster,
    /// The tick that runs: when it began, ms, and what came in it.
    tick: Option<(u64, f64)>,
    /// Whole ticks that were pushed.
    ticks: u64,
}

/// What came in a time.
#[derive(Debug, Clone, Copy)]
struct ArrivalSample {
    /// When it ended, ms, and how long it was, s.
    ended_ms: u64,
    window_s: f64,
    rows: f64,
    queries: f64,
}

/// What is expected.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expected {
    /// Rate of the last minute, 1/s.
    pub mean_rps: f64,
    /// Largest rate of a shorter time without what may be chance, 1/s; at least the mean.
    pub burst_rps: f64,
    /// What the forecast says, 1/s; 0 before there is one.
    pub forecast_rps: f64,
}

/// One need over time: queries as they came, and how they ended.
#[derive(Debug, Clone, Default)]
pub struct Load {
    arrivals: Arrivals,
    /// When the last query came, ms.
    last_ms: u64,
    /// Rows, those of queries that were late or refused for want of time, and those queries, all fading.
    recent: f64,
    bad: f64,
    bad_queries: f64,
}

/// What ended in a time. Rows are what devices answer; queries are what comes by chance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DemandSample {
    /// Rows of all queries, refused ones included.
    pub offered: f64,
    /// Of these: those of queries that were late or refused for want of time, which more devices could have
    /// answered.
    pub bad: f64,
    /// The queries.
    pub queries: f64,
    /// Of these: those that were late or refused for want of time.
    pub bad_queries: f64,
}

/// What to plan for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Forecast {
    /// What is expected.
    pub expected: Expected,
    /// Queries a second that are planned for.
    pub rps: f64,
    /// Share of the last seconds' queries that were late or refused for want of time, 0 to 1, without
    /// what may be chance.
    pub bad_share: f64,
    /// How many rows those had, fading.
    pub recent: f64,
}

/// Rows of a query on average.
fn rows_each(rows: f64, queries: f64) -> f64 {
    match queries > 0.0 {
        true => rows / queries,
        false => 1.0,
    }
}

// === impl DemandSample ===

impl DemandSample {
    /// One more query, of one row.
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
    /// So many queries ended in the `window_ms` that end at `now_ms`.
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

    /// What to plan for in the next `ahead_s`: nothing, where nobody has asked in `idle_ms`.
    pub fn forecast(&self, now_ms: u64, ahead_s: f64, idle_ms: u64) -> Forecast {
        let expected = self.arrivals.expect(ahead_s);
        let is_idle = now_ms.saturating_sub(self.last_ms) >= idle_ms;
        // All rows of a query are bad at once.
        let each = rows_each(self.bad, self.bad_queries);
        let chance = CERTAIN * (self.bad * each).sqrt();
        Forecast {
            expected,
            rps: if is_idle { 0.0 } else { expected.rps() },
            // A burst spoils several queries at once, and a few are no sign that devices are missing.
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

    /// So many rows came in so many queries.
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
        // Who did not look for long knows nothing of the last minute.
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

    /// What to expect in the next `ahead_s`.
    pub fn expect(&self, ahead_s: f64) -> Expected {
        let mean_rps = self.rate(WINDOWS_S[0]).0;
        let sum = |of: fn(&ArrivalSample) -> f64| self.samples.iter().map(of).sum::<f64>();
        let each = rows_each(sum(|it| it.rows), sum(|it| it.queries));
        let short = WINDOWS_S[1..].iter().map(|window| {
            let (rps, covered_s) = self.rate(*window);
            // Queries come by chance, each with all of its rows.
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

    /// Whether nothing came in the last minute.
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

    /// Mean over the last `window_s`, 1/s, and how much of them there was, s.
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

    /// Ticks in which nothing was told had nothing.
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
            // Who was away for long begins again.
            if pushed > 6 * MINUTE {
                since = now_ms;
            }
        }
        self.tick = Some((since, sum + count));
    }
}

// === impl Expected ===

impl Expected {
    /// The largest of all.
    pub fn rps(&self) -> f64 {
        self.burst_rps.max(self.forecast_rps)
    }
}
