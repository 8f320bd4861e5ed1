//! What tells Symphony from others (arXiv 2308.07470, sections 3 and 4), in small histories.

use sextant_baselines::{Options, Policy};
use sextant_schedule::{
    Action, Delay, DeviceSpec, DropReason, LatencyTable, NEVER, Nanos, PoolIx, QueueSpec,
};

use crate::small::{Small, batch, batches, drops, spec};
use sextant_types::index::DeviceIx;

const MS: Nanos = 1_000_000;

fn linear(alpha_ms: f64, beta_ms: f64) -> QueueSpec {
    QueueSpec {
        latency: LatencyTable::linear(alpha_ms, beta_ms, 8).unwrap(),
        ..spec(8)
    }
}

/// A request every millisecond for 300 ms, so that the rate is known; every batch ends at once.
/// Tells how long the first request of each batch had waited.
fn warm_up(small: &mut Small, slack: Nanos) -> Vec<Nanos> {
    let mut waits = Vec::new();
    let mut note = |small: &mut Small, now: Nanos, actions: &[Action<u64>]| {
        for one in batches(actions) {
            let first = one.requests.first().expect("a batch has requests") * MS;
            waits.push(now - first);
            assert_eq!(small.result(now, one.id), [], "nothing waits for a slot");
        }
    };
    for at in 0..300 {
        let now = at * MS;
        while let Some(next) = small.scheduler.next_timer().filter(|next| *next <= now) {
            let actions = small.late_timer(next);
            note(small, next, &actions);
        }
        let actions = small.request(now, 0, at, now + slack);
        note(small, now, &actions);
    }
    waits
}

#[test]
fn a_lone_request_starts_at_the_last_moment_at_which_one_more_could_join() {
    let mut small = Small::of(Policy::Symphony, 1, &[spec(8)]);
    assert_eq!(small.request(0, 0, 0, 1_000), []);
    let alone = batch(&small.timer(1_000 - 120));
    assert_eq!((alone.earliest, alone.latest), (880, 1_000 - 110));
}

#[test]
fn an_arrival_before_the_start_joins() {
    let mut small = Small::of(Policy::Symphony, 1, &[spec(8)]);
    small.request(0, 0, 0, 1_000);
    assert_eq!(small.request(500, 0, 1, 1_500), []);
    assert_eq!(batch(&small.timer(1_000 - 130)).requests, [0, 1]);
}

#[test]
fn a_full_batch_does_not_wait() {
    let mut small = Small::of(Policy::Symphony, 1, &[spec(2)]);
    small.request(0, 0, 0, 1_000);
    assert_eq!(batch(&small.request(10, 0, 1, 1_000)).requests, [0, 1]);
}

#[test]
fn nothing_starts_after_its_window() {
    let mut small = Small::of(Policy::Symphony, 1, &[spec(8)]);
    small.request(0, 0, 0, 1_000);
    // A timer that comes after 890 finds nothing that could still be met.
    let late = small.late_timer(891);
    assert_eq!(drops(&late), [(0, DropReason::Expired)]);
    assert_eq!(batches(&late), []);
}

#[test]
fn of_two_that_wait_the_one_with_the_tighter_latest_start_goes_first() {
    let mut small = Small::of(Policy::Symphony, 1, &[spec(8), spec(8)]);
    let running = small.occupy(0, 0);
    small.request(0, 0, 1, 345);
    small.request(0, 1, 2, 340);
    assert_eq!(batch(&small.result(225, running)).requests, [2]);
}

#[test]
fn the_first_requests_are_given_up_when_they_would_force_a_small_batch() {
    let run = |policy| {
        let mut small = Small::of(policy, 1, &[linear(1.0, 5.0)]);
        warm_up(&mut small, 25 * MS);
        let mut actions = Vec::new();
        small
            .scheduler
            .on_device_down(400 * MS, DeviceIx::new(0), &mut actions);
        // With 6.5 ms left the first can be met alone (6 ms), but not with the seven others.
        let now = 500 * MS;
        small.request(now - 18 * MS - MS / 2, 0, 1_000, now + 6 * MS + MS / 2);
        for payload in 1_001..1_008 {
            actions.extend(small.request(now, 0, payload, now + 25 * MS));
        }
        let spec = DeviceSpec {
            pool: PoolIx::new(0),
            slots: 1,
        };
        actions.extend(small.up_at(now, DeviceIx::new(1).get(), spec));
        while batches(&actions).is_empty() {
            let next = small.scheduler.next_timer().expect("something waits");
            actions.extend(small.late_timer(next));
        }
        (drops(&actions), batch_sizes(&actions))
    };
    assert_eq!(run(Policy::Eager), (vec![], vec![1]));
    assert_eq!(
        run(Policy::Symphony),
        (vec![(1_000, DropReason::Shed)], vec![7])
    );
}

fn batch_sizes(actions: &[Action<u64>]) -> Vec<usize> {
    let sizes = batches(actions).into_iter().map(|one| one.requests.len());
    sizes.collect()
}

#[test]
fn with_the_beta_lambda_rule_a_model_with_little_fixed_cost_is_not_deferred() {
    let longest_wait = |beta_ms: f64, beta_lambda: bool| {
        let options = Options {
            beta_lambda,
            ..Options::of(Policy::Symphony)
        };
        let mut small = Small::new(&options, 1, &[linear(1.0, beta_ms)]);
        // The last of them, long after the first window of the meter.
        let waits = warm_up(&mut small, 40 * MS);
        *waits
            .iter()
            .rev()
            .take(20)
            .max()
            .expect("batches were started")
    };
    // A request comes every millisecond: beta * lambda is 0.1 and 12 rows.
    assert_eq!(longest_wait(0.1, true), 0);
    assert!(longest_wait(0.1, false) > 5 * MS);
    assert!(longest_wait(12.0, true) > 5 * MS);
}

#[test]
fn what_a_timer_leaves_behind_is_formed_again_without_an_arrival() {
    let outcome = |policy| {
        let mut small = Small::of(policy, 1, &[spec(8)]);
        let running = small.occupy(0, 0);
        small.request(0, 0, 1, 300);
        small.request(0, 0, 2, 2_000);
        let mut actions = Vec::new();
        while let Some(next) = small.scheduler.next_timer().filter(|next| *next < 500) {
            actions.extend(small.late_timer(next));
        }
        actions.extend(small.result(500, running));
        while let Some(next) = small.scheduler.next_timer() {
            actions.extend(small.late_timer(next));
        }
        let lost: Vec<u64> = drops(&actions)
            .into_iter()
            .map(|(payload, _)| payload)
            .collect();
        (
            lost,
            batches(&actions)
                .into_iter()
                .map(|one| (one.requests, one.earliest))
                .collect(),
        )
    };
    assert_eq!(
        outcome(Policy::Symphony),
        (vec![1], vec![(vec![2], 2_000 - 120)])
    );
    // As printed it stalls until the next request comes, here for ever.
    assert_eq!(outcome(Policy::SymphonyPaper), (vec![1, 2], vec![]));
}

#[test]
fn a_batch_is_sent_early_enough_for_its_inputs_and_its_answer() {
    let options = Options {
        delay: Delay {
            control: 50,
            data_per_row: 1,
            response: 20,
        },
        ..Options::of(Policy::Symphony)
    };
    let mut small = Small::new(&options, 1, &[spec(8)]);
    let refused = small.request(0, 0, 0, 51 + 110 + 20 - 1);
    assert_eq!(drops(&refused), [(0, DropReason::Infeasible)]);
    assert_eq!(small.request(0, 0, 1, 1_000), []);
    // The last moment at which a second row could still be gathered and run with it.
    let sent = batch(&small.timer(1_000 - 20 - 120 - 52));
    assert_eq!((sent.earliest, sent.latest), (859, 870));
    // The next batch is sent while the first still runs, as long before its end as that took to
    // arrive.
    let next = (0..8).map(|payload| small.request(900, 0, payload, NEVER));
    assert!(next.into_iter().all(|actions| actions.is_empty()));
    let second = batch(&small.timer(969 - 51));
    assert_eq!((second.requests.len(), second.earliest), (8, 918 + 58));
}
