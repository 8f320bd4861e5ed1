//! `sextant feedback`: what users say of answers.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Subcommand};
use reqwest::{Method, header::CONTENT_TYPE};
use serde_json::{Map, Value, json};
use sextant_types::ApplicationId;

use super::{
    Client, Error, Output,
    output::{Table, cell},
};

/// How an export is written.
const FORMATS: [&str; 3] = ["jsonl", "csv", "parquet"];

/// Give, send, export and erase feedback, and show the accuracy that results from it.
#[derive(Debug, Subcommand)]
pub enum Feedback {
    Give(Give),
    /// Send a file of feedback: a JSON object on each line, with `token` and one of `label`, `reward` and `preferred_to`.
    Send {
        /// The file; `-` is standard input.
        file: PathBuf,
    },
    /// Show the accuracy that results from feedback, by model and variant, beside the registered one.
    Accuracy {
        /// The application.
        application: ApplicationId,
    },
    /// Write the feedback of an application to standard output.
    Export {
        /// The application.
        application: ApplicationId,
        /// The format of the export.
        #[arg(long, value_name = "FORMAT", value_parser = FORMATS, default_value = "jsonl")]
        format: String,
    },
    Erase(Erase),
}

/// Give feedback on one row of an answer: what would have been right, how good it was, or that it was better than
/// another.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("said").required(true).args(["label", "reward", "preferred_to"]))]
pub struct Give {
    /// The `feedback_token` of the answer; `@FILE` reads it from an answer in a file.
    token: String,
    /// The row of the answer, from 0; it may be left out if there is only one.
    #[arg(long)]
    row: Option<u32>,
    /// What would have been right: a number, the name of a class, or a list as JSON.
    #[arg(long, value_name = "VALUE")]
    label: Option<String>,
    /// How good it was: `true`, `false` or a number.
    #[arg(long, value_name = "VALUE", value_parser = reward, allow_hyphen_values = true)]
    reward: Option<Value>,
    /// The token of another answer that was worse than this one; `@FILE` reads it from a file.
    #[arg(long, value_name = "TOKEN")]
    preferred_to: Option<String>,
    /// The person whom the feedback is about, by your own name for them.
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
}

/// Erase the feedback of a query, or that about a subject.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("whose").required(true).args(["query", "subject"]))]
pub struct Erase {
    /// The application.
    application: ApplicationId,
    /// The query: its token, or its name in an export.
    #[arg(long)]
    query: Option<String>,
    /// The person whom the feedback is about, by the name that was given.
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
}

fn reward(text: &str) -> Result<Value, String> {
    let value = serde_json::from_str::<Value>(text).ok();
    value
        .filter(|value| value.is_boolean() || value.is_number())
        .ok_or_else(|| "a reward is `true`, `false` or a number".to_owned())
}

impl Feedback {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Give(give) => {
                let document = give.with_tokens()?.document();
                let taken: Value = client.post(&["v1", "feedback"], &document).await?;
                output.either(&taken, || taken_text(&taken))
            }
            Self::Send { file } => {
                let request = client.request(Method::POST, &["v1", "feedback"]);
                let request = request
                    .header(CONTENT_TYPE, "application/x-ndjson")
                    .body(read(&file)?);
                let taken: Value = client.answer(request).await?;
                output.either(&taken, || taken_text(&taken))?;
                match taken["refused"].as_u64().unwrap_or(0) {
                    0 => Ok(()),
                    refused => Err(Error::RefusedItems { refused }),
                }
            }
            Self::Accuracy { application } => {
                let path = ["v1", "applications", application.as_str(), "accuracy"];
                let told: Value = client.get(&path).await?;
                output.either(&told, || accuracy_text(&told))
            }
            Self::Export {
                application,
                format,
            } => {
                let path = ["v1", "applications", application.as_str(), "feedback"];
                let request = client.request_with(Method::GET, &path, &[("format", &format)]);
                export(client.send(request).await?, client, output).await
            }
            Self::Erase(erase) => {
                let path = ["v1", "applications", erase.application.as_str(), "feedback"];
                let whose = [("query", &erase.query), ("subject", &erase.subject)];
                let whose = whose
                    .iter()
                    .filter_map(|(name, value)| Some((*name, value.as_deref()?)));
                let whose: Vec<(&str, &str)> = whose.collect();
                let request = client.request_with(Method::DELETE, &path, &whose);
                let erased: Value = client.answer(request).await?;
                output.either(&erased, || format!("{} rows are erased", erased["erased"]))
            }
        }
    }
}

async fn export(
    mut response: reqwest::Response,
    client: &Client,
    output: Output,
) -> Result<(), Error> {
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|error| client.failed(error))?
    {
        output.bytes(&piece)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let read = match file == Path::new("-") {
        true => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        }
        false => fs::read(file),
    };
    read.map_err(|source| Error::Io {
        path: file.to_owned(),
        source,
    })
}

/// A token, or that of the answer in a file.
fn token(given: String) -> Result<String, Error> {
    let Some(file) = given.strip_prefix('@') else {
        return Ok(given);
    };
    let bytes = read(Path::new(file))?;
    let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
    let token = answer.and_then(|it| it["feedback_token"].as_str().map(str::to_owned));
    token.ok_or_else(|| {
        let reason = "it is no answer with a `feedback_token`: does the application take feedback?";
        Error::Usage(format!("`{file}`: {reason}"))
    })
}

impl Give {
    fn with_tokens(self) -> Result<Self, Error> {
        Ok(Self {
            token: token(self.token)?,
            preferred_to: self.preferred_to.map(token).transpose()?,
            ..self
        })
    }

    fn document(&self) -> Value {
        let label = self.label.as_ref().map(|text| {
            let value = serde_json::from_str::<Value>(text).ok();
            let is_value =
                |value: &Value| value.is_number() || value.is_array() || value.is_boolean();
            value.filter(is_value).unwrap_or_else(|| json!(text))
        });
        let members = [
            ("token", Some(json!(self.token))),
            ("row", self.row.map(|row| json!(row))),
            ("label", label),
            ("reward", self.reward.clone()),
            (
                "preferred_to",
                self.preferred_to.as_ref().map(|it| json!(it)),
            ),
            ("subject", self.subject.as_ref().map(|it| json!(it))),
        ];
        let members = members.into_iter();
        let document: Map<String, Value> = members
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        Value::Object(document)
    }
}

fn taken_text(taken: &Value) -> String {
    let mut lines = vec![format!(
        "{} accepted, {} of them again, {} refused",
        taken["accepted"], taken["repeated"], taken["refused"]
    )];
    let refusals = taken["refusals"].as_array().into_iter().flatten();
    lines.extend(refusals.map(|one| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        format!(
            "item {}: {}: {}",
            one["index"],
            text("code"),
            text("detail")
        )
    }));
    lines.join("\n")
}

fn accuracy_text(told: &Value) -> String {
    let headings = [
        "MODEL",
        "VARIANT",
        "ONLINE",
        "#ROWS",
        "REGISTERED",
        "REWARD",
        "ALARMS",
    ];
    let mut table = Table::new(&headings);
    for model in told["models"].as_array().into_iter().flatten() {
        let alarms = model["alarms"].as_array().into_iter().flatten();
        let alarms: Vec<&str> = alarms.filter_map(|alarm| alarm["kind"].as_str()).collect();
        table.row(line(model, ("model", "all"), &alarms.join(" ")));
        for variant in model["variants"].as_array().into_iter().flatten() {
            let name = cell(variant, "/variant");
            table.row(line(variant, ("", &name), ""));
        }
    }
    match table.is_empty() {
        true => "no feedback was given yet".to_owned(),
        false => table.render(),
    }
}

fn line(of: &Value, (model, variant): (&str, &str), alarms: &str) -> Vec<String> {
    let name = match model {
        "" => String::new(),
        model => cell(of, &format!("/{model}")),
    };
    let rows = &of["online"]["rows"];
    let rows = rows.as_u64().map(|rows| rows.to_string());
    vec![
        name,
        variant.to_owned(),
        figure(&of["online"]),
        rows.unwrap_or_default(),
        figure(&of["registered"]),
        figure(&of["reward"]),
        alarms.to_owned(),
    ]
}

/// `0.951 (0.93 to 0.966)`.
fn figure(of: &Value) -> String {
    let round = |name: &str| of[name].as_f64().map(|value| (value * 1e4).round() / 1e4);
    match (round("value"), round("lower"), round("upper")) {
        (Some(value), Some(lower), Some(upper)) => format!("{value} ({lower} to {upper})"),
        (Some(value), _, _) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(label: &str) -> Value {
        let give = Give {
            token: "t".to_owned(),
            row: None,
            label: Some(label.to_owned()),
            reward: None,
            preferred_to: None,
            subject: None,
        };
        give.document()["label"].clone()
    }

    #[test]
    fn a_label_is_a_number_a_list_or_a_name() {
        assert_eq!(give("7"), json!(7));
        assert_eq!(give("[1, 2]"), json!([1, 2]));
        assert_eq!(give("setosa"), json!("setosa"));
        assert_eq!(give("null"), json!("null"));
    }

    #[test]
    fn a_reward_is_a_truth_or_a_number() {
        assert_eq!(reward("true"), Ok(json!(true)));
        assert_eq!(reward("-0.5"), Ok(json!(-0.5)));
        assert!(reward("good").is_err() && reward("NaN").is_err());
    }

    #[test]
    fn figures_are_shown_beside_each_other() {
        let figure = |value: f64| json!({"value": value, "lower": 0.9, "upper": 0.95, "rows": 200});
        let told = json!({"models": [{
            "model": "mlp", "online": figure(0.925), "registered": figure(0.94),
            "alarms": [{"kind": "level"}],
            "variants": [{"variant": "mlp-ort", "online": figure(0.925)}],
        }]});
        let text = accuracy_text(&told);
        assert!(text.contains("0.925 (0.9 to 0.95)"), "{text}");
        assert!(text.contains("level") && text.contains("mlp-ort"), "{text}");
        assert_eq!(
            accuracy_text(&json!({"models": []})),
            "no feedback was given yet"
        );
    }
}
