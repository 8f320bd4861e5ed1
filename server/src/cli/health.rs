//! `sextant health`: for scripts and health checks of containers.

use serde_json::Value;

use super::{Client, Error, Output};

/// Asks whether the server is ready.
pub async fn run(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["health", "ready"]).await?;
    if output.json {
        return output.value(&answer);
    }
    let warnings = answer.get("warnings").and_then(Value::as_array);
    let warnings = warnings.into_iter().flatten().filter_map(Value::as_str);
    let lines: Vec<&str> = std::iter::once("ready").chain(warnings).collect();
    output.text(&lines.join("\n"))
}
