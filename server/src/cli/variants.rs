//! `sextant variants`: the variants on the frontier, as a table.

use clap::Args;
use serde_json::{Value, json};
use sextant_types::{ApplicationId, Metric, ModelId};

use super::{
    Client, Error, Output,
    output::{Table, bytes_cell, cell, rows, short},
};

/// List variants with their accuracy, latency and cost.
#[derive(Debug, Args)]
pub struct Variants {
    /// Only variants of this application; of all applications if neither is given.
    #[arg(long, short, value_name = "NAME", conflicts_with = "model")]
    application: Option<ApplicationId>,
    /// Only variants of this model.
    #[arg(long, value_name = "NAME")]
    model: Option<ModelId>,
    /// Also show dominated variants: those that another one beats in everything.
    #[arg(long)]
    all: bool,
}

impl Variants {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let answer = self.fetch(client).await?;
        let (frontier, all) = frontier(&answer);
        let shown = match self.all {
            true => rows(&answer, "/variants").iter().collect(),
            false => frontier,
        };
        if output.json {
            return output.value(&json!({"variants": shown}));
        }
        let table = table(&shown);
        if table.is_empty() {
            return output.text(&nothing(all));
        }
        let dominated = all - shown.len();
        let note = match dominated {
            0 => String::new(),
            count => format!("\n\n{count} dominated variants are not shown; `--all` shows them"),
        };
        output.text(&format!("{}{note}", table.render()))
    }

    async fn fetch(&self, client: &Client) -> Result<Value, Error> {
        if let Some(model) = &self.model {
            return client
                .get(&["v1", "models", model.as_str(), "variants"])
                .await;
        }
        if let Some(application) = &self.application {
            return of_application(client, application.as_str()).await;
        }
        let applications: Value = client.get(&["v1", "applications"]).await?;
        let mut all = Vec::new();
        for application in rows(&applications, "/applications") {
            let answer = of_application(client, &cell(application, "/name")).await?;
            all.extend_from_slice(rows(&answer, "/variants"));
        }
        Ok(json!({"variants": all}))
    }
}

/// Why a table is empty.
pub fn nothing(all: usize) -> String {
    match all {
        0 => "no variants; `sextant register` makes some".to_owned(),
        all => format!(
            "all {all} variants are dominated: variants of other models of the application are at least as good \
             in everything; `sextant variants --all` shows them"
        ),
    }
}

/// The variants of an answer that queries to their application get: those of current versions, and those that do not
/// tell a stage.
pub fn answering(answer: &Value) -> Vec<Value> {
    let is_current = |variant: &&Value| {
        let stage = variant.get("stage").and_then(Value::as_str);
        stage.is_none_or(|stage| stage == "current")
    };
    let all = rows(answer, "/variants").iter();
    all.filter(is_current).cloned().collect()
}

async fn of_application(client: &Client, name: &str) -> Result<Value, Error> {
    client.get(&["v1", "applications", name, "variants"]).await
}

/// The variants of an answer that no other dominates, and how many there are in all.
pub fn frontier(answer: &Value) -> (Vec<&Value>, usize) {
    let all = rows(answer, "/variants");
    let frontier = all
        .iter()
        .filter(|variant| variant.get("dominated_by").is_none_or(Value::is_null))
        .collect();
    (frontier, all.len())
}

/// Variants as a table, fastest first.
pub fn table(variants: &[&Value]) -> Table {
    let latency = |variant: &Value| {
        let p50 = variant.pointer("/latency/0/p50_ms").and_then(Value::as_f64);
        p50.unwrap_or(f64::INFINITY)
    };
    let mut variants = variants.to_vec();
    variants.sort_by(|a, b| latency(a).total_cmp(&latency(b)));
    let mut table = Table::new(&[
        "variant",
        "accuracy",
        "#p50 ms (b1)",
        "#rows/s (best)",
        "#load ms",
        "#memory",
        "#$/1k",
        "state",
    ]);
    for variant in variants {
        table.row(vec![
            cell(variant, "/name"),
            accuracy(variant),
            cell(variant, "/latency/0/p50_ms"),
            cell(variant, "/saturation_rps"),
            cell(variant, "/load_ms"),
            bytes_cell(variant, "/peak_memory_bytes"),
            cell(variant, "/cost_per_1k_usd"),
            states(variant),
        ]);
    }
    table
}

/// States of the variant's instances, each once; a variant without instances is inactive.
fn states(variant: &Value) -> String {
    let mut states: Vec<String> = rows(variant, "/instances")
        .iter()
        .map(|instance| cell(instance, "/state"))
        .collect();
    states.sort_unstable();
    states.dedup();
    match states.is_empty() {
        true => "inactive".to_owned(),
        false => states.join(","),
    }
}

/// Whether less of a metric is better.
pub fn is_error(metric: &str) -> bool {
    Metric::parse(metric).is_some_and(|metric| metric.quality(1.0) < 0.0)
}

/// `0.967 [0.936, 0.983]`; `agrees 1.00 [0.959, 1.00]` where there were no labels; `mae 20.5 [18.2, 22.9]` of an error.
fn accuracy(variant: &Value) -> String {
    let number = |name: &str| {
        let value = variant.pointer(&format!("/accuracy/{name}"));
        value
            .and_then(Value::as_f64)
            .map_or_else(|| "-".to_owned(), short)
    };
    let text = |name: &str| {
        variant
            .pointer(&format!("/accuracy/{name}"))
            .and_then(Value::as_str)
    };
    let of = match (text("kind"), text("metric")) {
        (Some("agreement"), _) => "agrees ".to_owned(),
        (Some("unknown"), _) => "unknown: ".to_owned(),
        (_, Some(metric)) if is_error(metric) => format!("{metric} "),
        _ => String::new(),
    };
    format!(
        "{of}{} [{}, {}]",
        number("value"),
        number("lower"),
        number("upper")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_only_tried_do_not_answer() {
        let variant = |name: &str, stage: &str| json!({"name": name, "stage": stage});
        let answer = json!({"variants": [
            variant("a", "current"), variant("b", "canary"), variant("c", "candidate"),
            variant("d", "shadow"), variant("e", "retired"), json!({"name": "f"}),
        ]});
        let answering = answering(&answer);
        let names: Vec<&str> = answering
            .iter()
            .filter_map(|it| it.get("name")?.as_str())
            .collect();
        assert_eq!(names, ["a", "f"]);
    }
}
