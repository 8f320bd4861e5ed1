//! `sextant status`: whether applications are served, as a table.

use clap::Args;
use serde_json::{Value, json};
use sextant_types::ApplicationId;

use super::{
    Client, Error, Output,
    listing::or,
    output::{Table, cell, rows, short},
};

/// Show how applications are served: rate, share of answers in time, refusals, where the time goes, cost.
#[derive(Debug, Args)]
pub struct Status {
    /// Only this application.
    #[arg(value_name = "APPLICATION")]
    application: Option<ApplicationId>,
}

/// The columns; numbers are marked.
pub const HEADINGS: [&str; 8] = [
    "application",
    "#queries/s",
    "#in time",
    "#p50 ms",
    "#p99 ms",
    "p99: load+queue+run",
    "#$/h",
    "refused",
];

impl Status {
    /// Of all applications.
    pub fn of_all() -> Self {
        Self { application: None }
    }

    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let answer = self.fetch(client).await?;
        output.either(&answer, || {
            or(
                &table(rows(&answer, "/applications")),
                "no applications; `sextant register` adds one",
            )
        })
    }

    /// The documents, one for each application.
    pub async fn fetch(&self, client: &Client) -> Result<Value, Error> {
        let names = match &self.application {
            Some(application) => vec![application.to_string()],
            None => {
                let all: Value = client.get(&["v1", "applications"]).await?;
                let all = rows(&all, "/applications").iter();
                all.map(|application| cell(application, "/name")).collect()
            }
        };
        let mut statuses = Vec::new();
        for name in names {
            let path = ["v1", "applications", &name, "status"];
            statuses.push(client.get::<Value>(&path).await?);
        }
        Ok(json!({"applications": statuses}))
    }
}

fn table(statuses: &[Value]) -> Table {
    let mut table = Table::new(&HEADINGS);
    for status in statuses {
        table.row(cells(status).to_vec());
    }
    table
}

/// A row below the headings.
pub fn cells(status: &Value) -> [String; 8] {
    [
        cell(status, "/application"),
        cell(status, "/rate_per_s"),
        share(status),
        cell(status, "/p50/total_ms"),
        cell(status, "/p99/total_ms"),
        stages(status),
        cell(status, "/cost_per_hour_usd"),
        refused(status),
    ]
}

/// In per cent; rounded down, so that only all of it is 100 %.
fn share(status: &Value) -> String {
    let share = status.pointer("/share_in_time").and_then(Value::as_f64);
    share.map_or_else(
        || "-".to_owned(),
        |share| format!("{:.1} %", (share * 1000.0).floor() / 10.0),
    )
}

/// `0+1.2+3.4`, milliseconds.
fn stages(status: &Value) -> String {
    let times = ["load_ms", "queue_ms", "run_ms"].map(|name| {
        let time = status.pointer(&format!("/p99/{name}"));
        time.and_then(Value::as_f64).map(short)
    });
    let times: Option<Vec<String>> = times.into_iter().collect();
    times.map_or_else(|| "-".to_owned(), |times| times.join("+"))
}

/// `3 overloaded, 1 warming`.
fn refused(status: &Value) -> String {
    let codes = status.pointer("/refused").and_then(Value::as_object);
    let codes = codes.into_iter().flatten();
    let codes: Vec<String> = codes
        .map(|(code, count)| format!("{count} {code}"))
        .collect();
    match codes.is_empty() {
        true => "-".to_owned(),
        false => codes.join(", "),
    }
}
