//! Results, as single figures.

use serde::{Deserialize, Serialize};

/// A figure of an experiment; as JSON one line of its report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment's name.
    pub experiment: String,
    /// The setting within it; absent for a figure over all cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The policy by name; absent for a figure that does not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What is measured, in lower case with the unit last, e.g. `goodput_rps`.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// Its unit: `rps`, `ms`, `share`, `ratio`, `percent`, `usd`, `rows`, `count`.
    pub unit: String,
    /// The seed of the run; absent for a mean over seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Means over seeds of each (cell, policy, metric), in the order of their first records.
pub fn means(records: &[Record]) -> Vec<Record> {
    let mut sums: Vec<(Record, f64)> = Vec::new();
    for record in records.iter().filter(|record| record.seed.is_some()) {
        let same = |sum: &&mut (Record, f64)| {
            sum.0.cell == record.cell
                && sum.0.policy == record.policy
                && sum.0.metric == record.metric
        };
        match sums.iter_mut().find(same) {
            Some((sum, count)) => {
                sum.value += record.value;
                *count += 1.0;
            }
            None => {
                let mut sum = record.clone();
                sum.seed = None;
                sums.push((sum, 1.0));
            }
        }
    }
    let mean = |(mut sum, count): (Record, f64)| {
        sum.value /= count;
        sum
    };
    sums.into_iter().map(mean).collect()
}

// === impl Record ===

impl Record {
    /// The record as one line of JSON, without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record has only text and numbers")
    }
}
