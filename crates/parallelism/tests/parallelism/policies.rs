//! The policies on loads that change, played on a machine that switches as they say.

use std::collections::VecDeque;

use sextant_parallelism::{
    Backlog, Choose, Configuration, Objective, Policy, Profile, Sextant, SextantOptions, Summary,
    Unit,
};
use sextant_types::random::Random;

use crate::table::crossing;

const SEEDS: std::ops::Range<u64> = 0..3;

/// Arrival times of phases of so many seconds at a rate and variation, s.
fn arrivals(phases: &[(f64, f64, f64)], seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let (mut now, mut end, mut all) = (0.0, 0.0, Vec::new());
    for (seconds, per_s, cv) in phases {
        end += seconds;
        while now < end {
            now += random.gamma(cv * cv) / per_s;
            all.push(now);
        }
    }
    all
}

struct Played {
    latencies_s: Vec<f64>,
    switches: usize,
}

impl Played {
    fn mean_s(&self) -> f64 {
        self.latencies_s.iter().sum::<f64>() / self.latencies_s.len() as f64
    }

    fn p99_s(&self) -> f64 {
        let mut sorted = self.latencies_s.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() * 99 / 100]
    }
}

/// Two cores: running requests keep their threads, a request starts when the newest configuration
/// has room and its threads are free. Rates are those of the profile for as many of a kind as run;
/// a wide and a narrow one never run together as there are two cores.
fn play(policy: &mut dyn Choose, profile: &Profile, arrivals: &[f64]) -> Played {
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let (mut now, mut next, mut queue) = (0.0, 0, VecDeque::new());
    let mut running: Vec<(f64, f64, Configuration)> = Vec::new();
    let (mut latencies_s, mut switches, mut before) = (Vec::new(), 0, None);
    while latencies_s.len() < arrivals.len() {
        let rate = running.first().map_or(1.0, |(_, _, of)| {
            profile.rates(*of).unwrap().at(running.len())
        });
        let least = running.iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
        let arrival = arrivals.get(next).copied().unwrap_or(f64::INFINITY);
        let step = arrival.min(now + least / rate);
        running
            .iter_mut()
            .for_each(|it| it.0 -= (step - now) * rate);
        now = step;
        if step == arrival {
            next += 1;
            queue.push_back(now);
            policy.arrived(nanos(now));
        } else if let Some(at) = running.iter().position(|it| it.0 <= 1e-9) {
            latencies_s.push(now - running.remove(at).1);
        }
        let backlog = Backlog {
            running: running.len(),
            queued: queue.len(),
        };
        let newest = policy.choose(nanos(now), backlog);
        switches += usize::from(
            before
                .replace(newest)
                .is_some_and(|before| before != newest),
        );
        let threads = |running: &[(f64, f64, Configuration)]| -> u16 {
            running.iter().map(|(_, _, of)| of.intra).sum()
        };
        while running.len() < usize::from(newest.service)
            && threads(&running) + newest.intra <= 2
            && let Some(came) = queue.pop_front()
        {
            running.push((1.0, came, newest));
        }
    }
    Played {
        latencies_s,
        switches,
    }
}

fn sextant(objective: Objective) -> Sextant {
    let unit = Unit::of(&crossing()).unwrap().unwrap();
    let options = SextantOptions {
        objective,
        ..SextantOptions::default()
    };
    Sextant::new(unit, options)
}

fn mean_over_seeds(
    phases: &[(f64, f64, f64)],
    make: impl Fn() -> Box<dyn Choose>,
) -> (f64, f64, usize) {
    let (mut mean, mut p99, mut switches) = (0.0, 0.0, 0);
    for seed in SEEDS {
        let played = play(make().as_mut(), &crossing(), &arrivals(phases, seed));
        mean += played.mean_s() / SEEDS.end as f64;
        p99 += played.p99_s() / SEEDS.end as f64;
        switches += played.switches;
    }
    (mean, p99, switches)
}

fn named(policy: Policy) -> Box<dyn Choose> {
    policy.build(&crossing(), Objective::Mean).unwrap().unwrap()
}

/// Always the same configuration.
#[derive(Debug, Clone, Copy)]
struct Fixed(Configuration);

impl Choose for Fixed {
    fn arrived(&mut self, _now: u64) {}

    fn choose(&mut self, _now: u64, _backlog: Backlog) -> Configuration {
        self.0
    }
}

/// Low, high and low again: seconds, per second, variation of the gaps.
const STEPS: [(f64, f64, f64); 3] = [(60.0, 4.0, 1.0), (30.0, 14.0, 1.0), (60.0, 4.0, 1.0)];

#[test]
fn both_policies_beat_every_fixed_configuration_on_steps() {
    // A periodic estimate that is blind to the backlog pays for each step; it needs longer phases.
    let long = STEPS.map(|(seconds, per_s, cv)| (4.0 * seconds, per_s, cv));
    for (policy, phases) in [(Policy::Serf, long), (Policy::Sextant, STEPS)] {
        let (adaptive, _, switches) = mean_over_seeds(&phases, || named(policy));
        let expected = 2 * SEEDS.end as usize;
        assert!(switches >= expected, "{} {switches}", policy.name());
        for (service, intra) in [(1, 1), (1, 2), (2, 1)] {
            let fixed = Fixed(Configuration::local(service, intra));
            let (fixed, _, _) = mean_over_seeds(&phases, || Box::new(fixed));
            assert!(adaptive < fixed, "{}: {adaptive} {fixed}", policy.name());
        }
    }
}

#[test]
fn ours_is_no_slower_than_serf_on_steps_and_bursts() {
    let bursts = [(30.0, 3.0, 2.0), (30.0, 10.0, 2.5), (30.0, 4.0, 2.0)];
    for phases in [STEPS, bursts] {
        let (serf, serf_p99, _) = mean_over_seeds(&phases, || named(Policy::Serf));
        let (ours, ours_p99, _) = mean_over_seeds(&phases, || named(Policy::Sextant));
        assert!(ours < serf, "{phases:?}: {ours} {serf}");
        assert!(
            ours_p99 < 1.05 * serf_p99,
            "{phases:?}: {ours_p99} {serf_p99}"
        );
    }
}

#[test]
fn steady_load_does_not_make_it_go_back_and_forth() {
    // Right at the crossover, where neither is better.
    let (_, _, switches) =
        mean_over_seeds(&[(40.0, 9.257, 1.0)], || Box::new(sextant(Objective::Mean)));
    let (_, _, clear) = mean_over_seeds(&[(40.0, 3.0, 1.0)], || Box::new(sextant(Objective::Mean)));
    assert!(clear <= 2 * SEEDS.end as usize, "{clear}");
    // 1 200 decisions a seed.
    assert!(switches <= 240 * SEEDS.end as usize, "{switches}");
}

#[test]
fn a_tail_objective_gives_a_better_tail() {
    let phases = [(40.0, 8.0, 2.0)];
    let (_, by_mean, _) = mean_over_seeds(&phases, || Box::new(sextant(Objective::Mean)));
    let (_, by_tail, _) = mean_over_seeds(&phases, || Box::new(sextant(Objective::Quantile(0.99))));
    assert!(by_tail <= by_mean * 1.02, "{by_tail} {by_mean}");
}

#[test]
fn a_backlog_weighs_more_than_a_low_load() {
    let mut policy = sextant(Objective::Mean);
    let mut now = 0;
    for gap in Random::new(3).gaps(200, 0.25, 1.0) {
        now += (gap * 1e9) as u64;
        policy.arrived(now);
    }
    let idle = policy.choose(now, Backlog::default());
    assert_eq!(idle, Configuration::local(1, 2));
    let backlog = Backlog {
        running: 1,
        queued: 400,
    };
    assert_eq!(
        policy.choose(now + 200_000_000, backlog),
        Configuration::local(2, 1)
    );
    let last = policy.last().unwrap();
    assert!(last.switched && last.chosen_s < last.before_s, "{last:?}");
}

#[test]
fn it_decides_no_more_often_than_it_may() {
    let mut policy = sextant(Objective::Mean);
    (0..100_u64).for_each(|n| policy.arrived(n * 250_000_000));
    let backlog = Backlog {
        running: 1,
        queued: 400,
    };
    let before = policy.choose(25_000_000_000, Backlog::default());
    assert_eq!(policy.choose(25_099_999_999, backlog), before);
    assert_ne!(policy.choose(25_100_000_000, backlog), before);
}

#[test]
fn the_same_history_gives_the_same_choices() {
    let run = || {
        let played = play(
            named(Policy::Sextant).as_mut(),
            &crossing(),
            &arrivals(&STEPS, 9),
        );
        (played.latencies_s, played.switches)
    };
    assert_eq!(run(), run());
}

#[test]
fn names_are_known() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse::<Policy>(), Ok(policy));
        assert!(
            policy
                .build(&Profile::default(), Objective::Mean)
                .unwrap()
                .is_none()
        );
    }
    let error = "fast".parse::<Policy>().unwrap_err().to_string();
    assert!(error.contains("serf, sextant"), "{error}");
}

#[test]
fn an_empty_service_time_is_refused() {
    let mut profile = crossing();
    let tuple = Configuration::local(2, 1).full();
    let summary = *profile.tuple(tuple).unwrap();
    profile.insert(
        tuple,
        Summary {
            mean_s: 0.0,
            ..summary
        },
    );
    assert!(
        Policy::ALL
            .iter()
            .all(|policy| policy.build(&profile, Objective::Mean).is_err())
    );
}
