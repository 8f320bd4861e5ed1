//! `sextant models`, `applications`, `workers`: lists them.

use serde_json::Value;

use super::{
    Client, Error, Output,
    output::{Table, bytes_cell, cell, rows},
    worker,
};

/// Lists models.
pub async fn models(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["v1", "models"]).await?;
    output.either(&answer, || {
        let mut table = Table::new(&[
            "model",
            "#version",
            "application",
            "status",
            "#variants",
            "#size",
            "error",
        ]);
        for model in rows(&answer, "/models") {
            table.row(vec![
                cell(model, "/name"),
                cell(model, "/version"),
                cell(model, "/application"),
                cell(model, "/status"),
                cell(model, "/variants"),
                bytes_cell(model, "/size_bytes"),
                cell(model, "/error/message"),
            ]);
        }
        or(&table, "no models; `sextant register` adds one")
    })
}

/// Lists applications.
pub async fn applications(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["v1", "applications"]).await?;
    output.either(&answer, || {
        let mut table = Table::new(&["application", "metric", "inputs", "outputs", "description"]);
        for application in rows(&answer, "/applications") {
            table.row(vec![
                cell(application, "/name"),
                cell(application, "/metric"),
                tensors(application, "/signature/inputs"),
                tensors(application, "/signature/outputs"),
                cell(application, "/description"),
            ]);
        }
        or(&table, "no applications; `sextant register` adds one")
    })
}

/// Lists workers.
pub async fn workers(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["v1", "workers"]).await?;
    output.either(&answer, || {
        let headings = [
            "worker",
            "state",
            "#cores",
            "#memory",
            "#used",
            "#utilization",
        ];
        let mut table = Table::new(&headings);
        for worker in rows(&answer, "/workers") {
            table.row(vec![
                cell(worker, "/name"),
                worker::state(worker).to_owned(),
                cell(worker, "/cores"),
                bytes_cell(worker, "/memory_bytes"),
                bytes_cell(worker, "/memory_used_bytes"),
                cell(worker, "/utilization"),
            ]);
        }
        or(
            &table,
            "no workers; a process with the role `worker` is one",
        )
    })
}

/// The table, or a sentence where it has no rows.
pub fn or(table: &Table, otherwise: &str) -> String {
    match table.is_empty() {
        true => otherwise.to_owned(),
        false => table.render(),
    }
}

/// `pixels FP32[-1,64]`.
fn tensors(row: &Value, pointer: &str) -> String {
    let tensors: Vec<String> = rows(row, pointer)
        .iter()
        .map(|tensor| {
            let (name, data_type) = (cell(tensor, "/name"), cell(tensor, "/datatype"));
            format!("{name} {data_type}{}", cell(tensor, "/shape"))
        })
        .collect();
    match tensors.is_empty() {
        true => "-".to_owned(),
        false => tensors.join(", "),
    }
}
