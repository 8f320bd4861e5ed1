//! A fleet of the previous release that is upgraded under load, process by process, and what it keeps.
//!
//! The previous release is this binary with settings that make it speak as before, or a binary of that release
//! ([`OldVersion`]). Queries go on all the time, and none may fail. What was registered and given as feedback before
//! still exists afterwards, and clients' tokens remain valid.

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

/// The processes before the upgrade.
#[derive(Debug, Clone)]
pub enum OldVersion {
    /// The binary under test with these settings.
    Settings(&'static [&'static str]),
    /// Another binary.
    Binary(PathBuf),
}

/// The result of an upgrade.
#[derive(Debug, Clone, Default)]
pub struct UpgradeReport {
    /// Number of queries that were sent meanwhile.
    pub sent: u64,
    /// Refused queries, by code.
    pub refused: BTreeMap<String, u64>,
    /// The longest wait for an answer.
    pub longest: Duration,
    /// The longest time between two answers.
    pub longest_gap: Duration,
    /// What existed before.
    pub kept: BTreeSet<String>,
    /// What of it is missing.
    pub lost: BTreeSet<String>,
}

/// The path of the example's application.
const APPLICATION: &str = "/v1/applications/digits";

/// Number of clients that ask continuously.
const CLIENTS: usize = 8;

impl OldVersion {
    /// Starts a process of the previous release.
    pub fn spawn(&self, fleet: &mut Fleet, name: &str, role: &str) {
        match self {
            Self::Settings(set) => fleet.spawn(name, role, set),
            Self::Binary(binary) => fleet.spawn_of(binary, name, role),
        }
    }
}

impl UpgradeReport {
    /// Whether no query failed and nothing is missing.
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

/// Upgrades a fleet that has a model and feedback on an answer.
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
    // A token from before is valid afterwards.
    say(&api, &tokens[1]).await;
    // What the new release registers exists.
    let job = api.register(digits::upload("digits", "mlp", "logistic"));
    assert_eq!(job.await["state"], "succeeded");
    upgraded
}

/// Replaces each process while queries are asked. Returns a client of the new front end.
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
    // The front end is last: its clients change to the new one.
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

/// Starts a process of this release beside one of the previous release, which then ends.
async fn replace(fleet: &mut Fleet, (old, new, role): (&str, &str, &str), load: &Load) {
    fleet.spawn(new, role, &[]);
    load.answers(50).await;
    fleet.stop(old);
    load.answers(50).await;
    if role == "worker" {
        loaded_on(&fleet.api(), &[new]).await;
    }
}

/// The registered models and the feedback on answers.
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

/// The token of an answer.
async fn token(api: &Api) -> String {
    until("an answer has a token", || async {
        let answer = answers(api).await;
        answer["feedback_token"].as_str().map(str::to_owned)
    })
    .await
}

/// Gives the right answer as feedback.
async fn say(api: &Api, token: &str) {
    let item = json!({"token": token, "label": 1});
    let taken = api.post("/v1/feedback", &item).await.json(200);
    assert_eq!(taken["accepted"], 1, "{taken}");
}
