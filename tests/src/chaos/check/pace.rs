//! What the machine could do: rules about time are scaled by it.
//!
//! [`Event::Pace`] has the part of the time for which a ready thread waited for a processor. If that is a half,
//! everything takes twice as long, whatever the cause. A rule that requires an answer within a second then requires one
//! within two.

use super::{Entry, Span};
use crate::chaos::history::Event;

/// Largest factor by which times are stretched: what takes longer is wrong on any machine.
const MOST: f64 = 10.0;

/// The part of the processors' time that was available in a span: 1 on an idle machine, at least a tenth; 1 if it was
/// not measured.
pub fn to_be_had(history: &[Entry], span: Span) -> f64 {
    let waited = |entry: &Entry| match entry.event {
        Event::Pace { waited } if (span.from_ms..=span.until_ms).contains(&entry.at_ms) => {
            Some(waited)
        }
        _ => None,
    };
    let looks: Vec<f64> = history.iter().filter_map(waited).collect();
    if looks.is_empty() {
        return 1.0;
    }
    let mean = looks.iter().sum::<f64>() / looks.len() as f64;
    (1.0 - mean).clamp(1.0 / MOST, 1.0)
}

/// Whether so little was available in a span, a fifth of the time, that time limits of seconds were exceeded for that
/// reason alone.
pub fn is_starved(history: &[Entry], span: Span) -> bool {
    const LITTLE: f64 = 0.2;
    to_be_had(history, span) <= LITTLE
}

/// The same for the time before `at_ms` in which a lease is renewed.
pub fn was_starved(history: &[Entry], at_ms: u64) -> bool {
    const LEASE_MS: u64 = 5000;
    let from_ms = at_ms.saturating_sub(LEASE_MS);
    let until_ms = at_ms;
    is_starved(history, Span { from_ms, until_ms })
}

/// The stretched length before `at_ms` of a time that is `ms` on an idle machine.
pub fn stretched_before(history: &[Entry], at_ms: u64, ms: u64) -> u64 {
    let from_ms = at_ms.saturating_sub((ms as f64 * MOST) as u64);
    let until_ms = at_ms;
    (ms as f64 / to_be_had(history, Span { from_ms, until_ms })) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(all: &[(u64, f64)]) -> Vec<Entry> {
        let entry = |&(at_ms, waited)| Entry {
            at_ms,
            event: Event::Pace { waited },
        };
        all.iter().map(entry).collect()
    }

    #[test]
    fn what_takes_a_second_takes_two_on_a_machine_that_is_half_busy() {
        let history = looks(&[(100, 0.4), (600, 0.6), (90_000, 0.0)]);
        assert_eq!(stretched_before(&history, 1000, 1000), 2000);
        assert_eq!(stretched_before(&history, 90_000, 1000), 1000);
        assert_eq!(stretched_before(&[], 1000, 1000), 1000);
    }

    #[test]
    fn a_machine_that_gives_next_to_nothing_starves_what_runs_on_it() {
        let history = looks(&[(100, 0.9), (600, 0.9), (5000, 0.3)]);
        let is_starved = |from_ms, until_ms| is_starved(&history, Span { from_ms, until_ms });
        assert!(is_starved(0, 1000));
        assert!(!is_starved(0, 6000));
        assert!(!is_starved(7000, 8000));
    }

    #[test]
    fn no_machine_excuses_everything() {
        let history = looks(&[(100, 1.0)]);
        assert_eq!(stretched_before(&history, 1000, 1000), 10_000);
    }
}
