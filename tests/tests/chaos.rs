//! Short runs of the campaign of faults. `SEXTANT_CHAOS_SEED` and `SEXTANT_CHAOS_RUNS` ask for others and
//! more; `cargo xtask chaos` is the long campaign.

use sextant_tests::{
    chaos::{self, Plan, plan::Setting},
    scratch,
};

/// How long the load of a short run meets faults, seconds.
const SECONDS: u64 = 6;

/// Carries out runs one after another; fails with all that is wrong, and how to see it again.
async fn campaign(seeds: impl Iterator<Item = u64>) {
    let mut wrong = Vec::new();
    for seed in seeds {
        let outcome = chaos::run(
            Plan::draw(seed, Some(SECONDS * 1000)),
            &scratch().join("chaos-tests"),
        )
        .await;
        if !outcome.violations.is_empty() {
            let violations: Vec<_> = outcome.violations.iter().map(ToString::to_string).collect();
            wrong.push(format!(
                "seed {seed}:\n    {}\n    history and logs: {}\n    \
                 again: cargo xtask chaos --seed {seed} --runs 1 --seconds {SECONDS}",
                violations.join("\n    "),
                outcome.folder.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first seeds from the one asked for on whose setting is as wanted.
fn seeds(is_one: bool) -> impl Iterator<Item = u64> {
    let number = |name: &str, else_: u64| {
        let value = std::env::var(name).ok();
        value.map_or(else_, |value| value.parse().expect("a number"))
    };
    let first = number("SEXTANT_CHAOS_SEED", 1);
    let runs = number("SEXTANT_CHAOS_RUNS", 1);
    let fits = move |seed: &u64| (Plan::draw(*seed, None).setting == Setting::One) == is_one;
    (first..).filter(fits).take(runs as usize)
}

#[tokio::test]
async fn one_process_survives_faults() {
    campaign(seeds(true)).await;
}

#[tokio::test]
async fn a_fleet_survives_faults() {
    campaign(seeds(false)).await;
}
