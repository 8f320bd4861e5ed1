//! A fleet of the release before that is upgraded under load, process by process, and what it keeps.
//!
//! The release before is this binary that speaks as it did, or a binary of it ([`OldVersion`]). Queries go on all the while, none of
//! which may fail; what was registered and said before is there afterwards, and what clients hold of it is still good.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    Api, Fleet, FleetSettings, Load, Tally, digits,
    steps::{answers, learn, loaded_on, workers},
    until,
};

/// What the processes are before the upgrade.
#[derive(Debug, Clone)]
pub enum OldVersion {
    /// The binary under test with these settings.
    Settings(&'static [&'static str]),
    /// Another binary.
    Binary(PathBuf),
}

/// What came of an upgrade.
#[derive(Debug, Clone, Default)]
pub struct UpgradeReport {
    /// Queries that were sent meanwhile.
    pub sent: u64,
    /// Those that were refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// The longest wait for an answer.
    pub longest: Duration,
    /// The longest time between two answers.
    pub longest_gap: Duration,
    /// What was there before.
    pub kept: BTreeSet<String>,
    /// What of it is gone.
    pub lost: BTreeSet<String>,
}

/// Where the example's feedback is.
const APPLICATION: &str = "/v1/applications/digits";

/// Clients that ask on and on.
const CLIENTS: usize = 8;

impl OldVersion {
    /// Starts a process of the release before.
    pub fn spawn(&self, fleet: &mut Fleet, name: &str, role: &str) {
        match self {
            Self::Settings(set) => fleet.spawn(name, role, set),
            Self::Binary(binary) => fleet.spawn_of(binary, name, role),
        }
    }
}

impl UpgradeReport {
    /// Whether no query failed and nothing is gone.
    pub fn is_well(&self) -> bool {
        self.refused.is_empty() && self.lost.is_empty()
    }

    fn count(&mut self, tally: &Tally) {
        self.sent += tally.sent;
        self.longest = self.longest.max(tally.longest);
        self.longest_gap = self.longest_gap.max(tally.longest_gap);
        for (code, count) in &tally.refused {
            *self.refused.entry(code.clone()).or_default() += count;
        }
    }
}

/// Upgrades a fleet that has learnt a model and was told of an answer.
pub async fn upgrade(before: &OldVersion) -> UpgradeReport {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    for role in ["dispatcher", "autoscaler", "variant-gen", "worker", "api"] {
        before.spawn(&mut fleet, role, role);
    }
    before.spawn(&mut fleet, "worker-2", "worker");
    let api = fleet.api();
    learn(&api).await;
    loaded_on(&api, &["worker", "worker-2"]).await;
    let set = api.patch(APPLICATION, &json!({"feedback": {}})).await;
    set.json(200);
    let tokens = [token(&api).await, token(&api).await];
    say(&api, &tokens[0]).await;
    let mut upgraded = UpgradeReport {
        kept: registered(&api).await,
        ..UpgradeReport::default()
    };
    let api = replace_all(&mut fleet, &mut upgraded).await;
    assert_eq!(workers(&api).await, ["new-worker", "new-worker-2"]);
    let there = registered(&api).await;
    upgraded.lost = upgraded.kept.difference(&there).cloned().collect();
    // What a client was given before is good after.
    say(&api, &tokens[1]).await;
    // What the new release registers is there.
    let job = api.register(digits::upload("digits", "mlp", "logistic"));
    assert_eq!(job.await["state"], "succeeded");
    upgraded
}

/// Replaces each process while queries are asked; a client of the new front end.
async fn replace_all(fleet: &mut Fleet, upgraded: &mut UpgradeReport) -> Api {
    let load = Load::start(fleet.api(), CLIENTS, None).await;
    load.answers(100).await;
    for (old, new, role) in [
        ("worker", "new-worker", "worker"),
        ("dispatcher", "new-dispatcher", "dispatcher"),
        ("worker-2", "new-worker-2", "worker"),
        ("autoscaler", "new-autoscaler", "autoscaler"),
        ("variant-gen", "new-variant-gen", "variant-gen"),
    ] {
        replace(fleet, (old, new, role), &load).await;
    }
    // The front end is last: its clients go over to the new one.
    fleet.spawn("new-api", "api", &[]);
    let api = fleet.api_of("new-api");
    let moved = Load::start(api.clone(), CLIENTS, None).await;
    moved.answers(100).await;
    upgraded.count(&load.stop().await);
    fleet.stop("api");
    moved.answers(100).await;
    upgraded.count(&moved.stop().await);
    api
}

/// Starts a process of this release beside one of the release before, which then ends.
async fn replace(fleet: &mut Fleet, (old, new, role): (&str, &str, &str), load: &Load) {
    fleet.spawn(new, role, &[]);
    load.answers(50).await;
    fleet.stop(old);
    load.answers(50).await;
    if role == "worker" {
        loaded_on(&fleet.api(), &[new]).await;
    }
}

/// What is registered, and what was said of answers.
async fn registered(api: &Api) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for kind in ["applications", "models", "variants"] {
        let list = api.get(&format!("/v1/{kind}")).await.json(200);
        let list = list[kind].as_array().into_iter().flatten();
        found.extend(list.map(|it| format!("{kind}: {}", named(it))));
    }
    let feedback = api.get(&format!("{APPLICATION}/feedback")).await.text();
    let rows = feedback.lines().enumerate();
    found.extend(rows.map(|(at, _)| format!("feedback: row {at}")));
    found
}

fn named(it: &Value) -> &str {
    let name = it["name"].as_str();
    name.unwrap_or_else(|| panic!("it has no name: {it}"))
}

/// What a client holds of an answer.
async fn token(api: &Api) -> String {
    until("an answer has a token", || async {
        let answer = answers(api).await;
        answer["feedback_token"].as_str().map(str::to_owned)
    })
    .await
}

/// Says of an answer what was right.
async fn say(api: &Api, token: &str) {
    let item = json!({"token": token, "label": 1});
    let taken = api.post("/v1/feedback", &item).await.json(200);
    assert_eq!(taken["accepted"], 1, "{taken}");
}
