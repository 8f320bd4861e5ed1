//! The graph of a plan: from a profile set, or from what the service answers.

use std::collections::BTreeMap;

use serde_json::Value;
use sextant_planning::{
    Choice, Graph, Scale, Step,
    profiles::{Set, names, table},
};

use crate::cli::{
    Client, Error,
    output::{cell, rows},
    variants::answering,
};

/// Price of devices that have none, US dollars an hour: so that fewer are better.
const NO_PRICE: f64 = 1.0;

/// A pipeline of a shipped set or a file.
pub fn of_set(set: &str, pipeline: &str, scales: &[String]) -> Result<Graph, Error> {
    let usage = |error: sextant_planning::profiles::Error| Error::Usage(error.to_string());
    let set = match names().contains(&set) {
        true => Set::named(set).map_err(usage)?,
        false => {
            let text = std::fs::read_to_string(set).map_err(|source| Error::Io {
                path: set.into(),
                source,
            })?;
            Set::parse(&text).map_err(|error| Error::Usage(format!("{set}: {error}")))?
        }
    };
    let graph = set.pipeline(pipeline).map_err(usage)?.graph.clone();
    scaled(graph.steps().to_vec(), scales)
}

/// A registered pipeline: the steps that ask something, with the variants that may answer them and what was measured.
/// Transforms run where queries come in, and need no replicas.
pub async fn graph(client: &Client, pipeline: &str, scales: &[String]) -> Result<Graph, Error> {
    let shown: Value = client.get(&["v1", "pipelines", pipeline]).await?;
    let workers: Value = client.get(&["v1", "workers"]).await?;
    let prices = prices(&workers);
    let definition = rows(&shown, "/definition/steps");
    let (mut steps, mut positions): (Vec<Step>, BTreeMap<String, Vec<usize>>) =
        (Vec::new(), BTreeMap::new());
    let mut previous: Vec<usize> = Vec::new();
    for step in definition {
        let name = cell(step, "/name");
        let named: Vec<&Vec<usize>> = positions
            .iter()
            .filter(|(other, _)| mentions(step, other))
            .map(|(_, at)| at)
            .collect();
        let mut after: Vec<usize> = match named.is_empty() {
            // What it takes comes from a step before it by its name alone.
            true => previous.clone(),
            false => named.into_iter().flatten().copied().collect(),
        };
        after.sort_unstable();
        after.dedup();
        let choices = choices(client, step, &prices).await?;
        let here = match choices {
            None => after,
            Some(choices) => {
                let scale = learnt(&shown, &name);
                let name = name.clone();
                steps.push(Step {
                    name,
                    after,
                    scale,
                    choices,
                });
                vec![steps.len() - 1]
            }
        };
        positions.insert(name, here.clone());
        previous = here;
    }
    if steps.is_empty() {
        return Err(Error::Usage(format!(
            "no step of `{pipeline}` asks a model: there is nothing to plan"
        )));
    }
    scaled(steps, scales)
}

/// How often a step ran of the queries that came, and on how many rows; one that nobody has asked runs for each on one.
fn learnt(pipeline: &Value, step: &str) -> Scale {
    let scales = rows(pipeline, "/scales").iter();
    let own = scales.into_iter().find(|it| it["step"] == step);
    let figure = |pointer: &str| own.and_then(|it| it.pointer(pointer)?.as_f64());
    Scale {
        probability: figure("/probability/value").unwrap_or(1.0).clamp(0.0, 1.0),
        rows: figure("/rows/value").unwrap_or(1.0).max(1.0),
    }
}

/// Whether a step takes something of another.
fn mentions(step: &Value, other: &str) -> bool {
    let prefix = format!("{other}.");
    let is_word = |before: char| before.is_alphanumeric() || before == '_' || before == '.';
    let is_named = |text: &str| {
        let mut found = text.match_indices(&prefix);
        found.any(|(at, _)| !text[..at].ends_with(is_word))
    };
    let texts = step.as_object().into_iter().flatten();
    let mut texts = texts.filter(|(key, _)| ["inputs", "for_each", "when"].contains(&key.as_str()));
    texts.any(|(_, value)| any_text(value, &is_named))
}

fn any_text(value: &Value, is: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is(text),
        Value::Array(values) => values.iter().any(|value| any_text(value, is)),
        Value::Object(values) => values.values().any(|value| any_text(value, is)),
        _ => false,
    }
}

/// Prices of device types by name.
fn prices(workers: &Value) -> BTreeMap<String, f64> {
    let types = rows(workers, "/workers")
        .iter()
        .filter_map(|worker| worker.get("device_type"));
    let prices = types.map(|of| {
        let price = of.get("price_per_hour_usd").and_then(Value::as_f64);
        (
            cell(of, "/name"),
            price.filter(|price| *price > 0.0).unwrap_or(NO_PRICE),
        )
    });
    prices.collect()
}

/// What may answer a step; `None` for a transform.
async fn choices(
    client: &Client,
    step: &Value,
    prices: &BTreeMap<String, f64>,
) -> Result<Option<Vec<Choice>>, Error> {
    let asks = |key: &str| step.get(key).and_then(Value::as_str).map(str::to_owned);
    let variants: Vec<Value> = if let Some(application) = asks("application") {
        let answer: Value = client
            .get(&["v1", "applications", &application, "variants"])
            .await?;
        answering(&answer)
    } else if let Some(model) = asks("model") {
        let answer: Value = client.get(&["v1", "models", &model, "variants"]).await?;
        rows(&answer, "/variants").to_vec()
    } else if let Some(variant) = asks("variant") {
        vec![client.get(&["v1", "variants", &variant]).await?]
    } else {
        return Ok(None);
    };
    let choices: Vec<Choice> = variants
        .iter()
        .flat_map(|variant| of_variant(variant, prices))
        .collect();
    match choices.is_empty() {
        false => Ok(Some(choices)),
        true => Err(Error::Usage(format!(
            "no variant for step `{}` has a profile on a device type that a worker has: {}",
            cell(step, "/name"),
            prices.keys().cloned().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// A variant on each device type that it was measured on.
fn of_variant(variant: &Value, prices: &BTreeMap<String, f64>) -> Vec<Choice> {
    // An error that is measured has no share of right answers.
    let is_share = variant.pointer("/accuracy/metric").and_then(Value::as_str) != Some("mae");
    let accuracy = variant.pointer("/accuracy/lower").and_then(Value::as_f64);
    let accuracy = accuracy.filter(|_| is_share).unwrap_or(1.0).clamp(0.0, 1.0);
    let most = match variant.get("apart") {
        Some(_) => 1,
        None => variant
            .get("max_batch")
            .and_then(Value::as_u64)
            .unwrap_or(1)
            .clamp(1, 4096) as u32,
    };
    let profiles = rows(variant, "/profiles").iter();
    let choices = profiles.filter_map(|profile| {
        let device = cell(profile, "/device_type");
        let price = prices.get(&device)?;
        let points = rows(profile, "/latency").iter();
        let points =
            points.filter_map(|of| Some((of["batch"].as_u64()? as u32, of["p50_ms"].as_f64()?)));
        let points: Vec<(u32, f64)> = points.filter(|(rows, _)| *rows <= most).collect();
        Some(Choice {
            variant: cell(variant, "/name"),
            accuracy,
            device,
            price: *price,
            latency: table(&points).ok()?,
        })
    });
    choices.collect()
}

/// Steps with the scales that were given.
fn scaled(mut steps: Vec<Step>, scales: &[String]) -> Result<Graph, Error> {
    for scale in scales {
        let (name, figures) = scale.split_once('=').ok_or_else(|| {
            Error::Usage(format!("`--scale {scale}`: it must be STEP=SHARE[:ROWS]"))
        })?;
        let (share, rows) = figures.split_once(':').unwrap_or((figures, "1"));
        let number = |text: &str| {
            text.parse::<f64>()
                .map_err(|_| Error::Usage(format!("`--scale {scale}`: `{text}` is no number")))
        };
        let (probability, rows) = (number(share)?, number(rows)?);
        let step = steps.iter_mut().find(|step| step.name == name);
        let step = step.ok_or_else(|| {
            Error::Usage(format!(
                "`--scale {scale}`: no step that is planned is called `{name}`"
            ))
        })?;
        step.scale = Scale { probability, rows };
    }
    Graph::new(steps).map_err(|error| Error::Usage(error.to_string()))
}
