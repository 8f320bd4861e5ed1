//! What became of the queries of a stream.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use tokio::time::Instant;

use crate::reply::Outcome;

/// Shortest time that histograms tell from none, ns.
const LEAST_NS: u64 = 100;

/// Longest time that histograms tell, ns: an hour.
const MOST_NS: u64 = 3_600_000_000_000;

/// What became of the queries of a stream that were due within the measured time.
#[derive(Debug, Clone)]
pub struct Tally {
    /// How many there were.
    pub sent: u64,
    /// Answered ones: from when they were due until the last byte of the answer, ns.
    pub latency: Histogram<u64>,
    /// The same from when they were sent, ns: what a client that waits before it asks would believe.
    pub from_sending: Histogram<u64>,
    /// By how much later than due the generator took queries up, ns. It has nothing to do with the service.
    pub lag: Histogram<u64>,
    /// Answered within the latency target of the stream, where it has one.
    pub in_time: u64,
    /// Answers that say that all targets are met.
    pub targets_met: u64,
    /// Refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Without an answer: `connect`, `connection` or `timeout`.
    pub broken: BTreeMap<&'static str, u64>,
    /// Answers by variant.
    pub variants: BTreeMap<String, u64>,
}

/// When a query was due, was sent and ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    pub(crate) ended: Instant,
}

// === impl Tally ===

impl Default for Tally {
    fn default() -> Self {
        let histogram =
            || Histogram::new_with_bounds(LEAST_NS, MOST_NS, 3).expect("the bounds are far apart");
        Self {
            sent: 0,
            latency: histogram(),
            from_sending: histogram(),
            lag: histogram(),
            in_time: 0,
            targets_met: 0,
            refused: BTreeMap::new(),
            broken: BTreeMap::new(),
            variants: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// Answered queries.
    pub fn answered(&self) -> u64 {
        self.latency.len()
    }

    /// Adds what another thread or stream counted.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        for (ours, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.from_sending, &other.from_sending),
            (&mut self.lag, &other.lag),
        ] {
            ours.add(theirs).expect("all have the same bounds");
        }
        self.in_time += other.in_time;
        self.targets_met += other.targets_met;
        for (code, count) in &other.refused {
            add_to(&mut self.refused, code, *count);
        }
        for (kind, count) in &other.broken {
            *self.broken.entry(kind).or_default() += count;
        }
        for (variant, count) in &other.variants {
            add_to(&mut self.variants, variant, *count);
        }
    }

    /// Counts a query that was taken up so much later than it was due.
    pub(crate) fn due(&mut self, lag: Duration) {
        self.sent += 1;
        self.lag.saturating_record(nanos(lag));
    }

    /// Counts its end.
    pub(crate) fn end(&mut self, times: Times, outcome: &Outcome<'_>, limit: Option<Duration>) {
        match outcome {
            Outcome::Refused(code) => add_to(&mut self.refused, code, 1),
            Outcome::Answered {
                variant,
                targets_met,
            } => {
                let took = times.ended.saturating_duration_since(times.due);
                let from_sending = times.ended.saturating_duration_since(times.sent);
                self.latency.saturating_record(nanos(took));
                self.from_sending.saturating_record(nanos(from_sending));
                self.in_time += u64::from(limit.is_some_and(|limit| took <= limit));
                self.targets_met += u64::from(*targets_met == Some(true));
                if let Some(variant) = variant {
                    add_to(&mut self.variants, variant, 1);
                }
            }
        }
    }

    /// Counts one that has no answer.
    pub(crate) fn broke(&mut self, kind: &'static str) {
        *self.broken.entry(kind).or_default() += 1;
    }
}

/// Without a copy of a name that was seen before.
fn add_to(counts: &mut BTreeMap<String, u64>, name: &str, more: u64) {
    match counts.get_mut(name) {
        Some(count) => *count += more,
        None => {
            counts.insert(name.to_owned(), more);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
