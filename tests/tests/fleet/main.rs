//! A fleet over real stores, and the outcomes of its queries when parts of it die.

mod by_hand;
mod chart;
mod engines;
mod faults;
mod isolation;
mod jobs;
mod leaving;
mod machine;
mod network;
mod pipelines;
mod roles;
mod scaling;
mod security;
mod starting;
mod stores;
mod upgrade;
mod versions;

use std::time::Duration;

use serde_json::{Value, json};
use sextant_tests::{
    Api, Fleet, FleetSettings, Tally, digits,
    steps::{answers, is_serving, learn, loaded_on, workers},
    until,
};

/// A fleet in which one model of the example is registered and loaded on every worker.
async fn fleet() -> Fleet {
    let fleet = Fleet::start(FleetSettings::default());
    learn(&fleet.api()).await;
    loaded_on(&fleet.api(), &["worker-1", "worker-2"]).await;
    fleet
}

/// Checks that a fault explains the refusals: the service says that it cannot answer now, or not in time.
fn explained(tally: &Tally) {
    for code in tally.refused.keys() {
        let may = ["unavailable", "deadline_exceeded", "overloaded", "warming"];
        assert!(
            may.contains(&code.as_str()),
            "refused as `{code}`: {tally:?}"
        );
    }
}

/// No client waits longer than the service promises while parts of it are lost.
const LONGEST: Duration = Duration::from_secs(30);
