//! Checks after the load whether everything is as before.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;
use tokio::time::sleep;

use super::{Stage, aside, client};
use crate::chaos::{
    history::Event,
    plan::{Application, Plan, STORAGE_BYTES, Setting},
};

/// Longest time until nothing of the load is left.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of queries beside the load that may be open at once.
const ASIDE: f64 = 2.0;
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The metrics that count open queries.
const OPEN: [&str; 2] = [
    "sextant_queries_in_flight",
    "sextant_dispatcher_waiting_queries",
];

/// The metric of a dispatcher that counts the workers that it sees.
const WORKERS: &str = "sextant_workers";

/// The metric of a dispatcher that says whether it leads.
const LEADING: &str = "sextant_dispatcher_leading";

/// Records what is left.
pub async fn settle(stage: &Stage) -> Result<(), String> {
    let front_ends = stage.plan.front_ends();
    let until = Instant::now() + PATIENCE;
    loop {
        aside::swept(stage, &front_ends[0]).await;
        let mut left = numbers(stage).await;
        left.extend(files(stage, &front_ends[0]).await);
        left.extend(unwritable(stage, &front_ends[0]).await);
        left.extend(passing(stage, &front_ends[0]).await);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            for (process, what) in left {
                stage.history.note(Event::Unsettled { process, what });
            }
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Checks during this time whether dispatchers see every worker.
pub async fn look_in_peace(stage: &Stage, calm: Duration) {
    let until = Instant::now() + calm;
    let expected = workers(&stage.plan) as f64;
    while Instant::now() < until {
        for process in stage.plan.processes() {
            let text = metrics(stage, &process).await;
            let seen = text.and_then(|text| value(&text, WORKERS));
            if let Some(seen) = seen.filter(|seen| *seen != expected) {
                let workers = seen as u64;
                stage.history.note(Event::Seen { process, workers });
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Records what the load alone has left, before processes are ended again, which would hide it.
pub async fn after_load(stage: &Stage) {
    let front_ends = stage.plan.front_ends();
    let until = Instant::now() + PATIENCE;
    loop {
        let mut left = unwritable(stage, &front_ends[0]).await;
        for process in &front_ends {
            let text = metrics(stage, process).await;
            let open = text.and_then(|text| value(&text, OPEN[0])).unwrap_or(0.0);
            // Queries beside the load that are open at this moment.
            if open > ASIDE {
                left.push((process.clone(), format!("{} {open}", OPEN[0])));
            }
        }
        if left.is_empty() {
            return;
        }
        if Instant::now() > until {
            for (process, what) in left {
                stage.history.note(Event::Unsettled { process, what });
            }
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether a process leads the dispatchers.
pub async fn leads(stage: &Stage, process: &str) -> bool {
    let text = metrics(stage, process).await;
    text.is_some_and(|text| value(&text, LEADING) == Some(1.0))
}

/// The metrics of a process, if it answers.
async fn metrics(stage: &Stage, process: &str) -> Option<String> {
    let reply = client::send(stage, process, (Method::GET, "/metrics"), None).await;
    let body = reply.ok()?.body;
    Some(String::from_utf8_lossy(&body).into_owned())
}

/// Queries that nobody waits for, workers that are not seen, and dispatchers that lead.
async fn numbers(stage: &Stage) -> Vec<(String, String)> {
    let mut left = Vec::new();
    let mut leading = 0.0;
    let workers = workers(&stage.plan) as f64;
    for process in stage.plan.processes() {
        let Some(text) = metrics(stage, &process).await else {
            left.push((process, "no metrics".to_owned()));
            continue;
        };
        for name in OPEN {
            let value = value(&text, name).unwrap_or(0.0);
            if value != 0.0 {
                left.push((process.clone(), format!("{name} {value}")));
            }
        }
        if let Some(seen) = value(&text, WORKERS).filter(|seen| *seen != workers) {
            left.push((process.clone(), format!("{WORKERS} {seen}")));
        }
        leading += value(&text, LEADING).unwrap_or(0.0);
    }
    if leading != 1.0 {
        left.push(("all".to_owned(), format!("{leading} dispatchers lead")));
    }
    left
}

fn workers(plan: &Plan) -> usize {
    match plan.setting {
        Setting::One => 1,
        Setting::Fleet { workers, .. } => workers,
    }
}

/// The value of a metric without labels.
fn value(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value)
}

/// Parts of jobs that have ended, and files of models that do not exist.
async fn files(stage: &Stage, front_end: &str) -> Vec<(String, String)> {
    let problem = |what: String| vec![(front_end.to_owned(), what)];
    let to = (Method::GET, "/v1/storage");
    let reply = match client::send(stage, front_end, to, None).await {
        Ok(reply) if reply.is_success() => reply.json(),
        Ok(reply) => return problem(reply.say()),
        Err(cause) => return problem(cause),
    };
    let uses: Vec<&Value> = reply["uses"].as_array().into_iter().flatten().collect();
    let mut left = Vec::new();
    for kind in ["parts", "unreferenced"] {
        if uses.iter().any(|it| it["kind"] == kind) {
            left.push((front_end.to_owned(), format!("objects of kind `{kind}`")));
        }
    }
    for application in &stage.plan.applications {
        let has = |kind: &str| {
            let is_it = |it: &&Value| it["kind"] == kind && it["model"] == *application.name;
            uses.iter().any(is_it)
        };
        // A file that several models share counts for one of them.
        let same = |it: &&Application| {
            (it.alpha_ms, it.beta_ms) == (application.alpha_ms, application.beta_ms)
        };
        if stage.plan.applications.iter().filter(same).count() == 1 && !has("model") {
            let what = format!("the file of model `{}` is gone", application.name);
            left.push((front_end.to_owned(), what));
        }
    }
    left
}

/// Instances in a transient state: loading and draining take moments.
async fn passing(stage: &Stage, front_end: &str) -> Vec<(String, String)> {
    let to = (Method::GET, "/v1/instances");
    let reply = match client::send(stage, front_end, to, None).await {
        Ok(reply) if reply.is_success() => reply.json(),
        Ok(reply) => return vec![(front_end.to_owned(), reply.say())],
        Err(cause) => return vec![(front_end.to_owned(), cause)],
    };
    let instances = reply["instances"].as_array().into_iter().flatten();
    let passing = instances.filter_map(|instance| {
        let text = |name: &str| instance[name].as_str().unwrap_or_default();
        let state = text("state");
        let what = || format!("`{}` is {state} on `{}`", text("variant"), text("worker"));
        matches!(state, "loading" | "draining").then(|| (front_end.to_owned(), what()))
    });
    passing.collect()
}

/// The reason why the store does not accept a file for which there must be room (three quarters of its limit), if it
/// does not.
async fn unwritable(stage: &Stage, front_end: &str) -> Vec<(String, String)> {
    let bytes = match stage.plan.setting {
        Setting::One => STORAGE_BYTES / 4 * 3,
        Setting::Fleet { .. } => 1 << 16,
    };
    let path = "/v1/artefacts/probe/last";
    let body = Some(vec![1; bytes as usize]);
    let problem = match client::send(stage, front_end, (Method::PUT, path), body).await {
        Ok(reply) if reply.is_success() => {
            let taken_out = client::send(stage, front_end, (Method::DELETE, path), None).await;
            return taken_out
                .err()
                .map(|it| (front_end.to_owned(), it))
                .into_iter()
                .collect();
        }
        Ok(reply) => reply.say(),
        Err(cause) => cause,
    };
    vec![(
        front_end.to_owned(),
        format!("a file is not taken: {problem}"),
    )]
}
