//! Figures of experiments with devices of several types: a line for each load.

use sextant_simulator::Record;
use sextant_types::number::short;

use super::timeline::{below, course};

/// Figures that are shown; the rest is in the JSON.
const SHOWN: [&str; 7] = [
    "offered_rps",
    "satisfaction_share",
    "batch_mean_rows",
    "p50_ms",
    "p99_ms",
    "dear_share_percent",
    "cost_per_1k_usd",
];

/// For each cell and policy what the cheap devices carry alone, and the figures at multiples of it.
pub fn tables(means: &[&Record]) -> String {
    let mut text = String::new();
    for alone in means.iter().filter(|of| of.metric == "cheap_goodput_rps") {
        let (Some(cell), Some(policy)) = (alone.cell.as_deref(), alone.policy.as_deref()) else {
            continue;
        };
        let shown = below(cell, means, |metric| SHOWN.contains(&metric));
        let rps = short(alone.value);
        text.push_str(&format!(
            "\n\n{cell}: cheap_goodput_rps {rps}\n\n{}",
            course(policy, &shown)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tables::record;

    #[test]
    fn each_load_has_a_line_below_what_the_cheap_devices_carry() {
        let records = [
            record("eager", "a", "cheap_goodput_rps", 50.0),
            record("eager", "a/0.2x", "satisfaction_share", 1.0),
            record("eager", "a/0.2x", "busy_share", 0.1),
            record("eager", "a/0.2x", "dear_share_percent", 0.5),
            record("eager", "a/3x", "satisfaction_share", 0.992),
            record("eager", "a/3x", "dear_share_percent", 61.25),
        ];
        let means: Vec<&Record> = records.iter().collect();
        let expected = "

a: cheap_goodput_rps 50.0

| eager | satisfaction_share | dear_share_percent |
| ----- | -----------------: | -----------------: |
| 0.2x  |               1.00 |              0.500 |
| 3x    |              0.992 |               61.2 |";
        assert_eq!(tables(&means), expected);
    }
}
