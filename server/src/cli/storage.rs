//! `sextant storage`: what uses the artefact store, and the removal of unused files.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    Client, Error, Output,
    output::{Table, bytes, bytes_cell, cell, rows},
};

/// Show what uses the artefact store, and remove what nobody needs.
#[derive(Debug, clap::Args)]
pub struct Storage {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Remove now the files that nobody needs any more.
    Sweep(Sweep),
    /// Assign the artefact store to the server's registry if the two do not belong together. Sweeps then remove the
    /// files that the registry does not name.
    Adopt,
}

/// Remove now the files that nobody needs any more.
#[derive(Debug, clap::Args)]
struct Sweep {
    /// Remove files to which nothing refers and that were stored longer ago than this, seconds. If this is less than
    /// an upload takes, an upload in progress may have to be sent again [default: `storage.grace_s`].
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
}

/// What a sweep removed, and how that is called.
const REMOVED: [(&str, &str); 3] = [
    ("blobs", "files that nothing referred to"),
    ("parts", "parts of jobs that were over"),
    ("notes", "notes on webhooks of forgotten jobs"),
];

impl Storage {
    /// Asks the server.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self.command {
            None => {
                let usage: Value = client.get(&["v1", "storage"]).await?;
                output.either(&usage, || text(&usage))
            }
            Some(Command::Sweep(Sweep { grace })) => {
                let mut body = Map::new();
                body.extend(grace.map(|grace| ("grace_s".to_owned(), json!(grace))));
                let path = ["v1", "storage", "sweep"];
                let freed: Value = client.post(&path, &Value::Object(body)).await?;
                output.either(&freed, || report(&freed))
            }
            Some(Command::Adopt) => {
                let path = ["v1", "storage", "adopt"];
                client.send(client.request(Method::POST, &path)).await?;
                output.either(&json!({"adopted": true}), || {
                    "the artefact store is that of this registry".to_owned()
                })
            }
        }
    }
}

/// A table, and a line with the sum.
fn text(usage: &Value) -> String {
    let mut table = Table::new(&["kind", "application", "model", "#objects", "#size"]);
    for used in rows(usage, "/uses") {
        table.row(vec![
            cell(used, "/kind"),
            cell(used, "/application"),
            cell(used, "/model"),
            cell(used, "/objects"),
            bytes_cell(used, "/bytes"),
        ]);
    }
    let limit = match usage.get("limit_bytes").and_then(Value::as_u64) {
        Some(limit) => format!(" of {}", bytes(limit)),
        None => String::new(),
    };
    let objects = cell(usage, "/objects");
    let sum = format!(
        "{}{limit} in {objects} objects",
        bytes_cell(usage, "/bytes")
    );
    match table.is_empty() {
        true => sum,
        false => format!("{}\n{sum}", table.render()),
    }
}

/// A line for each kind of what was removed, and one with the sum.
fn report(freed: &Value) -> String {
    let mut lines = Vec::new();
    for (key, name) in REMOVED {
        let objects = cell(freed, &format!("/{key}/objects"));
        if objects != "0" {
            let size = bytes_cell(freed, &format!("/{key}/bytes"));
            lines.push(format!("removed {objects} {name}: {size}"));
        }
    }
    for (key, name) in [
        ("jobs", "ended jobs"),
        ("models", "failed models"),
        ("audit", "entries of the audit record"),
    ] {
        let count = cell(freed, &format!("/{key}"));
        if count != "0" {
            lines.push(format!("forgot {count} {name}"));
        }
    }
    lines.push(format!("{} given back", bytes_cell(freed, "/bytes")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_table_and_a_sum() {
        let usage = json!({"uses": [
            {"kind": "model", "application": "digits", "model": "small", "objects": 1, "bytes": 2048},
            {"kind": "unreferenced", "objects": 3, "bytes": 1024},
        ], "objects": 4, "bytes": 3072, "limit_bytes": 1 << 20});
        let text = text(&usage);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1][..4], ["model", "digits", "small", "1"]);
        assert_eq!(lines[2][..4], ["unreferenced", "-", "-", "3"]);
        assert_eq!(text.lines().last(), Some("3.0 KiB of 1.0 MiB in 4 objects"));
    }

    #[test]
    fn a_sweep_tells_only_what_it_did() {
        let none = json!({"objects": 0, "bytes": 0});
        let freed = json!({"blobs": {"objects": 2, "bytes": 1024}, "parts": none, "notes": none,
            "jobs": 3, "models": 0, "audit": 0, "bytes": 1024});
        assert_eq!(
            report(&freed),
            "removed 2 files that nothing referred to: 1.0 KiB\nforgot 3 ended jobs\n1.0 KiB given back"
        );
    }
}
