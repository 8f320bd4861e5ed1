//! `sextant model`: one model.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};
use sextant_types::ModelId;

use super::{
    Client, Error, Output,
    output::{bytes_cell, cell},
};

/// Show and delete models.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// Show a model.
    Show {
        /// Its name.
        name: ModelId,
    },
    /// Delete a model and its variants; queries in flight are answered.
    Delete {
        /// Its name.
        name: ModelId,
    },
}

impl Model {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Show { name } => {
                let path = ["v1", "models", name.as_str()];
                let model: Value = client.get(&path).await?;
                output.either(&model, || shown(&model))
            }
            Self::Delete { name } => {
                let path = ["v1", "models", name.as_str()];
                client.send(client.request(Method::DELETE, &path)).await?;
                let deleted = json!({"deleted": name});
                output.either(&deleted, || format!("model `{name}` is deleted"))
            }
        }
    }
}

/// A model, a member to a line.
fn shown(model: &Value) -> String {
    let mut lines = vec![
        format!("name         {}", cell(model, "/name")),
        format!("application  {}", cell(model, "/application")),
        format!("status       {}", cell(model, "/status")),
        format!("variants     {}", cell(model, "/variants")),
        format!("size         {}", bytes_cell(model, "/size_bytes")),
    ];
    for (name, pointer) in [
        ("scored       ", "/scored_output"),
        ("job          ", "/job"),
    ] {
        if model.pointer(pointer).is_some() {
            lines.push(format!("{name}{}", cell(model, pointer)));
        }
    }
    if model.get("error").is_some() {
        let (code, message) = (cell(model, "/error/code"), cell(model, "/error/message"));
        lines.push(format!("error        [{code}] {message}"));
    }
    lines.join("\n")
}
