//! The graph of a pipeline from the service's answers.
//!
//! A step that is split is planned as several steps, of which a query runs one. If a step is a pipeline, its steps are
//! planned as steps of the whole, as the autoscaler plans them ([`parts`]).

use std::collections::{BTreeMap, BTreeSet};

use futures::future::LocalBoxFuture;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use sextant_planning::{
    Choice, Graph, Scale, Whole,
    parts::{self, Frequency, Part},
    profiles::table,
};
use sextant_types::Metric;

use super::{SEED, scales::Scales};
use crate::cli::{
    Client, Error,
    output::{cell, rows},
    variants::answering,
};

/// Price of devices that have none, US dollars an hour: so that fewer are better.
const NO_PRICE: f64 = 1.0;

/// Who answers what is asked of the service.
pub trait Service {
    /// The document under a path.
    async fn get(&self, segments: &[&str]) -> Result<Value, Error>;
}

impl Service for Client {
    async fn get(&self, segments: &[&str]) -> Result<Value, Error> {
        Self::get(self, segments).await
    }
}

/// The parts of a pipeline as they are found.
struct Reader<'a, S> {
    service: &'a S,
    /// Prices and slots of device types by name.
    prices: BTreeMap<String, (f64, f64)>,
    scales: Scales,
    parts: Vec<Part>,
    /// By part that asks something: how often it runs for a query that runs it.
    runs: BTreeMap<String, f64>,
}

/// The step that a pipeline is of another one; of the outermost nothing.
#[derive(Debug, Clone)]
struct OuterStep {
    /// What the names of its steps begin with.
    prefix: String,
    /// What it waits for.
    after: Vec<String>,
    /// With which probability it runs where it could, and how often then.
    probability: f64,
    runs: f64,
}

/// Whom a step asks, and its share of the step's queries.
struct Asks {
    kind: &'static str,
    name: String,
    share: f64,
}

/// A registered pipeline: what asks something, with the variants that may answer it and what was measured of these and of the
/// whole. Transforms run where queries come in, and need no replicas.
pub async fn graph(
    service: &impl Service,
    pipeline: &str,
    scales: Scales,
) -> Result<(Graph, Option<Whole>), Error> {
    let shown = service.get(&["v1", "pipelines", pipeline]).await?;
    let workers = service.get(&["v1", "workers"]).await?;
    let mut reader = Reader {
        service,
        prices: prices(&workers),
        scales,
        parts: Vec::new(),
        runs: BTreeMap::new(),
    };
    let outermost = OuterStep {
        prefix: String::new(),
        after: Vec::new(),
        probability: 1.0,
        runs: 1.0,
    };
    reader.read(&shown, outermost).await?;
    reader.scales.check()?;
    let parts = parts::in_order(reader.parts, |part| (&part.step, &part.after));
    let parts = parts.filter(|parts| !parts.is_empty()).ok_or_else(|| {
        Error::Usage(format!(
            "no step of `{pipeline}` asks a model: there is nothing to plan"
        ))
    })?;
    let whole = whole(&shown, &parts);
    let graph = parts::graph(parts, &mut ChaCha8Rng::seed_from_u64(SEED));
    let graph = graph.map_err(|error| Error::Usage(error.to_string()))?;
    Ok((graph, whole))
}

/// What was measured of a pipeline as a whole and holds now; `None` where nothing does, or what is measured is no share of right
/// answers.
fn whole(shown: &Value, parts: &[Part]) -> Option<Whole> {
    let measured = shown.get("measured");
    let measured = measured.filter(|it| it["state"] == "current")?;
    let figures = measured.get("figures").filter(|it| is_share(it))?;
    let answered = |part: &Part| -> Vec<String> {
        let all = figures["answered"][&part.step].as_array();
        let one = figures["variants"].get(&part.step);
        // Services of an earlier version name the model that answered most often.
        let names = all.map_or_else(
            || one.into_iter().collect(),
            |all| all.iter().collect::<Vec<_>>(),
        );
        let names = names.into_iter().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    Some(Whole {
        accuracy: figures["lower"].as_f64()?.clamp(0.0, 1.0),
        answered: parts.iter().map(answered).collect(),
    })
}

/// Whether an accuracy is a share of right answers: an error that is measured is none.
fn is_share(of: &Value) -> bool {
    let metric = of["metric"].as_str().and_then(Metric::parse);
    metric.is_none_or(Metric::higher_is_better)
}

// === impl Reader ===

impl<S: Service> Reader<'_, S> {
    /// Adds the parts of a pipeline.
    fn read<'b>(
        &'b mut self,
        shown: &'b Value,
        around: OuterStep,
    ) -> LocalBoxFuture<'b, Result<(), Error>> {
        Box::pin(async move {
            // By step: the asking steps with which it ends.
            let mut ends: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let mut previous = BTreeSet::new();
            for step in rows(shown, "/definition/steps") {
                let named = ends.iter().filter(|(other, _)| mentions(step, other));
                let named: Vec<&BTreeSet<String>> = named.map(|(_, of)| of).collect();
                let after: BTreeSet<String> = match named.is_empty() {
                    // It mentions no step: an earlier step gives its inputs by their names alone.
                    true => previous.clone(),
                    false => named.into_iter().flatten().cloned().collect(),
                };
                let asked = asked(step);
                let end = match asked.is_empty() {
                    true => after,
                    false => self.step((shown, step), (after, asked), &around).await?,
                };
                ends.insert(cell(step, "/name"), end.clone());
                previous = end;
            }
            Ok(())
        })
    }

    /// Adds a step that asks something behind others of its pipeline, and tells its name.
    async fn step(
        &mut self,
        (shown, step): (&Value, &Value),
        (after, asked): (BTreeSet<String>, Vec<Asks>),
        around: &OuterStep,
    ) -> Result<BTreeSet<String>, Error> {
        let (own, found) = (cell(step, "/name"), self.parts.len());
        let name = format!("{}{own}", around.prefix);
        let scale = self.scales.of(&name).unwrap_or_else(|| learnt(shown, &own));
        let before = after.iter().filter_map(|it| self.runs.get(it));
        let before = before.copied().reduce(f64::max).unwrap_or(around.runs);
        // The step runs if at least one of the runs before it leads to it.
        let visits = 1.0 - (1.0 - scale.probability).powf(before);
        let (probability, waits) = match after.is_empty() {
            true => (around.probability * visits, around.after.clone()),
            false => (visits, after.iter().cloned().collect()),
        };
        let runs = before * scale.probability / visits.max(1e-9);
        for asks in asked {
            let within = OuterStep {
                prefix: format!("{name}."),
                after: waits.clone(),
                probability: probability * asks.share,
                runs: (runs * scale.rows).max(1.0),
            };
            match self.nested(&asks).await? {
                Some(inner) => self.read(&inner, within).await?,
                None => {
                    let choices = self.choices(&name, &asks).await?;
                    self.parts.push(Part {
                        step: name.clone(),
                        asks: asks.name,
                        after: within.after,
                        often: Frequency::WhereItCould(within.probability),
                        rows: within.runs,
                        choices,
                    });
                }
            }
        }
        if self.parts.len() == found {
            // The pipeline has transforms alone.
            return Ok(after);
        }
        self.runs.insert(name.clone(), runs.max(1.0));
        Ok(BTreeSet::from([name]))
    }

    /// The pipeline that is asked, where one is.
    async fn nested(&self, asks: &Asks) -> Result<Option<Value>, Error> {
        if asks.kind != "application" {
            return Ok(None);
        }
        match self.service.get(&["v1", "pipelines", &asks.name]).await {
            Ok(shown) => Ok(Some(shown)),
            Err(Error::Problem(problem)) if problem.is("pipeline_not_found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What may answer a step.
    async fn choices(&self, step: &str, asks: &Asks) -> Result<Vec<Choice>, Error> {
        let name = &asks.name;
        let variants: Vec<Value> = match asks.kind {
            "application" => {
                let path = ["v1", "applications", name, "variants"];
                answering(&self.service.get(&path).await?)
            }
            "model" => {
                let answer = self
                    .service
                    .get(&["v1", "models", name, "variants"])
                    .await?;
                rows(&answer, "/variants").to_vec()
            }
            _ => vec![self.service.get(&["v1", "variants", name]).await?],
        };
        let choices = variants.iter();
        let choices = choices.flat_map(|variant| of_variant(variant, &self.prices));
        let choices: Vec<Choice> = choices.collect();
        match choices.is_empty() {
            false => Ok(choices),
            true => Err(Error::Usage(format!(
                "no variant for step `{step}` has a profile on a device type that a worker has: {}",
                self.prices.keys().cloned().collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

/// Whom a step asks: one, or several of which each has its share; nobody where it is a transform.
fn asked(step: &Value) -> Vec<Asks> {
    let one = |of: &Value, weight: f64| {
        let kinds = ["application", "model", "variant"];
        kinds.into_iter().find_map(|kind| {
            Some(Asks {
                kind,
                name: of.get(kind)?.as_str()?.to_owned(),
                share: weight,
            })
        })
    };
    let weight = |of: &Value| of["weight"].as_f64().unwrap_or(0.0).max(0.0);
    let split = rows(step, "/split");
    let sum: f64 = split.iter().map(weight).sum();
    match split.is_empty() {
        true => one(step, 1.0).into_iter().collect(),
        false => split
            .iter()
            .filter_map(|of| one(of, weight(of) / sum.max(f64::MIN_POSITIVE)))
            .collect(),
    }
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

/// Prices and slots of device types by name.
fn prices(workers: &Value) -> BTreeMap<String, (f64, f64)> {
    let types = rows(workers, "/workers")
        .iter()
        .filter_map(|worker| worker.get("device_type"));
    let prices = types.map(|of| {
        let price = of.get("price_per_hour_usd").and_then(Value::as_f64);
        let price = price.filter(|price| *price > 0.0).unwrap_or(NO_PRICE);
        let slots = of.get("slots").and_then(Value::as_f64).unwrap_or(1.0);
        (cell(of, "/name"), (price, slots.max(1.0)))
    });
    prices.collect()
}

/// A variant on each device type that it was measured on.
fn of_variant(variant: &Value, prices: &BTreeMap<String, (f64, f64)>) -> Vec<Choice> {
    let is_share = variant.get("accuracy").is_some_and(is_share);
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
    let threads = variant.get("threads").and_then(Value::as_f64);
    let threads = threads.unwrap_or(1.0).max(1.0);
    let profiles = rows(variant, "/profiles").iter();
    let choices = profiles.filter_map(|profile| {
        let device = cell(profile, "/device_type");
        let (price, slots) = prices.get(&device)?;
        let points = rows(profile, "/latency").iter();
        let points =
            points.filter_map(|of| Some((of["batch"].as_u64()? as u32, of["p50_ms"].as_f64()?)));
        let points: Vec<(u32, f64)> = points.filter(|(rows, _)| *rows <= most).collect();
        Some(Choice {
            variant: cell(variant, "/name"),
            accuracy,
            device,
            price: price * (threads / slots).min(1.0),
            latency: table(&points).ok()?,
        })
    });
    choices.collect()
}

#[cfg(test)]
mod tests;
