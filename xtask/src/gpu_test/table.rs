//! What the suite found, for people.

use std::collections::BTreeMap;

use serde_json::Value;

/// One JSON object per line.
pub fn lines(records: &[Value]) {
    for record in records {
        println!("{record}");
    }
}

/// Agreement by operator and precision, then all else, then the parts that failed.
pub fn print(records: &[Value]) {
    let of = |record: &Value| record["metric"].as_str().map(str::to_owned);
    let is_agreement = |metric: &str| matches!(metric, "max_error" | "tolerance" | "passed");
    let (agreement, rest): (Vec<&Value>, Vec<&Value>) = records
        .iter()
        .partition(|record| of(record).is_some_and(|metric| is_agreement(&metric)));
    let (ends, figures): (Vec<&Value>, Vec<&Value>) = rest
        .into_iter()
        .partition(|record| record["metric"] == "exit_status");
    print_agreement(&agreement);
    for figure in figures {
        let text = |key: &str| figure[key].as_str().unwrap_or("?");
        let (cell, metric, unit) = (text("cell"), text("metric"), text("unit"));
        match figure["value"].as_str() {
            Some(note) => println!("{cell:<60} {metric:<30} {note}"),
            None => println!("{cell:<60} {metric:<30} {:>16.3} {unit}", number(figure)),
        }
    }
    for end in ends.into_iter().filter(|end| end["value"] != 0) {
        let text = |key: &str| end[key].as_str().unwrap_or("?");
        let (part, said) = (text("part"), text("stderr"));
        println!("{part}: exit status {}: {said}", end["value"]);
    }
}

fn print_agreement(records: &[&Value]) {
    let mut cells: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
    for record in records {
        let text = |key: &str| record[key].as_str().unwrap_or("?");
        let cell = cells.entry(text("cell")).or_default();
        cell.insert(text("metric"), number(record));
    }
    if !cells.is_empty() {
        println!(
            "{:<40} {:>12} {:>12}  agrees",
            "operator and precision", "max error", "tolerance"
        );
    }
    for (cell, values) in &cells {
        let value = |metric| values.get(metric).copied().unwrap_or(f64::NAN);
        let agrees = if value("passed") == 1.0 { "yes" } else { "NO" };
        println!(
            "{cell:<40} {:>12.2e} {:>12.2e}  {agrees}",
            value("max_error"),
            value("tolerance")
        );
    }
}

/// What JSON cannot say is infinite.
fn number(record: &Value) -> f64 {
    record["value"].as_f64().unwrap_or(f64::INFINITY)
}
