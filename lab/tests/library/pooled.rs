//! Faro's requests on processors that serve all jobs, compared with numbers computed by hand.

use std::path::Path;

use sextant_baselines::Policy;
use sextant_lab::replicas::{
    Experiment, Law, Plan, Rates, Report, Setting, World, names, pooled, run,
};
use sextant_scaling::autoscale;

const MS: u64 = 1_000_000;

/// A setting whose routers take 5 ms.
fn setting(counts: Vec<Vec<u32>>, processors: u32, service_ms: u64, target_ms: f64) -> Setting {
    Setting {
        rates: Rates::new(counts),
        processors,
        initial: None,
        law: Law::Fixed {
            router: 5 * MS,
            service: service_ms * MS,
        },
        queue: 50,
        target_ms,
        seed: 1,
    }
}

fn play(setting: &Setting) -> Report {
    pooled(setting, Policy::Sextant).unwrap()
}

/// The numbers of requests, of refused requests, and of refused or late requests, over all jobs.
fn sums(report: &Report) -> (u64, u64, u64) {
    let jobs = report.jobs.iter();
    jobs.fold((0, 0, 0), |(requests, failed, violations), of| {
        (
            requests + of.requests,
            failed + of.failed,
            violations + of.violations,
        )
    })
}

#[test]
fn two_jobs_share_a_processor() {
    let at_once = |target_ms: f64| play(&setting(vec![vec![1, 1]], 1, 100, target_ms));
    // Both requests leave their routers at 5 ms. One runs until 105 ms; the other runs until 205 ms and is answered at
    // 210 ms. The scheduler leaves 10 ms for each pass.
    assert_eq!(sums(&at_once(225.0)), (2, 0, 0));
    // A request that cannot be met is refused.
    let report = at_once(150.0);
    assert_eq!(sums(&report), (2, 1, 1));
    // Half of the requests of the only minute are violations: all of one job and none of the other.
    assert!((report.violation_percent - 50.0).abs() < 1e-9, "{report:?}");
    assert_eq!((report.replicas_mean, report.changes.len()), (1.0, 0));
}

#[test]
fn a_router_takes_one_at_a_time_in_both_directions() {
    let burst = Setting {
        law: Law::Burst {
            router: 5 * MS,
            service: 50 * MS,
        },
        ..setting(vec![vec![20]], 20, 50, 150.0)
    };
    // The twenty requests pass the router at 5, 10, .., 100 ms and run for 50 ms. The first answer waits until the last
    // request has passed, so the answers leave at 105, 110, .., 200 ms: ten of them after 150 ms.
    assert_eq!(sums(&play(&burst)), (20, 0, 10));
}

#[test]
fn what_one_job_needs_moves_with_its_load() {
    // 15 requests of 100 ms arrive a second, first of one job and then of the other.
    let minutes = (0..4).map(|minute| match minute < 2 {
        true => vec![900, 6],
        false => vec![6, 900],
    });
    let setting = setting(minutes.collect(), 2, 100, 720.0);
    assert_eq!(sums(&play(&setting)), (3624, 0, 0));
    let own = World::new(setting, autoscale::Policy::FairShare).run();
    assert!(own.violation_percent > 40.0, "{own:?}");
}

#[test]
fn every_request_ends_once_and_a_seed_says_everything() {
    let rates = Rates::named("faro").unwrap().first(5);
    let sent: u64 = (0..5)
        .flat_map(|minute| (0..10).map(move |job| (minute, job)))
        .map(|(minute, job)| u64::from(rates.count(minute, job)))
        .sum();
    let of = |seed: u64| {
        let setting = Setting {
            rates: rates.clone(),
            law: Law::Measured,
            seed,
            ..setting(Vec::new(), 20, 0, 720.0)
        };
        play(&setting)
    };
    let report = of(1);
    assert_eq!(sums(&report).0, sent);
    assert_eq!(report, of(1));
    assert_ne!(report, of(2));
    // The requests need 17 processors: a fifth more is enough, a fifth less is not.
    assert!(report.violation_percent < 1.0, "{report:?}");
    let few = Setting {
        rates: rates.clone(),
        law: Law::Measured,
        ..setting(Vec::new(), 13, 0, 720.0)
    };
    assert!(play(&few).violation_percent > 10.0);
}

#[test]
fn an_experiment_says_whether_processors_are_pooled() {
    assert!(names().contains(&"faro-28-pooled".to_owned()));
    let experiment = Experiment::named("faro-28-pooled").unwrap().unwrap();
    assert!(experiment.pooled);
    let minutes = experiment.setting.rates.first(3);
    let short = Experiment {
        setting: Setting {
            rates: minutes,
            ..experiment.setting.clone()
        },
        ..experiment
    };
    let plan = |name: &str| Plan {
        policies: vec![name.to_owned()],
        seeds: 1,
        ..Plan::default()
    };
    let records = run(&short, &plan("eager"), &mut |_, _| {}).unwrap();
    let of = |metric: &str| records.iter().find(|record| record.metric == metric);
    assert_eq!(
        of("slo_violation_percent").unwrap().policy.as_deref(),
        Some("eager")
    );
    let error = run(&short, &plan("hpa"), &mut |_, _| {}).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("there is no scheduling policy `hpa`"),
        "{error}"
    );
}

#[test]
fn a_pool_may_have_fewer_processors_than_jobs_but_not_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rates.csv"), "minute,a,b\n0,3,4\n").unwrap();
    let load = |processors: u32, pooled: bool| {
        let text = format!(
            "kind = 'replicas'\ntitle = 't'\nrates = 'rates.csv'\ntarget_ms = 720\nqueue = 50\n\
             seeds = 1\n[[experiment]]\nname = 'mine'\nprocessors = {processors}\npooled = {pooled}\n"
        );
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, text).unwrap();
        Experiment::load(Path::new(&path))
    };
    let experiments = load(1, true).unwrap();
    let records = run(&experiments[0], &Plan::default(), &mut |_, _| {}).unwrap();
    let requests = records.iter().find(|of| of.metric == "requests_count");
    assert_eq!(requests.unwrap().value, 7.0);
    assert!(load(0, true).is_err());
    assert!(load(1, false).is_err());
}
