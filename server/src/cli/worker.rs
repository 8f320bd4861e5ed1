//! `sextant worker`: what a worker did and how well its actions were predicted, and draining one.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Client, Error, Output,
    output::{Table, bytes, cell, rows, short, tell},
};

/// Time between two looks at a worker that is to leave.
const PERIOD: Duration = Duration::from_millis(200);

/// What workers do.
#[derive(Debug, clap::Subcommand)]
pub enum Worker {
    /// Drain a worker: take it out of service for good.
    ///
    /// The worker serves until the variants that only it has are loaded elsewhere and the worker that its pool needs
    /// in its place has started, for two minutes at most. Then it finishes its queries and leaves. A process that has
    /// no other role ends when its last worker has left.
    Drain(Drain),
    /// Show what workers did, and the errors of their predicted durations.
    ///
    /// For each kind of action the command shows how many succeeded or were refused, by code; by how much actions
    /// took longer (under-predicted) or less (over-predicted) than expected; and by how much they ended later than
    /// their start and expected duration say. The quantiles are of the last actions in the worker's log.
    Stats(Stats),
}

/// Which worker is to leave.
#[derive(Debug, clap::Args)]
pub struct Drain {
    /// Its name.
    name: String,
    /// Wait until the worker has left.
    #[arg(long)]
    wait: bool,
    /// Drain the worker even if it is the last one; then nobody answers queries.
    #[arg(long)]
    force: bool,
}

/// Which worker.
#[derive(Debug, clap::Args)]
pub struct Stats {
    /// Its name; if it is left out, all workers.
    name: Option<String>,
}

/// Prediction errors in the order of the table.
const ERRORS: [(&str, &str); 3] = [
    ("under_predicted", "under-predicted"),
    ("over_predicted", "over-predicted"),
    ("late_completion", "late completion"),
];

impl Worker {
    /// Asks the server.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Drain(drain) => drain.run(client, output).await,
            Self::Stats(Stats { name: Some(name) }) => {
                let stats = stats(client, &name).await?;
                output.either(&stats, || text(&stats))
            }
            Self::Stats(Stats { name: None }) => all_stats(client, output).await,
        }
    }
}

impl Drain {
    async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let name = &self.name;
        let path = ["v1", "workers", name, "drain"];
        let force: &[(&str, &str)] = if self.force {
            &[("force", "true")]
        } else {
            &[]
        };
        let request = client.request_with(Method::POST, &path, force);
        let mut worker: Value = client.answer(request).await?;
        if !self.wait {
            return output.either(&worker, || format!("worker `{name}` is to leave"));
        }
        let mut told = "";
        while let Some(now) = leaver(client, name).await? {
            let state = state(&now);
            if !output.json && state != told {
                tell(&format!("{name} {state}"));
            }
            (worker, told) = (now, state);
            tokio::time::sleep(PERIOD).await;
        }
        output.either(&worker, || format!("worker `{name}` has left"))
    }
}

/// A worker that is to leave; `None` once it has left, be it that another has come under its name.
async fn leaver(client: &Client, name: &str) -> Result<Option<Value>, Error> {
    let answer: Value = client.get(&["v1", "workers"]).await?;
    let mut workers = rows(&answer, "/workers").iter();
    let worker = workers.find(|worker| worker["name"] == name);
    Ok(worker.filter(|worker| state(worker) != "up").cloned())
}

/// `up`, `leaving` or `draining`.
pub fn state(worker: &Value) -> &'static str {
    let is = |what: &str| worker.get(what).and_then(Value::as_bool) == Some(true);
    match (is("draining"), is("leaving")) {
        (true, _) => "draining",
        (false, true) => "leaving",
        (false, false) => "up",
    }
}

async fn all_stats(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["v1", "workers"]).await?;
    let mut all = Vec::new();
    for worker in rows(&answer, "/workers") {
        all.push(stats(client, &cell(worker, "/name")).await?);
    }
    let texts = || all.iter().map(text).collect::<Vec<_>>().join("\n\n");
    output.either(&json!({ "workers": all }), texts)
}

async fn stats(client: &Client, name: &str) -> Result<Value, Error> {
    client.get(&["v1", "workers", name, "stats"]).await
}

/// One worker: a line on what it is, a table of its actions, a table of errors.
fn text(stats: &Value) -> String {
    let page_bytes = stats.pointer("/pages/page_bytes").and_then(Value::as_u64);
    let engines: Vec<String> = rows(stats, "/engines")
        .iter()
        .map(|it| cell(it, ""))
        .collect();
    let head = format!(
        "{} on {}: engines {}; {} of {} pages of {} free; {} busy",
        cell(stats, "/name"),
        cell(stats, "/device"),
        match engines.is_empty() {
            true => "none".to_owned(),
            false => engines.join(", "),
        },
        cell(stats, "/pages/free"),
        cell(stats, "/pages/total"),
        bytes(page_bytes.unwrap_or_default()),
        cell(stats, "/utilization"),
    );
    let (mut counts, mut errors) = (
        Table::new(&["action", "#succeeded", "#refused", "by code"]),
        Table::new(&[
            "action",
            "error",
            "#count",
            "#p50 us",
            "#p99 us",
            "#p99.9 us",
            "#max us",
        ]),
    );
    let actions = stats.get("actions").and_then(Value::as_object);
    for (action, stats) in actions.into_iter().flatten() {
        counts.row(count(action, stats));
        let rows = ERRORS
            .iter()
            .filter_map(|(key, name)| error(action, name, stats.get(key)?));
        rows.for_each(|row| errors.row(row));
    }
    let tables = [counts, errors];
    let shown = tables.iter().filter(|table| !table.is_empty());
    let parts: Vec<String> = std::iter::once(head)
        .chain(shown.map(Table::render))
        .collect();
    parts.join("\n")
}

fn count(action: &str, stats: &Value) -> Vec<String> {
    let failed = stats.get("failed").and_then(Value::as_object);
    let failed: Vec<(&String, u64)> = failed
        .into_iter()
        .flatten()
        .filter_map(|(code, count)| Some((code, count.as_u64()?)))
        .collect();
    let codes: Vec<String> = failed
        .iter()
        .map(|(code, count)| format!("{code} {count}"))
        .collect();
    let total: u64 = failed.iter().map(|(_, count)| count).sum();
    vec![
        action.to_owned(),
        cell(stats, "/succeeded"),
        total.to_string(),
        match codes.is_empty() {
            true => "-".to_owned(),
            false => codes.join(", "),
        },
    ]
}

/// `None` where no action erred so.
fn error(action: &str, name: &str, errors: &Value) -> Option<Vec<String>> {
    let count = errors.get("count")?.as_u64().filter(|count| *count > 0)?;
    let mut row = vec![action.to_owned(), name.to_owned(), count.to_string()];
    for key in ["p50_us", "p99_us", "p999_us", "max_us"] {
        row.push(
            errors
                .get(key)?
                .as_f64()
                .map_or_else(|| "-".to_owned(), short),
        );
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_drains_is_no_longer_only_to_leave() {
        assert_eq!(state(&json!({"draining": false, "leaving": false})), "up");
        assert_eq!(
            state(&json!({"draining": false, "leaving": true})),
            "leaving"
        );
        assert_eq!(
            state(&json!({"draining": true, "leaving": true})),
            "draining"
        );
        assert_eq!(state(&json!({"draining": true})), "draining");
    }

    #[test]
    fn a_worker_is_a_line_and_two_tables() {
        let errors = |count: u64| json!({"count": count, "p50_us": 12.5, "p99_us": 55.0, "p999_us": 90.0, "max_us": 1250.0});
        let stats = json!({
            "name": "local-emulated-0", "device": "emulated:0", "engines": ["emulated"],
            "pages": {"page_bytes": 16 << 20, "total": 1376, "free": 1369}, "utilization": 0.5,
            "actions": {"infer": {
                "succeeded": 1000, "failed": {"too_late": 3, "not_loaded": 1},
                "under_predicted": errors(40), "over_predicted": errors(960),
                "late_completion": errors(0),
            }},
        });
        let text = text(&stats);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "local-emulated-0 on emulated:0: engines emulated; 1369 of 1376 pages of 16.0 MiB \
             free; 0.500 busy"
        );
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let wanted = ["infer", "1000", "4", "not_loaded", "1,", "too_late", "3"];
        assert_eq!(words(lines[2]), wanted);
        let wanted = [
            "infer",
            "under-predicted",
            "40",
            "12.5",
            "55.0",
            "90.0",
            "1250",
        ];
        assert_eq!(words(lines[4]), wanted);
        assert_eq!(lines.len(), 6, "{text}");
    }
}
