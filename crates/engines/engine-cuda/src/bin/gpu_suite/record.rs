//! Prints the lines of the result.

use std::sync::OnceLock;

use serde_json::{Value, json};

static PART: OnceLock<&'static str> = OnceLock::new();

/// Names the part to which the following lines belong. Only the first name of a process counts.
pub fn begin(part: &'static str) {
    let _named = PART.set(part);
}

/// Prints a figure.
pub fn record(cell: &str, metric: &str, value: f64, unit: &str) {
    // JSON has no infinity, so a value that could not be computed is null.
    line(cell, metric, &json!(value), unit);
}

/// Prints a text.
pub fn note(cell: &str, metric: &str, text: &str) {
    line(cell, metric, &json!(text), "text");
}

fn line(cell: &str, metric: &str, value: &Value, unit: &str) {
    let line = json!({
        "experiment": "gpu",
        "part": PART.get().copied().unwrap_or("suite"),
        "cell": cell,
        "metric": metric,
        "value": value,
        "unit": unit,
    });
    println!("{line}");
}
