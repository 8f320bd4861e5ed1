//! The graph of a plan: from a profile set, or from what the service answers.

use std::collections::BTreeMap;

use serde_json::Value;
use sextant_planning::{
    Choice, Graph, Scale, Step,
    plan::{Plan, Problem, StepPlan},
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

/// What was measured of a pipeline as a whole.
pub struct Whole {
    /// The lower end of its interval, 0 to 1.
    accuracy: f64,
    /// Which variant answered each step.
    variants: BTreeMap<String, String>,
}

impl Whole {
    /// What holds now; `None` where nothing does, or what is measured is no share of right answers.
    fn of(shown: &Value) -> Option<Self> {
        let measured = shown
            .get("measured")
            .filter(|it| it["state"] == "current")?;
        let figures = measured.get("figures").filter(|it| is_share(it))?;
        let variants = figures.get("variants").and_then(Value::as_object);
        let variants = variants
            .into_iter()
            .flatten()
            .filter_map(|(step, variant)| Some((step.clone(), variant.as_str()?.to_owned())));
        Some(Self {
            accuracy: figures["lower"].as_f64()?.clamp(0.0, 1.0),
            variants: variants.collect(),
        })
    }

    /// How many times the accuracy that follows from the steps' the measured one is: for the variants that were measured it
    /// is what was measured, and for others as much better or worse as theirs are. `None` where one of them is unknown.
    pub fn factor(&self, problem: &Problem<'_>) -> Option<f64> {
        let steps = problem.graph.steps().iter().map(|step| {
            let variant = self.variants.get(&step.name)?;
            let at = step.choices.iter().position(|it| it.variant == *variant)?;
            Some(StepPlan::of(at, 1, 1))
        });
        let steps: Option<Vec<StepPlan>> = steps.collect();
        let of_steps = problem.accuracy(&Plan { steps: steps? });
        (of_steps > 0.0).then(|| self.accuracy / of_steps)
    }
}

/// Whether an accuracy is a share of right answers: an error that is measured is none.
fn is_share(of: &Value) -> bool {
    of["metric"] != "mae"
}

/// A registered pipeline: the steps that ask something, with the variants that may answer them and what was measured of
/// these and of the whole. Transforms run where queries come in, and need no replicas.
pub async fn graph(
    client: &Client,
    pipeline: &str,
    scales: &[String],
) -> Result<(Graph, Option<Whole>), Error> {
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
    Ok((scaled(steps, scales)?, Whole::of(&shown)))
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

/// What may answer a step; `None` for a transform.
async fn choices(
    client: &Client,
    step: &Value,
    prices: &BTreeMap<String, (f64, f64)>,
) -> Result<Option<Vec<Choice>>, Error> {
    let asks = |key: &str| step.get(key).and_then(Value::as_str).map(str::to_owned);
    is_planned(client, step).await?;
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

/// Refuses a step that asks one of several, and one that asks a pipeline: their ways differ from query to query.
async fn is_planned(client: &Client, step: &Value) -> Result<(), Error> {
    let name = cell(step, "/name");
    if step.get("split").is_some() {
        return Err(Error::Usage(format!(
            "step `{name}` is split over several: plan it with each of these as `application`, `model` or `variant`"
        )));
    }
    let Some(application) = step.get("application").and_then(Value::as_str) else {
        return Ok(());
    };
    match client.get::<Value>(&["v1", "pipelines", application]).await {
        Ok(_) => Err(Error::Usage(format!(
            "step `{name}` asks the pipeline `{application}`: plan that by itself, with its share of the target"
        ))),
        Err(Error::Problem(problem)) if problem.is("pipeline_not_found") => Ok(()),
        Err(error) => Err(error),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sextant_planning::{Routes, estimate::Load};

    use super::*;

    /// A fast and a slow variant for each query, of which the slow one is the better.
    fn graph() -> Graph {
        let choice = |variant: &str, accuracy: f64| Choice {
            variant: variant.to_owned(),
            accuracy,
            device: "cpu".to_owned(),
            price: 1.0,
            latency: table(&[(1, 1.0)]).expect("a table"),
        };
        let step = |name: &str, after: &[usize]| Step {
            name: name.to_owned(),
            after: after.to_vec(),
            scale: Scale {
                probability: 1.0,
                rows: 1.0,
            },
            choices: vec![choice("small", 0.8), choice("large", 0.9)],
        };
        Graph::new(vec![step("find", &[]), step("read", &[0])]).expect("a graph")
    }

    fn measured(state: &str, lower: f64, read: &str) -> Value {
        json!({"measured": {"state": state, "figures": {"metric": "top1", "lower": lower,
            "variants": {"find": "small", "read": read}}}})
    }

    fn factor(shown: &Value) -> Option<f64> {
        let graph = graph();
        let mut routes = Routes::new(2);
        routes.push(&[1, 1]);
        let problem = Problem {
            graph: &graph,
            load: Load {
                arrivals: &[0],
                routes: &routes,
            },
            target: 1_000_000_000,
            min_accuracy: 0.0,
            miss_share: 0.01,
        };
        Whole::of(shown)?.factor(&problem)
    }

    #[test]
    fn the_measured_accuracy_is_that_of_the_variants_that_answered() {
        // By their steps alone 0.8 * 0.9; steps whose errors go together do better.
        let factor = factor(&measured("current", 0.78, "large")).expect("a factor");
        assert!((factor * 0.8 * 0.9 - 0.78).abs() < 1e-9, "{factor}");
    }

    #[test]
    fn what_does_not_hold_or_names_another_variant_says_nothing() {
        assert_eq!(factor(&measured("stale", 0.78, "large")), None);
        assert_eq!(factor(&measured("current", 0.78, "gone")), None);
        assert_eq!(factor(&json!({})), None);
    }
}
