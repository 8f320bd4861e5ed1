//! `sextant health`: for scripts and health checks of containers.

use serde_json::Value;

use super::{Client, Error, Output};

/// Asks whether the server is ready.
pub async fn run(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["health", "ready"]).await?;
    if output.json {
        return output.value(&answer);
    }
    output.text("ready")
}
