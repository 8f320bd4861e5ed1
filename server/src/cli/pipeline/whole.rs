//! The options of `sextant pipeline register` about a pipeline as a whole: its validation set, and the application that
//! it is a variant of.

use std::path::PathBuf;

use reqwest::{Method, header};
use serde_json::{Value, json};
use sextant_types::ApplicationId;

use super::read;
use crate::cli::{
    Client, Error, Output, follow,
    output::{cell, short},
};

/// Of the whole.
#[derive(Debug, clap::Args)]
pub struct WholeOptions {
    /// Measure the accuracy of the pipeline as a whole on this validation set (NPZ, CSV or JSON lines, with labels)
    /// whenever the pipeline or a model that it follows changes. Queries may then ask for an accuracy.
    #[arg(long, value_name = "FILE")]
    validation: Option<PathBuf>,
    /// The metric: `top1`, `exact`, `mae`, .. If it is left out, the metric of the application of `--variant-of`,
    /// else `top1`.
    #[arg(long, requires = "validation")]
    metric: Option<String>,
    /// The output that is scored; if it is left out, the one that suits the metric.
    #[arg(long, value_name = "NAME", requires = "validation")]
    scored: Option<String>,
    /// Make the pipeline a variant of this application. It then answers the queries for which it is the cheapest
    /// variant that meets their targets. Without `--validation` it is measured on the validation set of the
    /// application's latest model.
    #[arg(long, value_name = "APPLICATION")]
    variant_of: Option<ApplicationId>,
    /// Do not wait until the pipeline is measured.
    #[arg(long)]
    no_wait: bool,
}

impl WholeOptions {
    /// Whether the definition is to say more than its file does.
    pub fn says_something(&self) -> bool {
        self.validation.is_some() || self.variant_of.is_some()
    }

    /// Whether the measurement is waited for.
    pub fn waits(&self) -> bool {
        self.says_something() && !self.no_wait
    }

    /// Puts it into a definition, and the set into the artefact store.
    pub async fn put_into(&self, client: &Client, mut definition: Value) -> Result<Vec<u8>, Error> {
        if let Some(application) = &self.variant_of {
            definition["variant_of"] = json!(application);
        }
        if let Some(file) = &self.validation {
            let name = cell(&definition, "/name");
            let set = format!("{name}.validation");
            let path = ["v1", "artefacts", "pipelines", &set];
            let request = client
                .request(Method::PUT, &path)
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .body(read(file)?);
            client.send(request).await?;
            let mut validation = json!({"file": format!("pipelines/{set}")});
            if let Some(metric) = &self.metric {
                validation["metric"] = json!(metric);
            }
            if let Some(output) = &self.scored {
                validation["output"] = json!(output);
            }
            definition["validation"] = validation;
        }
        Ok(definition.to_string().into_bytes())
    }
}

/// A pipeline once it is measured; its job is followed.
pub async fn measured(client: &Client, made: Value, output: Output) -> Result<Value, Error> {
    let Some(job) = made["measured"]["job"].as_str() else {
        return Ok(made);
    };
    let (job, _) = follow::follow(client, job, output.json).await?;
    job.outcome()?;
    client
        .get(&["v1", "pipelines", &cell(&made, "/name")])
        .await
}

/// What was measured of a pipeline, behind something else; nothing of one that is not measured.
pub fn sentence(pipeline: &Value) -> String {
    let measured = &pipeline["measured"];
    let state = match measured["state"].as_str() {
        None => return String::new(),
        Some("current") => "",
        Some("stale") => ", being measured anew",
        Some(_) => return "\nas a whole it is being measured".to_owned(),
    };
    let figure = |name: &str| measured["figures"][name].as_f64().unwrap_or_default();
    format!(
        "\nas a whole: {} {:.4} ({:.4} to {:.4}) over {} records, p99 {} ms, ${} for a thousand queries{state}",
        cell(measured, "/figures/metric"),
        figure("value"),
        figure("lower"),
        figure("upper"),
        cell(measured, "/figures/records"),
        short(figure("p99_ms")),
        short(figure("cost_per_1k_usd")),
    )
}
