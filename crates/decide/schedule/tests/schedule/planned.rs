//! Batches are no larger than a plan allows.

use sextant_baselines::Policy;
use sextant_schedule::{NEVER, PoolIx, QueueSpec, Request};

use crate::small::{Small, batch, batches, spec};

/// A queue of batches of up to eight rows, of which a plan has so many.
fn planned(rows: u32) -> QueueSpec {
    QueueSpec {
        planned_rows: rows,
        ..spec(8)
    }
}

/// Rows of each batch, once this waits for the only slot and it comes free.
fn sizes(policy: Policy, planned_rows: u32, waiting: &[u32]) -> Vec<usize> {
    let mut small = Small::of(policy, 1, &[planned(planned_rows)]);
    let mut running = small.occupy(0, 0);
    for (payload, rows) in (0..).zip(waiting) {
        let request = Request {
            payload,
            rows: *rows,
            deadline: 1_000_000,
        };
        assert_eq!(small.rows(1, 0, request), [], "the slot is taken");
    }
    let mut sizes = Vec::new();
    let mut now = 110;
    let mut left = waiting.len();
    while left > 0 {
        let actions = small.result(now, running);
        let started = batch(&actions);
        let requests = started.requests.iter();
        sizes.push(requests.map(|at| waiting[*at as usize] as usize).sum());
        left -= started.requests.len();
        (running, now) = (started.id, now + 200);
    }
    sizes
}

#[test]
fn several_requests_share_as_many_rows_as_are_planned() {
    for policy in [Policy::Sextant, Policy::Eager] {
        assert_eq!(sizes(policy, 3, &[1; 7]), [3, 3, 1], "{policy:?}");
        assert_eq!(sizes(policy, u32::MAX, &[1; 7]), [7], "{policy:?}");
    }
}

#[test]
fn a_request_of_more_rows_than_are_planned_runs_alone() {
    for policy in [Policy::Sextant, Policy::Eager] {
        assert_eq!(sizes(policy, 3, &[6, 1, 1]), [6, 2], "{policy:?}");
    }
}

#[test]
fn what_waits_is_counted_in_batches_as_they_are_planned() {
    let mut small = Small::of(Policy::Sextant, 1, &[planned(2)]);
    small.occupy(0, 0);
    for payload in 0..4 {
        assert_eq!(batches(&small.request(1, 0, payload, NEVER)), []);
    }
    // Two batches of two rows, which take 120 ns each.
    assert_eq!(small.scheduler.load(PoolIx::new(0)).queued, 240);
}
