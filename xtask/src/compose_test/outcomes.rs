//! Outcomes of queries and their counts. Each query has exactly one outcome.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The outcome of one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, with its own id and the right digit.
    Answered,
    /// It was refused, with this code.
    Refused(String),
    /// No server accepted the connection; nothing was sent.
    NotConnected,
    /// The connection ended without an answer.
    Broken,
    /// Neither an answer nor an end of the connection came while the client waited.
    Lost,
    /// The response is no answer to this query.
    Wrong(String),
}

/// The counts of one phase.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Queries that were sent, or could not be sent.
    pub asked: u64,
    /// Queries with a right answer.
    pub answered: u64,
    /// Refused queries, by code.
    pub refused: BTreeMap<String, u64>,
    /// Queries whose connection was not accepted.
    pub not_connected: u64,
    /// Queries whose connection ended without an answer.
    pub broken: u64,
    /// Queries for which nothing came back.
    pub lost: u64,
    /// Number of repetitions of queries after a refusal that said when to ask again.
    pub asked_again: u64,
    /// Responses that were no answer to their query.
    pub wrong: Vec<String>,
    /// The longest wait for an answer.
    pub longest: Duration,
    /// The longest time between two answers.
    pub longest_gap: Duration,
    last: Option<Instant>,
}

impl Tally {
    /// Counts an outcome that took `waited` and is known since `now`.
    pub fn count(&mut self, outcome: Outcome, waited: Duration, now: Instant) {
        self.asked += 1;
        match outcome {
            Outcome::Answered => self.answer(waited, now),
            Outcome::Refused(code) => *self.refused.entry(code).or_default() += 1,
            Outcome::NotConnected => self.not_connected += 1,
            Outcome::Broken => self.broken += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::Wrong(what) => self.wrong.push(what),
        }
    }

    /// Number of queries to which the service responded.
    pub fn with_an_answer(&self) -> u64 {
        self.answered + self.refusals()
    }

    /// Queries that were refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Number of queries without a response although the service lost nothing.
    pub fn without_an_answer(&self) -> u64 {
        self.not_connected + self.broken
    }

    fn answer(&mut self, waited: Duration, now: Instant) {
        self.answered += 1;
        self.longest = self.longest.max(waited);
        if let Some(last) = self.last.replace(now) {
            self.longest_gap = self.longest_gap.max(now.saturating_duration_since(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_counted_once() {
        let mut tally = Tally::default();
        let now = Instant::now();
        let ms = Duration::from_millis;
        for (at, outcome) in [
            Outcome::Answered,
            Outcome::Refused("unavailable".to_owned()),
            Outcome::NotConnected,
            Outcome::Broken,
            Outcome::Lost,
            Outcome::Wrong("a 7".to_owned()),
            Outcome::Answered,
        ]
        .into_iter()
        .enumerate()
        {
            tally.count(outcome, ms(3), now + ms(10 * at as u64));
        }
        assert_eq!((tally.asked, tally.with_an_answer()), (7, 3));
        assert_eq!((tally.without_an_answer(), tally.lost), (2, 1));
        assert_eq!((tally.longest_gap, tally.longest), (ms(60), ms(3)));
    }
}
