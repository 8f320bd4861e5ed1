//! Autoscalers under the rules of Faro's simulator, compared with that simulator's results for the same requests. The
//! results come from executions of the published code with constant run times.

use std::path::Path;

use sextant_lab::replicas::{Law, Rates, Report, Setting, World};
use sextant_scaling::autoscale::Policy;

const MS: u64 = 1_000_000;

fn setting(rates: Rates, processors: u32, service_ms: u64) -> Setting {
    Setting {
        rates,
        processors,
        initial: None,
        law: Law::Fixed {
            router: 5 * MS,
            service: service_ms * MS,
        },
        queue: 50,
        target_ms: 720.0,
        seed: 42,
    }
}

fn run(rates: &Rates, processors: u32, policy: Policy) -> Report {
    World::new(setting(rates.clone(), processors, 180), policy).run()
}

/// When the replicas of a job changed, s, and their new number.
fn changes(report: &Report, job: usize) -> Vec<(u32, u32)> {
    let changes = report.changes.iter().filter(|(_, of, _)| *of == job);
    changes
        .map(|(at, _, to)| (at.round() as u32, *to))
        .collect()
}

/// Violations may differ by one in a hundred, because rounding decides the order of simultaneous events there.
fn assert_job(report: &Report, job: usize, (requests, failed, violations): (u64, u64, u64)) {
    let of = report.jobs[job];
    assert_eq!((of.requests, of.failed), (requests, failed), "job {job}");
    let apart = of.violations.abs_diff(violations);
    assert!(
        apart <= 10 + violations / 100,
        "job {job}: {of:?}, not {violations}"
    );
}

#[test]
fn a_burst_fills_the_queue_the_dispatcher_and_the_replicas() {
    let rates = Rates::new(vec![vec![20]]);
    let burst = Setting {
        initial: Some(2),
        queue: 5,
        // The law below sends all requests at once.
        ..setting(rates, 2, 100)
    };
    let report = World::new(
        Setting {
            law: Law::Burst {
                router: 5 * MS,
                service: 100 * MS,
            },
            ..burst
        },
        Policy::FairShare,
    )
    .run();
    assert_eq!((report.jobs[0].requests, report.jobs[0].failed), (20, 5));
    // The last requests are answered at .715, .720 (not counted as late) and .810.
    assert_eq!(report.jobs[0].violations, 6);
}

#[test]
fn processors_move_from_a_job_that_has_too_many_to_one_that_has_too_few() {
    let minutes = (0..30).map(|minute| match minute < 6 {
        true => vec![900, 60],
        false => vec![60, 900],
    });
    let rates = Rates::new(minutes.collect());
    let report = run(&rates, 5, Policy::Aiad);
    assert_eq!(
        changes(&report, 0),
        [(0, 1), (65, 2), (125, 3), (185, 4), (770, 3), (1370, 2)]
    );
    assert_eq!(changes(&report, 1), [(0, 1), (835, 2), (1435, 3)]);
    assert_job(&report, 0, (6840, 791, 2302));
    assert_job(&report, 1, (21960, 6763, 16548));
    let report = run(&rates, 5, Policy::Oneshot);
    assert_eq!(changes(&report, 0), [(0, 1), (65, 4), (690, 2), (1290, 1)]);
    assert_eq!(
        changes(&report, 1),
        [(0, 1), (755, 3), (1400, 1), (1475, 4)]
    );
    assert_job(&report, 0, (6840, 561, 1058));
    assert_job(&report, 1, (21960, 4332, 7533));
}

#[test]
fn six_jobs_contend_for_sixteen_processors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library/data/six_jobs.csv");
    let rates = Rates::load(&path).unwrap();
    let report = run(&rates, 16, Policy::Oneshot);
    assert_eq!(
        changes(&report, 0),
        [(0, 1), (1515, 6), (2140, 2), (3510, 1)]
    );
    assert_eq!(
        changes(&report, 5),
        [
            (0, 1),
            (735, 6),
            (1360, 2),
            (1525, 5),
            (2140, 2),
            (2215, 5),
            (2810, 2),
            (2885, 5),
            (3510, 2)
        ]
    );
    assert_job(&report, 0, (15547, 141, 2845));
    assert_job(&report, 1, (11501, 133, 2281));
    assert_job(&report, 2, (21798, 295, 4141));
    assert_job(&report, 3, (6754, 0, 0));
    assert_job(&report, 5, (24006, 24, 2684));
    let report = run(&rates, 16, Policy::Aiad);
    assert_eq!(
        changes(&report, 0),
        [
            (0, 1),
            (1515, 2),
            (1575, 3),
            (2140, 2),
            (2475, 3),
            (3090, 2)
        ]
    );
    assert_job(&report, 1, (11501, 111, 1044));
    assert_job(&report, 2, (21798, 120, 1821));
    assert_job(&report, 5, (24006, 90, 3169));
    let report = run(&rates, 16, Policy::Mark);
    assert_eq!(
        changes(&report, 5),
        [
            (0, 1),
            (735, 2),
            (795, 3),
            (900, 2),
            (1525, 3),
            (2435, 4),
            (2495, 5),
            (3300, 1)
        ]
    );
    assert_eq!(
        changes(&report, 1),
        [(0, 1), (95, 2), (1235, 3), (1500, 1), (3035, 2)]
    );
    assert_job(&report, 0, (15547, 8, 583));
    assert_job(&report, 2, (21798, 52, 1285));
    assert_job(&report, 5, (24006, 28, 2195));
}

#[test]
fn autoscalers_in_use_see_requests_that_come_wait_and_are_inside() {
    // 15 requests of 180 ms a second, for which one replica is too few from the beginning.
    let rates = Rates::new(vec![vec![900]; 2]);
    let grown = |policy: Policy| changes(&run(&rates, 5, policy), 0);
    // 2.7 processors at 0.8 each are needed at the second tick; a replica starts in 35 s.
    assert_eq!(grown(Policy::Hpa), [(0, 1), (55, 4)]);
    // Some forty requests are inside on average in the first 10 s, so all processors are used.
    assert_eq!(grown(Policy::Kpa), [(0, 1), (45, 5)]);
    // At 30 s the queue is full and 55 requests are inside. They need eleven replicas, of which four more are allowed.
    assert_eq!(grown(Policy::KedaQueue), [(0, 1), (65, 5)]);
}
