//! What the suite found, for people.

use std::collections::BTreeMap;

use serde_json::Value;

/// One JSON object per line.
pub fn lines(records: &[Value]) {
    for record in records {
        println!("{record}");
    }
}

/// Agreement by operator and precision, then all else.
pub fn print(records: &[Value]) {
    let mut agreement: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
    let mut figures = Vec::new();
    for record in records {
        let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or("?");
        // What JSON cannot say is infinite.
        let value = record.get("value").and_then(Value::as_f64);
        let value = value.unwrap_or(f64::INFINITY);
        match text("metric") {
            metric @ ("max_error" | "tolerance" | "passed") => {
                let cell = agreement.entry(text("cell")).or_default();
                cell.insert(metric, value);
            }
            metric => figures.push((text("cell"), metric, value, text("unit"))),
        }
    }
    if !agreement.is_empty() {
        println!(
            "{:<40} {:>12} {:>12}  agrees",
            "operator and precision", "max error", "tolerance"
        );
    }
    for (cell, values) in &agreement {
        let value = |metric| values.get(metric).copied().unwrap_or(f64::NAN);
        let agrees = if value("passed") == 1.0 { "yes" } else { "NO" };
        println!(
            "{cell:<40} {:>12.2e} {:>12.2e}  {agrees}",
            value("max_error"),
            value("tolerance")
        );
    }
    for (cell, metric, value, unit) in figures {
        println!("{cell:<60} {metric:<26} {value:>16.3} {unit}");
    }
}
