//! When offline jobs make room, from both sides of each threshold.

use sextant_health::throttle::{Observation, Throttle, Verdict, has_room};

/// Whether a job that is paused or not pauses at a utilisation and a slow-down.
fn pauses(paused: bool, online_utilization: f64, slow_down: f64) -> bool {
    let throttle = Throttle {
        pause_utilization: 0.5,
        resume_share: 0.5,
        pause_slow_down: 3.0,
    };
    let seen = Observation {
        online_utilization,
        slow_down,
    };
    throttle.decide(paused, seen) == Verdict::Pause
}

#[test]
fn a_job_pauses_above_a_utilisation_and_resumes_below_a_share_of_it() {
    assert!(!pauses(false, 0.5, 1.0));
    assert!(pauses(false, 0.51, 1.0));
    // Half of 0.5.
    assert!(!pauses(true, 0.25, 1.0));
    assert!(pauses(true, 0.26, 1.0));
}

#[test]
fn a_job_pauses_where_queries_are_slowed_down_and_resumes_halfway_back() {
    assert!(!pauses(false, 0.0, 3.0));
    assert!(pauses(false, 0.0, 3.1));
    // Halfway from 1 to 3.
    assert!(!pauses(true, 0.0, 2.0));
    assert!(pauses(true, 0.0, 2.1));
    // Without queries there is no slow-down.
    assert!(!pauses(true, 0.0, 0.0));
}

#[test]
fn a_batch_of_a_job_begins_where_online_batches_occupy_two_fifths_of_a_worker_at_most() {
    assert!(has_room(0, 1) && !has_room(1, 1));
    assert!(!has_room(1, 2));
    assert!(has_room(2, 5) && !has_room(3, 5));
}
