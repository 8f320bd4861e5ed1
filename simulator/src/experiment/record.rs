//! Results, one figure each.

use serde::{Deserialize, Serialize};
use sextant_schedule::Policy;

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
    /// What is measured, lower case, the unit last, e.g. `goodput_rps`.
    pub metric: String,
    /// How much.
    pub value: f64,
    /// Its unit: `rps`, `ms`, `share`, `ratio`, `percent`, `usd`, `rows`, `count`.
    pub unit: String,
    /// The seed of the run; absent for a mean over seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Which runs a figure is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) cell: Option<&'a str>,
    pub(crate) policy: Option<Policy>,
    pub(crate) seed: Option<u64>,
}

// === impl Label ===

impl Label<'_> {
    /// A figure with the unit that the metric's name ends with.
    pub(crate) fn record(&self, metric: impl Into<String>, value: f64) -> Record {
        let metric = metric.into();
        let unit = match metric.rsplit('_').next() {
            Some("rps") => "rps",
            Some("ms") => "ms",
            Some("rows") => "rows",
            Some("count" | "starts") => "count",
            Some("s") => "s",
            Some("ratio") => "ratio",
            Some("percent") => "percent",
            Some("usd") => "usd",
            _ => "share",
        };
        Record {
            experiment: self.experiment.to_owned(),
            cell: self.cell.map(str::to_owned),
            policy: self.policy.map(|policy| policy.name().to_owned()),
            unit: unit.to_owned(),
            metric,
            value,
            seed: self.seed,
        }
    }
}

// === impl Record ===

impl Record {
    /// The record as one line of JSON, without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record has only text and numbers")
    }
}
