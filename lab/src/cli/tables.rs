//! Figures of an experiment as Markdown tables that are aligned for a terminal as well.

use std::collections::BTreeMap;

use sextant_lab::experiment::{Experiment, Kind};
use sextant_simulator::{
    Record,
    report::{Heading, Sheet},
};
use sextant_types::number::short;

use super::{prices, timeline};

/// Figures that are shown, and which figures of the cell stand beside them.
const SHOWN: [(&str, &[&str]); 12] = [
    ("goodput_rps", &["fluid_bound_rps", "clairvoyant_bound_rps"]),
    ("goodput_over_clairvoyant_share", &[]),
    ("goodput_over_best_other_share", &[]),
    ("fleet_goodput_rps", &[]),
    ("fleet_over_pool_ratio", &[]),
    ("full_satisfaction_target_ms", &[]),
    ("satisfaction_share", &[]),
    ("good_rps", &[]),
    ("good_over_peak_share", &[]),
    ("idle_error_share", &[]),
    ("p99_ms", &[]),
    ("deviation_count", &["closed_form_count"]),
];

/// Figures of a cell that stand in a table of their own.
const ANALYTIC: [&str; 4] = [
    "no_coordination_rows",
    "no_coordination_rps",
    "staggered_rows",
    "staggered_rps",
];

/// More rows than this are summed up.
const MOST_ROWS: usize = 200;

/// Everything of an experiment that fits on a page; the rest is in the JSON.
pub fn of_experiment(experiment: &Experiment, records: &[Record]) -> String {
    let means: Vec<&Record> = records
        .iter()
        .filter(|record| record.seed.is_none())
        .collect();
    let mut text = Heading {
        name: &experiment.name,
        title: &experiment.title,
        source: &experiment.source,
    }
    .to_string();
    let own = match experiment.kind {
        Kind::Timeline => Some(timeline::tables(&means)),
        Kind::Prices => Some(prices::tables(&means)),
        _ => None,
    };
    if let Some(own) = own {
        text.push_str(&own);
        return text;
    }
    let has_goodput = means.iter().any(|record| record.metric == "goodput_rps");
    for (metric, beside) in SHOWN {
        let below_peak =
            has_goodput && ["good_rps", "satisfaction_share", "p99_ms"].contains(&metric);
        let table = Figures::of(&means, metric, beside, below_peak);
        if !table.cells.is_empty() {
            text.push_str(&format!("\n\n{}\n\n{}", heading(metric), table.render()));
        }
    }
    for part in [analytic(&means), overall(&means)].into_iter().flatten() {
        text.push_str("\n\n");
        text.push_str(&part);
    }
    text
}

fn heading(metric: &str) -> &str {
    match metric {
        "goodput_rps" => "goodput_rps (over the fluid bound)",
        other => other,
    }
}

/// One metric by cell and policy.
struct Figures<'a> {
    cells: Vec<&'a str>,
    policies: Vec<&'a str>,
    values: BTreeMap<(&'a str, &'a str), f64>,
    /// Figures of the cells; values are compared with the first.
    beside: Vec<(&'a str, BTreeMap<&'a str, f64>)>,
}

// === impl Figures ===

impl<'a> Figures<'a> {
    /// `below_peak`: only of cells below a cell, such as runs at multiples of a peak.
    fn of(means: &[&'a Record], metric: &str, beside: &[&'a str], below_peak: bool) -> Self {
        let mut figures = Self {
            cells: Vec::new(),
            policies: Vec::new(),
            values: BTreeMap::new(),
            beside: beside.iter().map(|name| (*name, BTreeMap::new())).collect(),
        };
        for record in means {
            let Some(cell) = record.cell.as_deref() else {
                continue;
            };
            for (name, known) in &mut figures.beside {
                if record.metric == *name {
                    known.insert(cell, record.value);
                }
            }
            if record.metric != metric || (below_peak && !cell.contains('/')) {
                continue;
            }
            let policy = record.policy.as_deref().unwrap_or("any policy");
            if !figures.policies.contains(&policy) {
                figures.policies.push(policy);
            }
            // A cell's records stand together.
            if figures.cells.last() != Some(&cell) && !figures.cells.contains(&cell) {
                figures.cells.push(cell);
            }
            figures.values.insert((cell, policy), record.value);
        }
        figures
    }

    fn render(&self) -> String {
        if self.cells.len() > MOST_ROWS {
            return self.summed_up();
        }
        let beside = self.beside.iter().filter(|(_, known)| !known.is_empty());
        let beside: Vec<&(&str, BTreeMap<&str, f64>)> = beside.collect();
        let mut heads = vec!["cell"];
        heads.extend(&self.policies);
        heads.extend(beside.iter().map(|(name, _)| *name));
        let mut sheet = Sheet::new(&heads);
        for cell in &self.cells {
            let figure = |policy: &&str| match self.values.get(&(*cell, *policy)) {
                None => "-".to_owned(),
                Some(value) => with_share(*value, self.fluid_bound(cell)),
            };
            let of_cell = |(_, known): &&(&str, BTreeMap<&str, f64>)| {
                let value = known.get(cell);
                value.map_or_else(|| "-".to_owned(), |value| short(*value))
            };
            let mut row = vec![(*cell).to_owned()];
            row.extend(self.policies.iter().map(figure));
            row.extend(beside.iter().map(of_cell));
            sheet.row(row);
        }
        sheet.render()
    }

    fn fluid_bound(&self, cell: &str) -> Option<f64> {
        let (name, known) = self.beside.first()?;
        let bound = known.get(cell).copied();
        bound.filter(|_| *name == "fluid_bound_rps")
    }

    /// Quantiles over the cells, of values over the bound where there is one.
    fn summed_up(&self) -> String {
        let mut heads = vec!["over all cells"];
        heads.extend(&self.policies);
        let mut sheet = Sheet::new(&heads);
        let sorted = |policy: &&str| -> Vec<f64> {
            let cells = self.cells.iter();
            let mut values: Vec<f64> = cells
                .filter_map(|cell| {
                    let value = self.values.get(&(*cell, *policy))?;
                    let beside = self.beside.first().and_then(|(_, known)| known.get(cell));
                    Some(value / beside.unwrap_or(&1.0))
                })
                .collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let columns: Vec<Vec<f64>> = self.policies.iter().map(sorted).collect();
        for (name, share) in [
            ("least", 0.0),
            ("10 %", 0.1),
            ("median", 0.5),
            ("most", 1.0),
        ] {
            let quantile = |column: &Vec<f64>| {
                let last = column.len().saturating_sub(1) as f64;
                let value = column.get((share * last).round() as usize);
                value.map_or_else(|| "-".to_owned(), |value| short(*value))
            };
            let mut row = vec![format!("{name} of {}", self.cells.len())];
            row.extend(columns.iter().map(quantile));
            sheet.row(row);
        }
        sheet.render()
    }
}

fn with_share(value: f64, bound: Option<f64>) -> String {
    match bound {
        Some(bound) => format!("{} ({:.3})", short(value), value / bound),
        None => short(value),
    }
}

/// What analysis says of each cell.
fn analytic(means: &[&Record]) -> Option<String> {
    let mut rows: Vec<(&str, [f64; ANALYTIC.len()])> = Vec::new();
    for record in means {
        let at = ANALYTIC.iter().position(|name| *name == record.metric);
        let (Some(at), Some(cell)) = (at, record.cell.as_deref()) else {
            continue;
        };
        if rows.last().is_none_or(|(name, _)| *name != cell) {
            rows.push((cell, [f64::NAN; ANALYTIC.len()]));
        }
        if let Some((_, values)) = rows.last_mut() {
            values[at] = record.value;
        }
    }
    let mut heads = vec!["analysis"];
    heads.extend(ANALYTIC);
    let mut sheet = Sheet::new(&heads);
    for (cell, values) in &rows {
        let mut row = vec![(*cell).to_owned()];
        row.extend(values.iter().map(|value| short(*value)));
        sheet.row(row);
    }
    (!rows.is_empty()).then(|| sheet.render())
}

/// Figures over all cells, by policy.
fn overall(means: &[&Record]) -> Option<String> {
    let all: Vec<&&Record> = means
        .iter()
        .filter(|record| record.cell.is_none())
        .collect();
    let mut sheet = Sheet::new(&["over all cells", "policy", "value"]);
    for record in &all {
        sheet.row(vec![
            record.metric.clone(),
            record.policy.clone().unwrap_or_default(),
            short(record.value),
        ]);
    }
    (!all.is_empty()).then(|| sheet.render())
}

/// A mean, for tests.
#[cfg(test)]
pub(super) fn record(policy: &str, cell: &str, metric: &str, value: f64) -> Record {
    Record {
        experiment: "e".to_owned(),
        cell: Some(cell.to_owned()),
        policy: Some(policy.to_owned()),
        metric: metric.to_owned(),
        value,
        unit: "share".to_owned(),
        seed: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cell: &str, policy: Option<&str>, metric: &str, value: f64) -> Record {
        Record {
            experiment: "e".to_owned(),
            cell: Some(cell.to_owned()),
            policy: policy.map(str::to_owned),
            metric: metric.to_owned(),
            value,
            unit: "rps".to_owned(),
            seed: None,
        }
    }

    #[test]
    fn a_goodput_stands_beside_its_share_of_the_bound() {
        let records = [
            record("a", None, "fluid_bound_rps", 200.0),
            record("a", None, "clairvoyant_bound_rps", 195.0),
            record("a", Some("sextant"), "goodput_rps", 190.0),
            record("long-name", None, "fluid_bound_rps", 1000.0),
            record("long-name", Some("sextant"), "goodput_rps", 500.0),
        ];
        let means: Vec<&Record> = records.iter().collect();
        let beside = ["fluid_bound_rps", "clairvoyant_bound_rps"];
        let table = Figures::of(&means, "goodput_rps", &beside, false).render();
        let expected = "\
| cell      |     sextant | fluid_bound_rps | clairvoyant_bound_rps |
| --------- | ----------: | --------------: | --------------------: |
| a         | 190 (0.950) |             200 |                   195 |
| long-name | 500 (0.500) |            1000 |                     - |";
        assert_eq!(table, expected);
    }

    #[test]
    fn an_experiment_on_shapes_shows_their_ratio() {
        let experiment = Experiment::named("fleet-shape").expect("it is shipped");
        let records = [
            record("a", Some("eager"), "fleet_goodput_rps", 198.0),
            record("a", Some("eager"), "fleet_over_pool_ratio", 0.99),
        ];
        let text = of_experiment(&experiment, &records);
        assert!(
            text.ends_with("| cell | eager |\n| ---- | ----: |\n| a    | 0.990 |"),
            "{text}"
        );
    }
}
