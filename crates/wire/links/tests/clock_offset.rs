//! The difference of two clocks, estimated from messages alone.

use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*};
use sextant_links::clock_offset::{OffsetFilter, WINDOW};

const MS: i64 = 1_000_000;

/// Two processes whose clocks differ; messages go both ways.
struct Pair {
    here: OffsetFilter,
    there: OffsetFilter,
    /// How far the clock of this side is ahead.
    skew: i64,
}

impl Pair {
    fn new(skew: i64) -> Self {
        Self {
            here: OffsetFilter::default(),
            there: OffsetFilter::default(),
            skew,
        }
    }

    fn clock_here(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.skew)
    }

    /// A message leaves the other side at `at`, on its clock.
    fn inward(&mut self, at: u64, delay: u64) {
        let received = self.clock_here(at + delay);
        self.here.on_message(at, received);
        if let Some(least) = self.there.least_delta() {
            self.here.on_peer(least);
        }
    }

    /// A message leaves this side.
    fn outward(&mut self, at: u64, delay: u64) {
        self.there.on_message(self.clock_here(at), at + delay);
        if let Some(least) = self.here.least_delta() {
            self.there.on_peer(least);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_error_is_at_most_half_of_what_the_fastest_messages_differ_by(
        skew in -10_000 * MS..10_000 * MS,
        inward in vec(0..50_000_000u64, 1..100),
        outward in vec(0..50_000_000u64, 1..100),
    ) {
        let mut pair = Pair::new(skew);
        let mut at = 20_000_000_000;
        for delay in &outward {
            at += 1_000_000;
            pair.outward(at, *delay);
        }
        for delay in &inward {
            at += 1_000_000;
            pair.inward(at, *delay);
        }
        let least = |delays: &[u64]| *delays.iter().min().unwrap() as i64;
        let (least_in, least_out) = (least(&inward), least(&outward));
        let allowed = (least_in - least_out).abs().div_euclid(2) + 1;
        let error = (pair.here.offset().unwrap() - skew).abs();
        prop_assert!(error <= allowed, "{error} ns, {allowed} allowed");
    }

    #[test]
    fn half_a_second_of_skew_is_found_to_half_a_millisecond(
        ahead in any::<bool>(),
        inward in vec(0..80_000_000u64, 20),
        outward in vec(0..80_000_000u64, 20),
        fastest in (0..1_000_000u64, 0..1_000_000u64),
    ) {
        let skew = if ahead { 500 * MS } else { -500 * MS };
        let mut pair = Pair::new(skew);
        let mut at = 2_000_000_000;
        for (inward, outward) in inward.iter().zip(&outward) {
            at += 3_000_000;
            pair.outward(at, *outward);
            pair.inward(at, *inward);
        }
        pair.outward(at, fastest.0);
        pair.inward(at, fastest.1);
        let error = (pair.here.offset().unwrap() - skew).abs();
        prop_assert!(error <= MS / 2, "{error} ns");
        // A time on the other clock is converted to this one within half a millisecond.
        prop_assert!(pair.here.to_local(at).abs_diff(pair.clock_here(at)) <= 500_000);
    }

    #[test]
    fn clocks_of_any_age_overflow_nothing(
        times in vec(any::<(u64, u64)>(), 1..20),
        peer in any::<i64>(),
        time in any::<u64>(),
    ) {
        let mut filter = OffsetFilter::default();
        for (sent, received) in times {
            filter.on_message(sent, received);
        }
        filter.on_peer(peer);
        prop_assert!(filter.offset().is_some());
        let _ = filter.to_local(time);
    }
}

proptest! {
    // Each case searches a full window with every message.
    #![proptest_config(ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_least_of_the_window_is_what_a_search_finds(
        deltas in vec(0..1_000u64, 1_500..2_500),
    ) {
        let (mut filter, mut window) = (OffsetFilter::default(), VecDeque::new());
        for delta in deltas {
            filter.on_message(5_000, 5_000 + delta);
            window.push_back(delta as i64);
            if window.len() as u64 > WINDOW {
                window.pop_front();
            }
            prop_assert_eq!(filter.least_delta(), window.iter().min().copied());
        }
    }
}

#[test]
fn nothing_is_moved_before_both_ways_are_known() {
    let mut filter = OffsetFilter::default();
    assert_eq!((filter.least_delta(), filter.offset()), (None, None));
    assert_eq!(filter.to_local(7), 7);
    filter.on_message(10, 1_010);
    assert_eq!((filter.least_delta(), filter.offset()), (Some(1_000), None));
    filter.on_peer(-900);
    assert_eq!(filter.offset(), Some(950));
    assert_eq!(filter.to_local(50), 1_000);
    assert_eq!(filter.to_local(u64::MAX), u64::MAX, "never stays never");
    assert_eq!(filter.to_local(0), 0, "at once stays at once");
    filter.reset();
    assert_eq!(filter.offset(), None);
}

#[test]
fn a_clock_that_drifts_is_followed() {
    // 100 parts in a million, 1,000 messages a second, for a minute.
    let mut filter = OffsetFilter::default();
    for message in 0..60_000u64 {
        let sent = 1_000_000_000 + message * 1_000_000;
        let ahead = message * 100;
        filter.on_message(sent, sent + ahead + 50_000);
        filter.on_peer(50_000 - ahead as i64);
    }
    let (offset, truth) = (filter.offset().unwrap(), 60_000 * 100);
    // The window covers the last second: 0.1 ms of drift here, of which half counts.
    assert!((offset - truth).abs() <= 60_000, "{offset}, not {truth}");
}
