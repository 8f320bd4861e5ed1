//! One line of the result.

use serde_json::json;

/// Prints a figure.
pub fn record(cell: &str, metric: &str, value: f64, unit: &str) {
    // JSON has no infinity: what could not be computed is null.
    let line = json!({
        "experiment": "gpu",
        "cell": cell,
        "metric": metric,
        "value": value,
        "unit": unit,
    });
    println!("{line}");
}
