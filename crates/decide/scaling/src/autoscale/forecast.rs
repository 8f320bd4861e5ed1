//! Forecasts the number of requests in the next minutes from past requests.
//!
//! Several simple forecasters look at the same minutes: the last one, the mean of the last three, their trend, and the
//! value one period ago, for common periods of clocks and schedules. Each is judged by the errors of its forecasts,
//! with older errors counting less. The best one is used, and its own errors say how uncertain it is. A load that
//! repeats every quarter of an hour is therefore known after half an hour, and nothing has to be trained.

use std::collections::VecDeque;

/// Ticks in a minute.
pub(crate) const MINUTE: usize = 60 / super::TICK_S as usize;

/// The number of minutes that are forecast, including the current one.
pub(crate) const AHEAD: usize = 4;

/// How far ahead forecasts are judged, minutes.
const JUDGED: usize = 2;

/// Periods, minutes.
const PERIODS: [usize; 6] = [5, 10, 15, 20, 30, 60];

/// Minutes that are remembered: twice the longest period.
const REMEMBERED: usize = 2 * 60;

/// The number of forecasters that use no period.
const PLAIN: usize = 3;

const FORECASTERS: usize = PLAIN + PERIODS.len();

/// Deviation of the logarithm of forecasts before any has come true.
const DEVIATION: f64 = 0.2;

/// The smallest deviation that is assumed.
const LEAST: f64 = 0.03;

/// Minutes over which errors are forgotten.
const MEMORY: f64 = 30.0;

/// The most by which a single minute's forecast error counts, as a logarithm.
const MOST_ERROR: f64 = 1.5;

/// Judges the forecasters of one application.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forecaster {
    /// Requests by minute, of the last completed minutes.
    minutes: VecDeque<f64>,
    /// Requests by tick of the current minute.
    ticks: Vec<f64>,
    /// Sum of the squared errors of each forecaster, and their weight.
    errors: [(f64, f64); FORECASTERS],
    /// The forecasts of each forecaster for the coming minutes, the next one to be judged first.
    said: VecDeque<[Option<f64>; FORECASTERS]>,
}

/// Forecast of the requests a second in a minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateForecast {
    /// The middle.
    pub(crate) rps: f64,
    /// The middles if the repetition comes a minute earlier or later.
    pub(crate) shifted: [f64; 2],
    /// Deviation of the logarithm.
    pub(crate) deviation: f64,
}

// === impl Forecaster ===

impl Forecaster {
    /// A tick with this many requests has ended.
    pub(crate) fn push(&mut self, requests: f64) {
        self.ticks.push(requests);
        if self.ticks.len() == MINUTE {
            let minute = self.ticks.iter().sum();
            self.ticks.clear();
            self.end_minute(minute);
        }
    }

    /// The forecasts for the current minute and the next ones.
    pub(crate) fn look(&self) -> [RateForecast; AHEAD] {
        let best = self.best();
        let deviation = self.deviation(best);
        let running = self.running(best);
        std::array::from_fn(|ahead| match ahead {
            0 => running,
            ahead => {
                let running = running.rps * 60.0;
                let ask = |ahead: usize| {
                    let count = self.ask(best, ahead, running);
                    count.unwrap_or(running) / 60.0
                };
                let shifted = match best < PLAIN {
                    true => [ask(ahead); 2],
                    false => [ask(ahead - 1), ask(ahead + 1)],
                };
                let known = ahead.min(JUDGED) as f64 / JUDGED as f64;
                RateForecast {
                    rps: ask(ahead),
                    shifted,
                    deviation: (deviation * known.sqrt()).max(LEAST),
                }
            }
        })
    }

    /// The current minute: combines the forecast and the requests so far, each weighted by its certainty.
    fn running(&self, best: usize) -> RateForecast {
        let forecast = self
            .ask(best, 0, f64::NAN)
            .filter(|count| count.is_finite());
        let seen: f64 = self.ticks.iter().sum();
        let part = self.ticks.len() as f64 / MINUTE as f64;
        let Some(forecast) = forecast else {
            let part = if part > 0.0 { part } else { 1.0 };
            let rps = seen / part / 60.0;
            return RateForecast {
                rps,
                shifted: [rps; 2],
                deviation: DEVIATION,
            };
        };
        let sure = self.deviation(best).max(LEAST).powi(-2);
        // A count of n has a deviation of the square root of n.
        let seen_sure = seen.max(forecast * part);
        let logarithm = |count: f64| count.max(0.5).ln();
        let middle = match part > 0.0 {
            true => {
                let observed = logarithm(seen / part);
                (logarithm(forecast) * sure + observed * seen_sure) / (sure + seen_sure)
            }
            false => logarithm(forecast),
        };
        let rps = middle.exp() / 60.0;
        RateForecast {
            rps,
            shifted: [rps; 2],
            deviation: (sure + seen_sure).sqrt().recip().max(LEAST),
        }
    }

    /// A minute has ended. Judges the forecasts for it and makes new ones.
    fn end_minute(&mut self, count: f64) {
        self.minutes.push_back(count);
        if self.minutes.len() > REMEMBERED {
            self.minutes.pop_front();
        }
        if self.said.len() >= JUDGED
            && let Some(said) = self.said.pop_front()
        {
            for (forecast, (sum, weight)) in said.iter().zip(&mut self.errors) {
                if let Some(forecast) = forecast {
                    let error = (count.max(1.0) / forecast.max(1.0)).ln();
                    let error = error.clamp(-MOST_ERROR, MOST_ERROR);
                    let kept = 1.0 - 1.0 / MEMORY;
                    *sum = *sum * kept + error * error;
                    *weight = *weight * kept + 1.0;
                }
            }
        }
        // At the beginning of a minute, asks for the minute after the next.
        let said = std::array::from_fn(|which| self.ask(which, JUDGED - 1, count));
        self.said.push_back(said);
    }

    /// The forecast of one forecaster for the minute `ahead` after the current one. `running` is the expected value of
    /// the current minute, NaN if there is none.
    fn ask(&self, which: usize, ahead: usize, running: f64) -> Option<f64> {
        let known = &self.minutes;
        let last = match running.is_nan() {
            true => *known.back()?,
            false => running,
        };
        if let Some(period) = which.checked_sub(PLAIN).map(|at| PERIODS[at]) {
            // Of the last periods, later ones weigh more.
            let at = known.len() + ahead;
            let one = |back: usize| at.checked_sub(back * period).and_then(|at| known.get(at));
            let (first, second) = (one(1)?, one(2));
            return Some(second.map_or(*first, |second| (2.0 * first + second) / 3.0));
        }
        let before = |back: usize| known.len().checked_sub(back).and_then(|at| known.get(at));
        match which {
            0 => Some(last),
            1 => {
                let (one, two) = (before(1)?, before(2)?);
                Some((last + one + two) / 3.0)
            }
            _ => {
                let slope = (last - before(3)?) / 3.0;
                Some((last + 0.5 * slope * (ahead as f64 + 1.0)).max(last / 2.0))
            }
        }
    }

    /// The forecaster with the smallest errors; the first until there are errors.
    fn best(&self) -> usize {
        let judged = (0..FORECASTERS).filter(|which| self.errors[*which].1 > 0.0);
        let best = judged.min_by(|a, b| self.deviation(*a).total_cmp(&self.deviation(*b)));
        best.unwrap_or(0)
    }

    /// Root mean square error of one forecaster, with one additional error of the initial size.
    fn deviation(&self, which: usize) -> f64 {
        let (sum, weight) = self.errors[which];
        ((sum + DEVIATION * DEVIATION) / (weight + 1.0)).sqrt()
    }
}
