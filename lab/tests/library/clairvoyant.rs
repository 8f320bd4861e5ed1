use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_lab::{
    bound::Demand,
    experiment::{self, Experiment, Plan},
};
use sextant_schedule::{Delay, LatencyTable, NEVER, Nanos};
use sextant_simulator::Record;

/// The least device time for each number of misses, over all ways to give up requests and to split the others into
/// batches of neighbours.
fn by_misses(demand: &Demand<'_>, arrivals: &[Nanos]) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; arrivals.len() + 1];
    for kept in 0_u32..1 << arrivals.len() {
        let served: Vec<Nanos> = (0..arrivals.len())
            .filter(|at| kept & (1 << at) != 0)
            .map(|at| arrivals[at])
            .collect();
        let missed = arrivals.len() - served.len();
        for cuts in 0_u32..1 << served.len().saturating_sub(1) {
            let cost = cost_of(demand, &served, cuts);
            least[missed] = least[missed].min(cost);
        }
    }
    least
}

/// Device time of the batches between the cuts; infinite if a batch is too long or late.
fn cost_of(demand: &Demand<'_>, served: &[Nanos], cuts: u32) -> f64 {
    let (mut cost, mut first) = (0.0, 0);
    for last in 0..served.len() {
        if last + 1 < served.len() && cuts & (1 << last) == 0 {
            continue;
        }
        let rows = (last + 1 - first) as u32;
        let run = demand.latency.of(rows);
        let gathered = served[last] + demand.delay.before_start(rows) + demand.delay.response;
        let late = demand.target != NEVER && gathered + run > served[first] + demand.target;
        if late || rows > demand.latency.measured_rows() {
            return f64::INFINITY;
        }
        cost += run as f64;
        first = last + 1;
    }
    cost
}

/// The least mean device time of a random choice between two numbers of misses whose mean is at most `most`.
fn mixed(least: &[f64], most: usize) -> f64 {
    let mut best = f64::INFINITY;
    for fewer in 0..=most {
        best = best.min(least[fewer]);
        for more in most + 1..least.len() {
            let share = (most - fewer) as f64 / (more - fewer) as f64;
            if least[fewer].is_finite() {
                best = best.min(least[fewer] + share * (least[more] - least[fewer]));
            }
        }
    }
    best
}

fn table(random: &mut ChaCha8Rng) -> LatencyTable {
    let mut nanos = vec![random.random_range(50..400)];
    for _ in 1..random.random_range(1..6) {
        nanos.push(nanos[nanos.len() - 1] + random.random_range(0..200));
    }
    LatencyTable::new(nanos).unwrap()
}

#[test]
fn no_choice_of_batches_and_misses_takes_less_device_time() {
    for seed in 0..300 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let latency = table(&mut random);
        let requests = random.random_range(1..9);
        let mut arrivals: Vec<Nanos> = (0..requests)
            .map(|_| random.random_range(0..3_000))
            .collect();
        arrivals.sort_unstable();
        let demand = Demand {
            latency: &latency,
            target: latency.of(1) + random.random_range(100..1_500),
            delay: Delay {
                control: random.random_range(0..20),
                data_per_row: random.random_range(0..5),
                response: random.random_range(0..20),
            },
            most_missed_share: random.random_range(0.0..0.6),
        };
        let most = (demand.most_missed_share * requests as f64).floor() as usize;
        let found = demand.device_time(&arrivals);
        let least = by_misses(&demand, &arrivals);
        let expected = mixed(&least, most);
        // The price is known to a thousandth of the run time of one row, or to 1 ns.
        let missed = requests as f64;
        let precision = missed * (2.0 + latency.of(1) as f64 / 500.0);
        assert!(
            found <= expected + 1e-6 && found >= expected - precision,
            "seed {seed}: {found} is not {expected}"
        );
        if most == 0 {
            assert_eq!(found, least[0], "seed {seed}");
        }
    }
}

#[test]
fn without_a_target_only_full_batches_run_and_too_short_a_one_is_never_met() {
    let latency = LatencyTable::linear(1.0, 3.0, 4).unwrap();
    let mut demand = Demand {
        latency: &latency,
        target: NEVER,
        delay: Delay::default(),
        most_missed_share: 0.0,
    };
    let arrivals: Vec<Nanos> = (0..8).map(|at| at * 1_000_000_000).collect();
    assert_eq!(demand.device_time(&arrivals), 2.0 * 7e6);
    demand.target = 3_999_999;
    assert_eq!(demand.device_time(&arrivals), f64::INFINITY);
    assert_eq!(demand.device_time(&[]), 0.0);
}

fn value(records: &[Record], metric: &str, policy: Option<&str>) -> Option<f64> {
    let found = records.iter().find(|record| {
        record.metric == metric && record.policy.as_deref() == policy && record.seed.is_none()
    });
    found.map(|record| record.value)
}

fn run(text: &str) -> Vec<Record> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    let experiment = Experiment::load(&file).unwrap();
    experiment::run(&experiment, &Plan::default(), &mut |_| {}).unwrap()
}

const SMALL: &str = r#"
name = "small"
title = "One model"
kind = "goodput"
policies = ["eager"]
seeds = 2

[[cell]]
name = "resnet50"
profile = "symphony-table4"
models = ["ResNet50"]
devices = 8
warm_up_s = 0.5
measured_s = 3.0
"#;

#[test]
fn a_goodput_lies_below_the_clairvoyant_bound_and_that_near_the_fluid_one() {
    let records = run(SMALL);
    let fluid = value(&records, "fluid_bound_rps", None).unwrap();
    let bound = value(&records, "clairvoyant_bound_rps", None).unwrap();
    let goodput = value(&records, "goodput_rps", Some("eager")).unwrap();
    let share = value(&records, "goodput_over_clairvoyant_share", Some("eager")).unwrap();
    // A hundredth of the requests may be missed; the fluid bound ignores this.
    assert!(
        bound > 0.95 * fluid && bound < fluid / 0.99,
        "{bound}, {fluid}"
    );
    assert!(
        (share - goodput / bound).abs() < 1e-12 && share < 1.0,
        "{share}"
    );
    let of_seeds = records
        .iter()
        .filter(|record| record.metric == "clairvoyant_bound_rps" && record.seed.is_some());
    assert_eq!(of_seeds.count(), 2);
}

#[test]
fn where_arrivals_depend_on_answers_or_run_times_on_chance_there_is_no_such_bound() {
    for more in ["jitter_share = 0.1", "criterion = \"total\""] {
        let records = run(&format!("{SMALL}{more}\n"));
        assert!(value(&records, "fluid_bound_rps", None).is_some());
        assert_eq!(
            value(&records, "clairvoyant_bound_rps", None),
            None,
            "{more}"
        );
    }
}
