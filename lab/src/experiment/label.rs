//! The runs to which figures belong.

use sextant_baselines::Policy;
use sextant_simulator::Record;

/// The runs to which a figure belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label<'a> {
    pub(super) experiment: &'a str,
    pub(super) cell: Option<&'a str>,
    pub(super) policy: Option<Policy>,
    pub(super) seed: Option<u64>,
}

// === impl Label ===

impl Label<'_> {
    /// A figure. Its unit is the ending of the metric's name.
    pub(super) fn record(&self, metric: impl Into<String>, value: f64) -> Record {
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
