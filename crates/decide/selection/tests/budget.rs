//! What an application may spend: bounds over any time, and when it may go on.

use proptest::prelude::*;
use sextant_selection::budget::{Charge, TokenBucket, WINDOW_S};
use sextant_types::time::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// A dollar a second; a full bucket holds 60.
const HOURLY: f64 = 3600.0;

#[test]
fn a_bucket_holds_a_minute_and_then_pays_what_comes_in() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    for _ in 0..6 {
        let charge = bucket.charge(10.0, 0).expect("a minute's worth");
        bucket.settle(charge, 10.0);
    }
    assert_eq!(bucket.charge(10.0, 0), None);
    let wait = bucket.wait(10.0, 0).expect("it fills");
    assert!((10 * SECOND..10 * SECOND + 10).contains(&wait), "{wait}");
    assert_eq!(
        bucket.charge(10.0, wait - SECOND),
        None,
        "a second too soon"
    );
    assert!(bucket.charge(10.0, wait).is_some(), "as it said");
    // Whoever waits long gets no more than a minute's worth.
    let later = wait + 3600 * SECOND;
    let spent = (0..100).filter(|_| bucket.charge(10.0, later).is_some());
    assert_eq!(spent.count(), 6);
}

#[test]
fn a_wait_is_worked_out_to_the_nanosecond_and_by_what_queries_do_cost() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let charge = bucket.charge(60.0, 0).expect("a minute's worth");
    bucket.settle(charge, 60.0);
    assert_eq!(bucket.wait(10.0, 0), Some(10 * SECOND + 1));
    // A full bucket and a query that costs a thousand times what is listed: others will, too.
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let charge = bucket.charge(0.1, 0).expect("a tenth of a dollar");
    bucket.settle(charge, 100.0);
    // It owes 40 dollars, and a listed tenth is expected to cost 0.1 (1 + 0.1 * 999) dollars.
    let wait = bucket.wait(0.1, 0).expect("it fills");
    let expected = (50.09 * SECOND as f64) as Nanos;
    assert!(wait.abs_diff(expected) < 1000, "{wait} is not {expected}");
}

#[test]
fn what_is_free_says_nothing_about_prices() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let free = bucket.charge(0.0, 0).expect("it costs nothing");
    bucket.settle(free, 1.0);
    assert_eq!(bucket.may_list_usd(0), 59.0);
}

#[test]
fn a_budget_of_nothing_pays_what_is_free_alone() {
    let mut bucket = TokenBucket::new(0.0, 0);
    assert_eq!(bucket.may_list_usd(3600 * SECOND), 0.0);
    assert_eq!(bucket.charge(1e-12, 3600 * SECOND), None);
    assert_eq!(bucket.wait(1e-12, 3600 * SECOND), None, "never");
    let free = bucket.charge(0.0, 3600 * SECOND).expect("it costs nothing");
    // It did cost something after all: nothing else is paid any more, what is free is.
    bucket.settle(free, 1.0);
    assert!(bucket.charge(0.0, 3600 * SECOND).is_some());
}

#[test]
fn what_costs_more_than_a_minute_is_paid_rarely_and_not_never() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let dear = bucket
        .charge(600.0, 0)
        .expect("a full bucket pays anything");
    bucket.settle(dear, 600.0);
    assert_eq!(bucket.charge(1e-6, 500 * SECOND), None, "it owes");
    assert_eq!(bucket.charge(600.0, 590 * SECOND), None);
    let wait = bucket.wait(600.0, 590 * SECOND).expect("it fills");
    assert!((10 * SECOND..10 * SECOND + 10).contains(&wait), "{wait}");
    assert!(bucket.charge(600.0, 590 * SECOND + wait).is_some());
}

#[test]
fn what_was_not_run_is_given_back_and_what_cost_less_in_part() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let charge = bucket.charge(60.0, 0).expect("a minute's worth");
    assert_eq!(bucket.charge(1.0, 0), None);
    bucket.take_back(charge);
    let charge = bucket.charge(60.0, 0).expect("it was given back");
    bucket.settle(charge, 30.0);
    assert!(bucket.charge(20.0, 0).is_some());
}

#[test]
fn what_queries_cost_beside_what_is_listed_is_learnt() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let mut now = 0;
    for _ in 0..200 {
        now += 100 * SECOND;
        let charge = bucket.charge(1.0, now).expect("it has filled");
        bucket.settle(charge, 8.0);
    }
    now += 100 * SECOND;
    // 60 dollars pay seven queries that list 1 and cost 8.
    let charges = (0..100).map_while(|_| bucket.charge(1.0, now));
    let charges: Vec<Charge> = charges.collect();
    assert_eq!(charges.len(), 7);
}

#[test]
fn another_budget_counts_at_once_and_forgives_nothing() {
    let mut bucket = TokenBucket::new(HOURLY, 0);
    let charge = bucket.charge(60.0, 0).expect("a minute's worth");
    bucket.settle(charge, 60.0);
    bucket.set_budget(10.0 * HOURLY, 0);
    assert!(
        bucket.charge(500.0, 0).is_some(),
        "ten minutes' worth but one"
    );
    assert_eq!(bucket.charge(500.0, 0), None);
    bucket.set_budget(0.0, 0);
    assert_eq!(bucket.charge(1.0, 3600 * SECOND), None);
    bucket.set_budget(f64::NAN, 0);
    assert_eq!(
        bucket.charge(1.0, 7200 * SECOND),
        None,
        "no amount is nothing"
    );
}

/// A query: when after the last, s; what it lists; what it costs beside that; how long it runs, s.
type Query = (f64, f64, f64, f64);

fn queries() -> impl Strategy<Value = Vec<Query>> {
    let query = (0.0..20.0, 0.0..200.0, 0.0..3.0, 0.0..10.0);
    prop::collection::vec(query, 1..400)
}

proptest! {
    #[test]
    fn over_any_time_no_more_is_spent_than_the_budget_and_a_window(queries in queries()) {
        let capacity = HOURLY / 3600.0 * WINDOW_S;
        let mut bucket = TokenBucket::new(HOURLY, 0);
        let mut under_way: Vec<(Nanos, Charge, f64)> = Vec::new();
        let (mut now, mut paid) = (0, Vec::new());
        // What goes beyond: one query dearer than a window, and those under way that cost more than expected.
        let mut beyond = 0.0f64;
        for (gap, listed, ratio, runs) in queries {
            now += (gap * 1e9) as Nanos;
            under_way.retain(|(until, charge, cost)| {
                let runs = *until > now;
                if !runs {
                    bucket.settle(*charge, *cost);
                }
                runs
            });
            let cost = listed * ratio;
            if let Some(charge) = bucket.charge(listed, now) {
                under_way.push((now + (runs * 1e9) as Nanos, charge, cost));
                paid.push((now as f64 / 1e9, cost));
            }
            let of_all: f64 = under_way.iter().map(|(_, _, cost)| cost).sum();
            beyond = beyond.max(of_all + 200.0 * 3.0);
        }
        for (first, (from, _)) in paid.iter().enumerate() {
            let mut spent = 0.0;
            for (until, cost) in &paid[first..] {
                spent += cost;
                let most = (until - from) + capacity + beyond;
                prop_assert!(spent <= most + 1e-6, "{spent} from {from} until {until}, {most}");
            }
        }
    }

    #[test]
    fn with_prices_as_listed_the_bound_is_the_budget_and_a_window(
        queries in prop::collection::vec((0.0..20.0, 0.0..59.0), 1..400)
    ) {
        let mut bucket = TokenBucket::new(HOURLY, 0);
        let (mut now, mut paid) = (0, Vec::new());
        for (gap, listed) in queries {
            now += (gap * 1e9) as Nanos;
            if let Some(charge) = bucket.charge(listed, now) {
                bucket.settle(charge, listed);
                paid.push((now as f64 / 1e9, listed));
            }
        }
        for (first, (from, _)) in paid.iter().enumerate() {
            let mut spent = 0.0;
            for (until, cost) in &paid[first..] {
                spent += cost;
                let most = (until - from) + WINDOW_S;
                prop_assert!(spent <= most + 1e-6, "{spent} from {from} until {until}");
            }
        }
    }

    #[test]
    fn whoever_waits_as_long_as_was_said_is_paid(
        spent in prop::collection::vec(0.0..300.0f64, 0..20), listed in 0.0..300.0f64
    ) {
        let mut bucket = TokenBucket::new(HOURLY, 0);
        for usd in spent {
            if let Some(charge) = bucket.charge(usd, 0) {
                bucket.settle(charge, usd);
            }
        }
        let wait = bucket.wait(listed, 0).expect("there is a budget");
        prop_assert!(bucket.charge(listed, wait).is_some(), "after {wait} ns");
    }
}
