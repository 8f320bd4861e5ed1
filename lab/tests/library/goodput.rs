use std::convert::Infallible;

use sextant_lab::{
    experiment::Criterion,
    goodput::{Search, hopeless},
};
use sextant_simulator::{Report, Tally};

/// A system that misses everything beyond `capacity` requests per second.
fn system(capacity: f64) -> impl Fn(f64) -> Result<Report, Infallible> {
    move |rps| {
        let good = rps.min(capacity);
        let tally = Tally {
            sent: 1_000_000,
            good: (1e6 * good / rps) as u64,
            late: 1_000_000 - (1e6 * good / rps) as u64,
            ..Tally::default()
        };
        Ok(Report {
            models: vec![tally],
            seconds: 1.0,
            ..Report::default()
        })
    }
}

#[test]
fn finds_the_edge_to_the_resolution_wherever_it_lies() {
    for capacity in [70.0, 500.0, 799.0, 800.0, 990.0, 1_500.0] {
        let found = Search::below(1_000.0).run(system(capacity)).unwrap();
        // At a rate a hundredth above the capacity, a hundredth of the requests is missed.
        let edge = capacity / 0.99;
        assert!(
            found.rps <= edge && found.rps > edge / 1.0031,
            "{capacity}: {}",
            found.rps
        );
        assert!(
            found.probes.len() <= 20,
            "{capacity}: {}",
            found.probes.len()
        );
        let best = found.probes.iter().filter(|probe| probe.good);
        assert_eq!(best.map(|probe| probe.rps).fold(0.0, f64::max), found.rps);
    }
}

#[test]
fn starts_near_a_guess_and_needs_few_runs() {
    let search = Search {
        around_rps: 500.0,
        first_step: 0.01,
        ..Search::below(1_000.0)
    };
    let found = search.run(system(500.0)).unwrap();
    assert!(found.probes.len() <= 6, "{}", found.probes.len());
}

#[test]
fn nothing_good_is_zero_and_nothing_bad_ends() {
    let found = Search::below(1_000.0).run(system(0.0)).unwrap();
    assert_eq!(found.rps, 0.0);
    let found = Search::below(1_000.0).run(system(1e9)).unwrap();
    assert!(found.rps > 1_000.0);
    let found = Search::below(0.0).run(system(1e9)).unwrap();
    assert_eq!((found.rps, found.probes.len()), (0.0, 0));
}

#[test]
fn a_run_that_was_given_up_is_not_good() {
    let run = |rps: f64| {
        let mut report = system(1e9)(rps).unwrap();
        report.stopped = rps > 600.0;
        Ok::<_, Infallible>(report)
    };
    let found = Search::below(1_000.0).run(run).unwrap();
    assert!(found.rps <= 600.0 && found.rps > 590.0);
}

#[test]
fn one_poor_model_counts_unless_all_are_taken_together() {
    let run = |_: f64| {
        let mut report = Report::default();
        for late in [0, 20] {
            report.models.push(Tally {
                sent: 1_000,
                good: 1_000 - late,
                late,
                ..Tally::default()
            });
        }
        Ok::<_, Infallible>(report)
    };
    let search = Search::below(1_000.0);
    assert_eq!(search.run(run).unwrap().rps, 0.0);
    let search = Search {
        criterion: Criterion::Total,
        ..search
    };
    assert!(search.run(run).unwrap().rps > 0.0);
}

#[test]
fn a_run_is_hopeless_only_when_more_is_missed_than_chance_allows() {
    let most = hopeless(&[10_000.0, 0.0], 1.0, 0.01);
    assert!(most[0] > 100 && most[0] < 110, "{most:?}");
    assert_eq!(most[1], 1);
    assert!(hopeless(&[10_000.0], 20.0, 0.01)[0] > most[0]);
}
