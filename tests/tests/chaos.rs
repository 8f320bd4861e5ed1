//! Twenty short runs of the campaign of faults. `SEXTANT_CHAOS_SEED` and `SEXTANT_CHAOS_RUNS` select others. `cargo
//! xtask chaos` is the long campaign.

use futures::{StreamExt, stream};
use sextant_tests::{
    chaos::{self, command, plan::Setting},
    scratch,
};

/// Time for which the load of a short run is exposed to faults, seconds.
const SECONDS: u64 = 4;

/// Carries out runs, some concurrently. Fails with everything that is wrong, and how to repeat it.
async fn campaign(seeds: Vec<u64>, at_once: usize) {
    let runs = seeds.into_iter().map(|seed| async move {
        let plan = command::plan(seed, Some(SECONDS));
        let outcome = chaos::run(plan, &scratch().join("chaos-tests")).await;
        if outcome.violations.is_empty() {
            return None;
        }
        let violations: Vec<_> = outcome.violations.iter().map(ToString::to_string).collect();
        Some(format!(
            "seed {seed}:\n    {}\n    history and logs: {}\n    again: {}",
            violations.join("\n    "),
            outcome.folder.display(),
            command::again(seed, Some(SECONDS), &outcome.folder)
        ))
    });
    let wrong: Vec<_> = stream::iter(runs).buffer_unordered(at_once).collect().await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first seeds from the requested one on that have the desired setting, after skipping `without` of them.
fn seeds(is_one: bool, without: usize, runs: usize) -> Vec<u64> {
    let number = |name: &str| -> Option<u64> {
        let value = std::env::var(name).ok();
        value.map(|value| value.parse().expect("a number"))
    };
    let first = number("SEXTANT_CHAOS_SEED").unwrap_or(1);
    let runs = number("SEXTANT_CHAOS_RUNS").map_or(runs, |runs| runs as usize);
    let fits = |seed: &u64| (command::plan(*seed, None).setting == Setting::One) == is_one;
    (first..).filter(fits).skip(without).take(runs).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_survives_faults() {
    campaign(seeds(true, 0, 8), 2).await;
}

/// Runs of a fleet in four parts, so that a busy machine finishes each within the time limit of a test.
macro_rules! fleets {
    ($($name:ident: $without:literal),+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            campaign(seeds(false, $without, 3), 1).await;
        }
    )+};
}

fleets! {
    a_fleet_survives_faults: 0,
    a_second_fleet_survives_faults: 3,
    a_third_fleet_survives_faults: 6,
    a_fourth_fleet_survives_faults: 9
}
