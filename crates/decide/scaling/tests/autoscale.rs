//! Autoscalers through their public interface. The sequences for the rules of others are facts from
//! executions of the published code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sextant_scaling::autoscale::{
    Aiad, Autoscaler, Change, Mark, Observation, Oneshot, Policy, Reactive, Service, Setting,
};

/// As in the published experiment: 154 ms a request, answers within 720 ms.
const SETTING: Setting = Setting {
    processors: 8,
    target_ms: 720.0,
    service: Service {
        mean_s: 0.154_28,
        deviation_s: 0.033_1,
    },
};

fn seen(desired: u32, mean_latency_ms: f64, arrivals: &[u32]) -> Observation<'_> {
    Observation {
        desired,
        running: desired,
        busy: false,
        mean_latency_ms,
        arrivals,
        concurrency: &[],
        waiting: 0,
    }
}

/// Mean latencies at successive decisions, and from then on 125 ms a hundred times.
fn latencies() -> Vec<f64> {
    let mut latencies = vec![
        800.0, 800.0, 700.0, 800.0, 800.0, 800.0, 900.0, 720.0, 900.0, 900.0, 900.0, 900.0,
    ];
    latencies.extend([125.0; 100]);
    latencies
}

/// At which decisions, counted from one, a job with ten replicas changes, and to how many.
fn changes(mut decide: impl FnMut(Observation<'_>) -> Vec<Change>) -> Vec<(usize, u32)> {
    let mut changes = Vec::new();
    let all = latencies().into_iter().chain([125.0; 60]);
    for (at, latency) in (1..).zip(all.take(132)) {
        for change in decide(seen(10, latency, &[])) {
            changes.push((at, change.target));
        }
    }
    changes
}

#[test]
fn three_bad_decisions_in_a_row_add_and_sixty_good_ones_take_away() {
    let mut aiad = Aiad::new(720.0);
    let found = changes(|seen| aiad.decide(0, &[seen]));
    assert_eq!(found, [(6, 11), (11, 11), (72, 9), (132, 9)]);
    let mut oneshot = Oneshot::new(720.0);
    let found = changes(|seen| oneshot.decide(0, &[seen]));
    // By 1.11, 1.25, 0.14 and 0.14.
    assert_eq!(found, [(6, 12), (11, 13), (72, 2), (132, 2)]);
}

#[test]
fn beside_a_plan_bad_decisions_count_though_good_ones_come_between() {
    let mut reactive = Reactive::new(720.0);
    let found = changes(|seen| reactive.decide(&[seen]));
    assert_eq!(found, [(4, 11), (7, 11), (11, 11)]);
}

#[test]
fn a_plan_by_rates_gives_each_job_what_its_largest_minute_needs() {
    let minute = [957, 496, 262, 1094, 1132, 460, 425, 599, 1028, 101];
    let ticks = minute.map(|count| [count, 0, 0, 0, 0, 0]);
    let jobs: Vec<Observation<'_>> = ticks.iter().map(|ticks| seen(1, 100.0, ticks)).collect();
    let planned = Mark::new(720.0).decide(60, &jobs);
    let targets: Vec<u32> = planned.iter().map(|change| change.target).collect();
    assert_eq!(targets, [4, 3, 2, 5, 5, 2, 2, 3, 5, 1]);
}

/// Requests by tick of a job with the same number in each minute.
fn steady(per_minute: u32, minutes: usize) -> Vec<u32> {
    vec![per_minute / 6; minutes * 6]
}

fn targets(jobs: &[Observation<'_>]) -> Vec<u32> {
    let mut policy = Policy::Sextant.build(&SETTING);
    let now_s = u32::try_from(jobs[0].arrivals.len() * 10).unwrap();
    let mut desired: Vec<u32> = jobs.iter().map(|seen| seen.desired).collect();
    for change in policy.decide(now_s, jobs) {
        desired[change.job] = change.target;
    }
    desired
}

#[test]
fn free_processors_go_where_they_spare_late_answers_and_the_rest_stays_free() {
    // Two replicas do 13 requests a second.
    let (busy, quiet) = (steady(900, 20), steady(60, 20));
    let desired = targets(&[seen(1, 5000.0, &busy), seen(1, 100.0, &quiet)]);
    assert!((4..=6).contains(&desired[0]), "{desired:?}");
    assert!(desired[1] <= 2, "{desired:?}");
}

#[test]
fn a_job_far_beyond_what_it_has_gets_several_though_one_more_would_spare_nothing() {
    let (busy, quiet) = (steady(1500, 20), steady(60, 20));
    let desired = targets(&[seen(1, 5000.0, &busy), seen(7, 100.0, &quiet)]);
    assert!(desired[0] >= 5, "{desired:?}");
    assert!(desired.iter().sum::<u32>() <= SETTING.processors);
}

#[test]
fn nothing_moves_where_nothing_is_gained_nor_where_a_change_is_under_way() {
    let (one, other) = (steady(600, 20), steady(600, 20));
    assert_eq!(
        targets(&[seen(4, 200.0, &one), seen(4, 200.0, &other)]),
        [4, 4]
    );
    let (busy, quiet) = (steady(1500, 20), steady(60, 20));
    let changing = Observation {
        busy: true,
        ..seen(7, 100.0, &quiet)
    };
    assert_eq!(targets(&[seen(1, 5000.0, &busy), changing]), [1, 7]);
}

#[test]
fn what_repeats_is_known_before_it_comes() {
    // Every tenth minute six times as much.
    let counts = |minutes: usize| -> Vec<u32> {
        let minute = |at: usize| if at % 10 == 9 { 200 } else { 30 };
        (0..minutes).flat_map(|at| [minute(at); 6]).collect()
    };
    let steady = steady(600, 78);
    let mut policy = Policy::Sextant.build(&SETTING);
    let arrivals = counts(78);
    let jobs = [seen(2, 150.0, &arrivals), seen(6, 150.0, &steady)];
    // The peak comes in a minute, in time for a replica that starts now.
    let changes = policy.decide(78 * 60, &jobs);
    let grown = changes.iter().find(|change| change.job == 0).unwrap();
    assert!(grown.target >= 3, "{changes:?}");
}

#[test]
fn late_answers_rise_with_the_rate_and_fall_with_the_replicas() {
    let service = SETTING.service;
    for replicas in 1..=6 {
        let mut before = 0.0;
        for tenths in 1..=15 {
            let rps = f64::from(replicas * tenths) / 10.0 / service.mean_s;
            let late = service.late_share(rps, replicas, 0.72);
            assert!((0.0..=1.0).contains(&late), "{late}");
            assert!(
                late >= before - 1e-9,
                "{replicas} replicas at {tenths}: {late}"
            );
            assert!(late >= service.late_share(rps, replicas + 1, 0.72) - 1e-9);
            before = late;
        }
        assert!(before > 0.95, "{before}");
    }
    assert_eq!(service.late_share(1.0, 0, 0.72), 1.0);
    assert_eq!(service.late_share(1.0, 4, 0.1), 1.0);
}
