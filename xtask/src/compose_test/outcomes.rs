//! What becomes of queries, counted: each has one outcome.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What became of one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Answered, with its own id and the right digit.
    Answered,
    /// Refused, with this code.
    Refused(String),
    /// Nobody took the connection: nothing was sent.
    NotConnected,
    /// The connection ended without an answer.
    Broken,
    /// Neither an answer nor an end of the connection came while the client waited.
    Lost,
    /// Something that is no answer to this query.
    Wrong(String),
}

/// What became of the queries of one phase.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Queries that were sent or could not be.
    pub asked: u64,
    /// Those that were answered rightly.
    pub answered: u64,
    /// Those that were refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Those that nobody took a connection for.
    pub not_connected: u64,
    /// Those whose connection ended without an answer.
    pub broken: u64,
    /// Those that nothing came back for.
    pub lost: u64,
    /// Times that a query was asked again, because a refusal said when to.
    pub asked_again: u64,
    /// What came back for others and was no answer to them.
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

    /// Queries that a client got a word about from the service.
    pub fn with_an_answer(&self) -> u64 {
        self.answered + self.refusals()
    }

    /// Queries that were refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Queries that got no word of the service, though nothing was lost in it.
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
