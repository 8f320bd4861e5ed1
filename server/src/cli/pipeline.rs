//! `sextant pipeline`: applications that several steps answer.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use clap::Subcommand;
use reqwest::{Method, header};
use serde_json::{Value, json};
use sextant_types::ApplicationId;

use super::{
    Client, Error, Output,
    output::{Table, cell, rows},
    query,
};

mod measure;
mod whole;

/// The path of pipelines.
const PATH: [&str; 2] = ["v1", "pipelines"];

/// Register, check, show, ask, measure, tune, list and delete pipelines.
#[derive(Debug, Subcommand)]
pub enum Pipeline {
    /// Register a pipeline from a file, YAML or JSON.
    Register {
        /// The definition (docs/pipelines.md).
        file: PathBuf,
        /// Make the next version if a pipeline of this name is registered.
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        whole: whole::WholeOptions,
    },
    /// Check a definition against what is registered; nothing is changed.
    Check {
        /// The definition.
        file: PathBuf,
    },
    /// Show the steps of a pipeline, and the tensors that go from one to another.
    Show {
        /// Its name.
        name: ApplicationId,
        /// Write a picture of the pipeline into this file, SVG.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Ask a pipeline that takes a picture or a sentence.
    Ask(Ask),
    Measure(measure::Measure),
    Tune(measure::Tune),
    /// List pipelines.
    List,
    /// Delete a pipeline, all its versions and its application.
    Delete {
        /// Its name.
        name: ApplicationId,
    },
}

/// Ask a pipeline that takes a picture or a sentence.
#[derive(Debug, clap::Args)]
pub struct Ask {
    /// Its name.
    name: ApplicationId,
    /// The input: `@file`, `-` (standard input), or the sentence itself.
    input: String,
    /// Latency target: answer within so many milliseconds from the arrival of the request.
    #[arg(long, value_name = "MS")]
    latency_ms: Option<f64>,
    /// One of the application's presets; its targets hold where the query states no others.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Show what each step did.
    #[arg(long)]
    explain: bool,
    /// If no variants meet the targets, answer with the closest variants instead of refusing.
    #[arg(long)]
    best_effort: bool,
}

impl Pipeline {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Register {
                file,
                replace,
                whole,
            } => register(client, (&file, whole), replace, output).await,
            Self::Check { file } => {
                let request = client.request_with(Method::POST, &PATH, &[("dry_run", "true")]);
                let checked: Value = client.answer(sent(request, &file)?).await?;
                output.either(&checked, || {
                    format!("`{}` can be registered", cell(&checked, "/name"))
                })
            }
            Self::Show { name, svg } => show(client, &name, svg, output).await,
            Self::Ask(ask) => ask.run(client, output).await,
            Self::Measure(measure) => measure.run(client, output).await,
            Self::Tune(tune) => tune.run(client, output).await,
            Self::List => list(client, output).await,
            Self::Delete { name } => {
                let path = ["v1", "pipelines", name.as_str()];
                client.send(client.request(Method::DELETE, &path)).await?;
                let deleted = json!({"deleted": name});
                output.either(&deleted, || format!("pipeline `{name}` is deleted"))
            }
        }
    }
}

/// A request with a definition. JSON is YAML, so the server reads both alike and tells the line of a mistake.
fn sent(
    request: reqwest::RequestBuilder,
    file: &PathBuf,
) -> Result<reqwest::RequestBuilder, Error> {
    Ok(with_yaml(request, read(file)?))
}

fn with_yaml(request: reqwest::RequestBuilder, document: Vec<u8>) -> reqwest::RequestBuilder {
    request
        .header(header::CONTENT_TYPE, "application/yaml")
        .body(document)
}

fn read(file: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|source| Error::Io {
        path: file.clone(),
        source,
    })
}

async fn register(
    client: &Client,
    (file, whole): (&PathBuf, whole::WholeOptions),
    replace: bool,
    output: Output,
) -> Result<(), Error> {
    let mut document = read(file)?;
    let mut name = String::new();
    if replace || whole.says_something() {
        // Only the server reads YAML, so it is asked for the name.
        let request = client.request_with(Method::POST, &PATH, &[("dry_run", "true")]);
        let mut checked: Value = client.answer(with_yaml(request, document.clone())).await?;
        name = cell(&checked, "/name");
        if whole.says_something() {
            document = whole.put_into(client, checked["definition"].take()).await?;
        }
    }
    let request = match replace {
        false => client.request(Method::POST, &PATH),
        true => client.request(Method::PUT, &["v1", "pipelines", &name]),
    };
    let made: Value = client.answer(with_yaml(request, document)).await?;
    let made = match whole.waits() {
        true => whole::measured(client, made, output).await?,
        false => made,
    };
    output.either(&made, || {
        format!(
            "pipeline `{}` is registered, version {}: it takes {} and gives {}{}",
            cell(&made, "/name"),
            cell(&made, "/version"),
            tensors(&made, "/signature/inputs"),
            tensors(&made, "/signature/outputs"),
            whole::sentence(&made)
        )
    })
}

/// `image (BYTES [-1])`.
fn tensors(pipeline: &Value, pointer: &str) -> String {
    let specs = rows(pipeline, pointer).iter();
    let specs = specs.map(|spec| {
        format!(
            "{} ({} {})",
            cell(spec, "/name"),
            cell(spec, "/datatype"),
            spec["shape"]
        )
    });
    specs.collect::<Vec<_>>().join(", ")
}

async fn show(
    client: &Client,
    name: &ApplicationId,
    svg: Option<PathBuf>,
    output: Output,
) -> Result<(), Error> {
    let path = ["v1", "pipelines", name.as_str()];
    let shown: Value = client.get(&path).await?;
    let graph = ["v1", "pipelines", name.as_str(), "graph"];
    let drawn = async |form: &str| {
        let request = client.request_with(Method::GET, &graph, &[("as", form)]);
        let response = client.send(request).await?;
        response.text().await.map_err(|error| client.failed(error))
    };
    if let Some(file) = svg {
        let picture = drawn("svg").await?;
        std::fs::write(&file, picture).map_err(|source| Error::Io { path: file, source })?;
    }
    if output.json {
        return output.value(&shown);
    }
    let text = match shown.get("unusable") {
        Some(_) => format!("it cannot run: {}", cell(&shown, "/unusable")),
        None => drawn("text").await?,
    };
    output.text(&format!(
        "{name}, version {}{}\n{}",
        cell(&shown, "/version"),
        whole::sentence(&shown),
        text.trim_end()
    ))
}

async fn list(client: &Client, output: Output) -> Result<(), Error> {
    let listed: Value = client.get(&PATH).await?;
    output.either(&listed, || {
        let mut table = Table::new(&["pipeline", "version", "steps", "state"]);
        for pipeline in rows(&listed, "/pipelines") {
            let state = match pipeline.get("unusable") {
                Some(_) => cell(pipeline, "/unusable"),
                None => "ready".to_owned(),
            };
            table.row(vec![
                cell(pipeline, "/name"),
                cell(pipeline, "/version"),
                rows(pipeline, "/definition/steps").len().to_string(),
                state,
            ]);
        }
        match table.is_empty() {
            true => "no pipelines: `sextant pipeline register FILE`".to_owned(),
            false => table.render(),
        }
    })
}

impl Ask {
    async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let body = match self.input.as_str() {
            "-" => {
                let mut bytes = Vec::new();
                io::stdin()
                    .lock()
                    .read_to_end(&mut bytes)
                    .map_err(|source| Error::Io {
                        path: "standard input".into(),
                        source,
                    })?;
                bytes
            }
            text => match text.strip_prefix('@') {
                Some(file) => read(&file.into())?,
                None => text.as_bytes().to_vec(),
            },
        };
        let latency_ms = self.latency_ms.map(|ms| ms.to_string());
        let said = |flag: bool| flag.then_some("true");
        let parameters: Vec<(&str, &str)> = [
            ("latency_ms", latency_ms.as_deref()),
            ("preset", self.preset.as_deref()),
            ("explain", said(self.explain)),
            ("best_effort", said(self.best_effort)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let path = ["v1", "pipelines", self.name.as_str(), "queries"];
        let request = client.request_with(Method::POST, &path, &parameters);
        let request = request
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .body(body);
        let answer: Value = client.answer(request).await?;
        output.either(&answer, || query::text(&answer))
    }
}
