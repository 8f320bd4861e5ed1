//! The policy on loads that change, played on a machine that switches as it says.

use std::collections::VecDeque;

use sextant_parallelism::{Configuration, Profile, Serf, Summary};
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

struct ReplayResult {
    latencies_s: Vec<f64>,
    switches: usize,
}

impl ReplayResult {
    fn mean_s(&self) -> f64 {
        self.latencies_s.iter().sum::<f64>() / self.latencies_s.len() as f64
    }
}

/// Two cores: running requests keep their threads, a request starts when the newest configuration
/// has room and its threads are free. Rates are those of the profile for as many of a kind as run;
/// a wide and a narrow one never run together as there are two cores.
fn play(policy: &mut dyn Choose, profile: &Profile, arrivals: &[f64]) -> ReplayResult {
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
            policy.arrived();
        } else if let Some(at) = running.iter().position(|it| it.0 <= 1e-9) {
            latencies_s.push(now - running.remove(at).1);
        }
        let newest = policy.choose(nanos(now));
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
    ReplayResult {
        latencies_s,
        switches,
    }
}

/// The mean latency, s, and how often the configuration changed in all.
fn mean_over_seeds(phases: &[(f64, f64, f64)], make: impl Fn() -> Box<dyn Choose>) -> (f64, usize) {
    let (mut mean, mut switches) = (0.0, 0);
    for seed in SEEDS {
        let played = play(make().as_mut(), &crossing(), &arrivals(phases, seed));
        mean += played.mean_s() / SEEDS.end as f64;
        switches += played.switches;
    }
    (mean, switches)
}

/// What chooses on the machine: the policy, or a configuration that stays.
trait Choose {
    fn arrived(&mut self);
    fn choose(&mut self, now: u64) -> Configuration;
}

impl Choose for Serf {
    fn arrived(&mut self) {
        Self::arrived(self);
    }

    fn choose(&mut self, now: u64) -> Configuration {
        Self::choose(self, now)
    }
}

fn serf() -> Serf {
    Serf::of(&crossing()).unwrap().unwrap()
}

/// Always the same configuration.
#[derive(Debug, Clone, Copy)]
struct Fixed(Configuration);

impl Choose for Fixed {
    fn arrived(&mut self) {}

    fn choose(&mut self, _now: u64) -> Configuration {
        self.0
    }
}

/// Low, high and low again: seconds, per second, variation of the gaps.
const STEPS: [(f64, f64, f64); 3] = [(60.0, 4.0, 1.0), (30.0, 14.0, 1.0), (60.0, 4.0, 1.0)];

#[test]
fn it_beats_every_fixed_configuration_on_steps() {
    // A periodic estimate that is blind to the backlog pays for each step, so the phases are long.
    let phases = STEPS.map(|(seconds, per_s, cv)| (4.0 * seconds, per_s, cv));
    let (adaptive, switches) = mean_over_seeds(&phases, || Box::new(serf()));
    assert!(switches >= 2 * SEEDS.end as usize, "{switches}");
    for (service, intra) in [(1, 1), (1, 2), (2, 1)] {
        let fixed = Fixed(Configuration::local(service, intra));
        let (fixed, _) = mean_over_seeds(&phases, || Box::new(fixed));
        assert!(adaptive < fixed, "{adaptive} {fixed}");
    }
}

#[test]
fn the_same_history_gives_the_same_choices() {
    let run = || {
        let played = play(&mut serf(), &crossing(), &arrivals(&STEPS, 9));
        (played.latencies_s, played.switches)
    };
    assert_eq!(run(), run());
}

#[test]
fn another_profile_changes_nothing_of_the_load_that_was_observed() {
    let (mut policy, per_s) = (serf(), 14);
    let mut chosen = policy.choose(0);
    for arrival in 0..100 * per_s {
        policy.arrived();
        chosen = policy.choose(arrival * 1_000_000_000 / per_s);
    }
    assert_ne!(chosen, serf().choose(0), "it depends on the load");
    policy.renew(&crossing()).unwrap();
    assert_eq!(policy.choose(100_000_000_000), chosen);
}

#[test]
fn a_profile_without_a_service_time_is_refused() {
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
    assert!(Serf::of(&profile).is_err());
    assert!(Serf::of(&Profile::default()).unwrap().is_none());
}
