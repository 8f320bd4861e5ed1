//! One line of the result.

use std::sync::OnceLock;

use serde_json::{Value, json};

static PART: OnceLock<&'static str> = OnceLock::new();

/// Names the part that the lines from now on belong to; the first name of a process stays.
pub fn begin(part: &'static str) {
    let _named = PART.set(part);
}

/// Prints a figure.
pub fn record(cell: &str, metric: &str, value: f64, unit: &str) {
    // JSON has no infinity: what could not be computed is null.
    line(cell, metric, &json!(value), unit);
}

/// Prints what is no number.
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
