//! `sextant query`: one query, its answer, and why it was answered that way.

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    Client, Error, Output,
    input::{Input, InputSpec},
    output::{Table, candidates, cell, rows},
    targets::{Addressee, Targets},
};

/// Values of an output that are printed before the rest is left out.
const MOST_VALUES: usize = 64;

/// Ask an application, a model or a variant.
#[derive(Debug, Args)]
pub struct Query {
    #[command(flatten)]
    addressee: Addressee,
    #[command(flatten)]
    targets: Targets,
    /// `name=@file` (.npy or JSON), `name=-` (standard input) or `name=[1, 2, ..]`; once for
    /// each input of the model.
    #[arg(long, short, required = true, value_name = "NAME=VALUE")]
    input: Vec<Input>,
    /// Show so many of the most likely classes of each row.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    classification: Option<u32>,
    /// Show which variants were considered and why this one was chosen.
    #[arg(long)]
    explain: bool,
    /// If no variant meets the targets, answer with the closest variant instead of refusing.
    #[arg(long)]
    best_effort: bool,
}

impl Query {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let known = self.signature(client).await;
        let inputs: Result<Vec<Value>, Error> = self
            .input
            .iter()
            .map(|input| input.tensor(&known))
            .collect();
        let mut request = Map::new();
        self.addressee.fill(&mut request);
        self.targets.fill(&mut request);
        request.insert("inputs".to_owned(), Value::Array(inputs?));
        if let Some(k) = self.classification {
            request.insert("classification".to_owned(), json!(k));
        }
        if self.explain {
            request.insert("explain".to_owned(), json!(true));
        }
        if self.best_effort {
            request.insert("on_infeasible".to_owned(), json!("best_effort"));
        }
        let answer: Value = client
            .post(&["v1", "queries"], &Value::Object(request))
            .await?;
        output.either(&answer, || text(&answer))
    }

    /// Inputs as the server describes them; without a description the query is sent as it is and
    /// the server says what is wrong with it.
    async fn signature(&self, client: &Client) -> Vec<InputSpec> {
        let Some(application) = self.application(client).await else {
            return Vec::new();
        };
        let path = ["v1", "applications", &application];
        let document: Value = client.get(&path).await.unwrap_or_default();
        rows(&document, "/signature/inputs")
            .iter()
            .filter_map(|input| serde_json::from_value(input.clone()).ok())
            .collect()
    }

    /// The application that the addressee belongs to: all its models have one signature.
    async fn application(&self, client: &Client) -> Option<String> {
        let (collection, name) = match &self.addressee {
            Addressee {
                application: Some(name),
                ..
            } => return Some(name.to_string()),
            Addressee {
                model: Some(name), ..
            } => ("models", name.as_str()),
            Addressee {
                variant: Some(name),
                ..
            } => ("variants", name.as_str()),
            _ => return None,
        };
        let document: Value = client.get(&["v1", collection, name]).await.ok()?;
        document.get("application")?.as_str().map(str::to_owned)
    }
}

/// An answer for people.
pub(super) fn text(answer: &Value) -> String {
    let met = match answer.get("targets_met").and_then(Value::as_bool) {
        Some(false) => " (targets not met)",
        _ => "",
    };
    let mut lines = vec![format!("variant   {}{met}", cell(answer, "/variant"))];
    lines.push(format!("time      {}", timings(answer)));
    lines.extend(rows(answer, "/outputs").iter().map(output_line));
    let rows_of_classes = rows(answer, "/classification").iter();
    lines.extend(rows_of_classes.map(|row| format!("classes   {}", classes(row))));
    if let Some(explanation) = answer.get("explanation").filter(|value| !value.is_null()) {
        lines.push(String::new());
        lines.push(cell(explanation, "/reason"));
        match explanation.get("steps") {
            Some(taken) => lines.push(steps(taken).render()),
            None => lines.push(candidates(explanation.get("candidates")).render()),
        }
    }
    lines.join("\n")
}

/// What became of each step of a pipeline.
fn steps(taken: &Value) -> Table {
    let mut table = Table::new(&[
        "step", "outcome", "variant", "queue", "run", "in all", "why",
    ]);
    for step in rows(taken, "") {
        let time = |pointer| match step.pointer(pointer).and_then(Value::as_f64) {
            Some(us) => format!("{:.3} ms", us / 1e3),
            None => String::new(),
        };
        table.row(vec![
            cell(step, "/name"),
            cell(step, "/outcome"),
            cell(step, "/variant"),
            time("/queue_us"),
            time("/compute_us"),
            time("/total_us"),
            cell(step, "/why"),
        ]);
    }
    table
}

/// `cat 0.91, dog 0.07`: names, or positions where classes have none.
fn classes(row: &Value) -> String {
    let one = |class: &Value| {
        let name = match class.get("name") {
            Some(_) => cell(class, "/name"),
            None => cell(class, "/class"),
        };
        format!("{name} {}", cell(class, "/score"))
    };
    rows(row, "").iter().map(one).collect::<Vec<_>>().join(", ")
}

fn timings(answer: &Value) -> String {
    let rows = cell(answer, "/timings/batch_rows");
    format!(
        "total {} us, queue {} us, compute {} us, {rows} {} in the batch",
        cell(answer, "/timings/total_us"),
        cell(answer, "/timings/queue_us"),
        cell(answer, "/timings/compute_us"),
        if rows == "1" { "row" } else { "rows" },
    )
}

fn output_line(tensor: &Value) -> String {
    let data = rows(tensor, "/data");
    let mut values: Vec<String> = data
        .iter()
        .take(MOST_VALUES)
        .map(|value| cell(value, ""))
        .collect();
    if data.len() > MOST_VALUES {
        values.push(format!(".. {} more", data.len() - MOST_VALUES));
    }
    format!(
        "{:9} {} {} [{}]",
        cell(tensor, "/name"),
        cell(tensor, "/datatype"),
        cell(tensor, "/shape"),
        values.join(", ")
    )
}
