//! When queries are sent: flags of closed and open loops.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use sextant_bench_client::{Arrivals, Pace, Trace};

use super::{Error, application::OwnSettings};

/// The coefficient of variation of gamma arrivals, unless a flag states it.
const USUAL_CV: f64 = 2.0;

/// How queries come in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Distribution {
    /// Evenly.
    Constant,
    /// Each independently of the others.
    Poisson,
    /// In bursts or evenly, by `--cv`.
    Gamma,
}

/// When queries are sent.
#[derive(Debug, Args)]
pub struct PaceOptions {
    /// Connections of a closed loop, for every application without an option of its own [default: 1].
    #[arg(long, short, value_name = "COUNT", conflicts_with_all = ["rate", "trace"])]
    concurrency: Option<usize>,
    /// Queries a second of an open loop, for every application without an option of its own.
    #[arg(long, short, value_name = "PER-SECOND")]
    rate: Option<f64>,
    /// How the queries of an open loop arrive [default: poisson].
    #[arg(long, value_name = "DISTRIBUTION", value_enum)]
    arrivals: Option<Distribution>,
    /// Coefficient of variation of the gaps between gamma arrivals: 0 is constant, 1 is Poisson, more makes bursts
    /// [default: 2].
    #[arg(long, value_name = "CV")]
    cv: Option<f64>,
    /// Replay recorded arrivals: CSV with the columns `timestamp` (s) and `application`.
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<PathBuf>,
    /// Replay the trace so many times as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace", value_parser = factor)]
    speed: f64,
}

impl PaceOptions {
    /// Refuses what would change nothing; `has_own_rate` says that an application states a rate of its own.
    pub fn check(&self, has_own_rate: bool) -> Result<(), Error> {
        if self.arrivals.is_some() && self.rate.is_none() && !has_own_rate {
            let reason = "`--arrivals` is for loads with a rate: say `--rate`, or the rate of an application \
                          (`-a NAME:rate=50`), too";
            return Err(Error::Usage(reason.to_owned()));
        }
        if self.cv.is_some() && self.arrivals != Some(Distribution::Gamma) {
            let reason = "`--cv` is for gamma arrivals: say `--arrivals gamma`, too";
            return Err(Error::Usage(reason.to_owned()));
        }
        Ok(())
    }

    /// The recorded arrivals, where there are some.
    pub fn trace(&self) -> Result<Option<Trace>, Error> {
        let trace = self.trace.as_ref();
        let trace = trace.map(|path| Trace::load(path, self.speed));
        Ok(trace.transpose()?)
    }

    /// When an application's queries are sent; `recorded` are its arrivals in the trace.
    pub fn of(&self, own: &OwnSettings, recorded: Option<Arrivals>) -> Result<Pace, Error> {
        let rate = |rate| {
            let cv = match self.arrivals.unwrap_or(Distribution::Poisson) {
                Distribution::Constant => 0.0,
                Distribution::Poisson => 1.0,
                Distribution::Gamma => self.cv.unwrap_or(USUAL_CV),
            };
            Pace::Open(Arrivals::Drawn { rate, cv })
        };
        let closed = |concurrency| Pace::Closed { concurrency };
        Ok(match (own.rate, own.concurrency, recorded) {
            (Some(own), _, _) => rate(own),
            (None, Some(own), _) => closed(own),
            (None, None, Some(recorded)) => Pace::Open(recorded),
            (None, None, None) if self.trace.is_some() => {
                let reason =
                    "the trace has no query of an application that states no rate of its own";
                return Err(Error::Usage(reason.to_owned()));
            }
            (None, None, None) => match self.rate {
                Some(all) => rate(all),
                None => closed(self.concurrency.unwrap_or(1)),
            },
        })
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite());
    let factor = factor.filter(|factor| *factor > 0.0);
    factor.ok_or_else(|| "it must be a number above 0".to_owned())
}

/// `500ms`, `30s`, `5m`, `1h`, or a number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let split = text.find(|letter: char| letter.is_ascii_alphabetic());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let unit = if unit.is_empty() { "s" } else { unit };
    let seconds = units.iter().find(|(name, _)| *name == unit);
    let parsed = seconds.and_then(|(_, seconds)| {
        let number: f64 = number.trim().parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    });
    parsed.ok_or_else(|| "write it as `500ms`, `30s`, `5m` or `1h`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for wrong in ["soon", "5d", "-1s", "s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
