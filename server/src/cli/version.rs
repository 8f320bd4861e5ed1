//! `sextant version`: the versions of a model, and which of them is current.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use sextant_types::ModelId;

use super::{
    Client, Error, Output,
    output::{Table, cell, rows},
    targets::number,
};

/// List, try, promote and roll back versions of models.
#[derive(Debug, Subcommand)]
pub enum Version {
    /// List the versions of a model.
    List(ModelArguments),
    /// Have a version repeat queries that the current one has answered, on workers that have nothing else to do, and
    /// compare the answers.
    Shadow(ShadowArguments),
    /// Have a version answer a share of the queries.
    Canary(Canary),
    /// End the trial of a version: it then answers only queries that name it.
    Candidate(VersionArguments),
    /// Show the results of the versions while one of them is tried.
    Trials(ModelArguments),
    /// Make a version current.
    Promote(VersionArguments),
    /// Make the previous current version current again.
    Rollback(ModelArguments),
}

/// Which model.
#[derive(Debug, Args)]
pub struct ModelArguments {
    /// Its name, or `application:name`.
    model: ModelId,
}

/// Which version.
#[derive(Debug, Args)]
pub struct VersionArguments {
    /// The model's name, or `application:name`.
    model: ModelId,
    /// The version's number.
    version: u32,
}

/// Which version is to be a shadow.
#[derive(Debug, Args)]
pub struct ShadowArguments {
    #[command(flatten)]
    of: VersionArguments,
    /// Share of the queries that the version repeats, percent.
    #[arg(long, default_value_t = 100.0, value_parser = number)]
    percent: f64,
    #[command(flatten)]
    rules: Rules,
}

/// Which version is to be a canary.
#[derive(Debug, Args)]
pub struct Canary {
    #[command(flatten)]
    of: VersionArguments,
    /// Share of the queries that the version answers, percent.
    #[arg(long, value_parser = number)]
    percent: f64,
    #[command(flatten)]
    rules: Rules,
}

/// By what the version is rolled back or promoted by itself.
#[derive(Debug, Args)]
pub struct Rules {
    /// Retire the version automatically when it is shown to break a limit.
    #[arg(long)]
    judge: bool,
    /// Make the version current automatically when it is shown to keep all limits.
    #[arg(long, requires = "judge")]
    auto_promote: bool,
    /// Largest share of its queries that may fail.
    #[arg(long, requires = "judge", value_name = "SHARE", value_parser = number)]
    max_error_share: Option<f64>,
    /// Least share of the rows in which a shadow must agree with the current version.
    #[arg(long, requires = "judge", value_name = "SHARE", value_parser = number)]
    min_agreement: Option<f64>,
    /// Least number of answers before it is promoted.
    #[arg(long, requires = "judge", value_name = "COUNT")]
    minimum: Option<u64>,
}

impl Version {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::List(ModelArguments { model }) => {
                let versions = versions(client, &model).await?;
                output.either(&versions, || listed(&versions))
            }
            Self::Trials(ModelArguments { model }) => {
                let path = ["v1", "models", model.as_str(), "trials"];
                let trials: Value = client.get(&path).await?;
                output.either(&trials, || tried(&trials))
            }
            Self::Shadow(ShadowArguments { of, percent, rules }) => {
                let body = json!({"stage": "shadow", "percent": percent, "rules": rules.body()});
                change(client, &of, &body, output).await
            }
            Self::Canary(Canary { of, percent, rules }) => {
                let body = json!({"stage": "canary", "percent": percent, "rules": rules.body()});
                change(client, &of, &body, output).await
            }
            Self::Candidate(of) => {
                let body = json!({"stage": "candidate"});
                change(client, &of, &body, output).await
            }
            Self::Promote(VersionArguments { model, version }) => {
                let seen = versions(client, &model).await?["current"].clone();
                act(client, (&model, version, "promotion"), &seen, output).await
            }
            Self::Rollback(ModelArguments { model }) => {
                let seen = versions(client, &model).await?["current"].clone();
                let version = seen.as_u64().and_then(|it| u32::try_from(it).ok());
                let version = version.unwrap_or_default();
                act(client, (&model, version, "rollback"), &seen, output).await
            }
        }
    }
}

impl Rules {
    fn body(&self) -> Option<Value> {
        let rules = json!({
            "promote": self.auto_promote,
            "max_error_share": self.max_error_share,
            "min_agreement": self.min_agreement,
            "minimum": self.minimum,
        });
        self.judge.then_some(rules)
    }
}

async fn versions(client: &Client, model: &ModelId) -> Result<Value, Error> {
    client
        .get(&["v1", "models", model.as_str(), "versions"])
        .await
}

async fn change(
    client: &Client,
    of: &VersionArguments,
    body: &Value,
    output: Output,
) -> Result<(), Error> {
    let version = of.version.to_string();
    let path = ["v1", "models", of.model.as_str(), "versions", &version];
    let request = client.request(Method::PATCH, &path).json(body);
    let versions: Value = client.answer(request).await?;
    output.either(&versions, || listed(&versions))
}

/// Promotes or rolls back, unless somebody else has changed what was seen.
async fn act(
    client: &Client,
    (model, version, act): (&ModelId, u32, &str),
    seen: &Value,
    output: Output,
) -> Result<(), Error> {
    let version = version.to_string();
    let path = ["v1", "models", model.as_str(), "versions", &version, act];
    let versions: Value = client.post(&path, &json!({"current": seen})).await?;
    output.either(&versions, || listed(&versions))
}

fn listed(versions: &Value) -> String {
    let mut table = Table::new(&[
        "#version",
        "stage",
        "#percent",
        "status",
        "model",
        "#replaced",
    ]);
    for version in rows(versions, "/versions") {
        table.row(vec![
            cell(version, "/version"),
            cell(version, "/stage"),
            cell(version, "/percent"),
            cell(version, "/status"),
            cell(version, "/model"),
            cell(version, "/replaced"),
        ]);
    }
    table.render()
}

fn tried(trials: &Value) -> String {
    let headings = [
        "#version",
        "#queries",
        "#errors",
        "#late",
        "#rows",
        "#agreeing",
        "#passed over",
    ];
    let mut table = Table::new(&headings);
    for trial in rows(trials, "/trials") {
        table.row(vec![
            cell(trial, "/version"),
            cell(trial, "/queries"),
            cell(trial, "/errors"),
            cell(trial, "/late"),
            cell(trial, "/rows"),
            cell(trial, "/agreeing"),
            cell(trial, "/passed_over"),
        ]);
    }
    super::listing::or(&table, "no version is tried, or none has done anything yet")
}
