//! Figures of experiments with limited memory: all figures of a cell in one table, and the course of
//! the important ones over time.

use sextant_simulator::{Record, report::Sheet};
use sextant_types::number::short;

/// Ends of the names of figures whose course is shown.
const COURSES: [&str; 5] = [
    "good_rps",
    "throughput_rps",
    "latency_mean_ms",
    "cold_request_share",
    "busy_share",
];

/// Two tables for each cell, the second only where there are figures over time.
pub fn tables(means: &[&Record]) -> String {
    let mut text = String::new();
    for cell in distinct(means, |record| record.cell.as_deref()) {
        if cell.contains('/') {
            continue;
        }
        let of_cell = |record: &&&Record| record.cell.as_deref() == Some(cell);
        let whole: Vec<&Record> = means.iter().filter(of_cell).copied().collect();
        text.push_str(&format!("\n\n{}", figures(cell, &whole)));
        let spans = below(cell, means, is_course);
        for policy in distinct(&spans, |record| record.policy.as_deref()) {
            text.push_str(&format!("\n\n{}", course(policy, &spans)));
        }
    }
    text
}

fn is_course(metric: &str) -> bool {
    !metric.starts_with("success") && COURSES.iter().any(|end| metric.ends_with(end))
}

/// A line for each figure, a column for each policy.
fn figures(cell: &str, records: &[&Record]) -> String {
    let policies = distinct(records, |record| record.policy.as_deref());
    let mut heads = vec![cell];
    heads.extend(&policies);
    let mut sheet = Sheet::new(&heads);
    for metric in distinct(records, |record| Some(record.metric.as_str())) {
        let value = |policy: &&str| {
            let is = |record: &&&Record| {
                record.metric == metric && record.policy.as_deref() == Some(*policy)
            };
            let found = records.iter().find(is);
            found.map_or_else(|| "-".to_owned(), |record| short(record.value))
        };
        let mut row = vec![metric.to_owned()];
        row.extend(policies.iter().map(value));
        sheet.row(row);
    }
    sheet.render()
}

/// The figures of the cells below a cell that are shown.
pub(super) fn below<'a>(
    cell: &str,
    means: &[&'a Record],
    is_shown: impl Fn(&str) -> bool,
) -> Vec<&'a Record> {
    let below = format!("{cell}/");
    let is_below = |record: &&&Record| {
        let name = record.cell.as_deref();
        name.is_some_and(|name| name.starts_with(&below)) && is_shown(&record.metric)
    };
    means.iter().filter(is_below).copied().collect()
}

/// Of a policy a line for each span of time or whatever cells below a cell stand for, a column for each figure.
pub(super) fn course(policy: &str, records: &[&Record]) -> String {
    let of_policy = |record: &&&Record| record.policy.as_deref() == Some(policy);
    let records: &[&Record] = &records
        .iter()
        .filter(of_policy)
        .copied()
        .collect::<Vec<_>>();
    let metrics = distinct(records, |record| Some(record.metric.as_str()));
    let mut heads = vec![policy];
    heads.extend(&metrics);
    let mut sheet = Sheet::new(&heads);
    for cell in distinct(records, |record| record.cell.as_deref()) {
        let value = |metric: &&str| {
            let is = |record: &&&Record| {
                record.cell.as_deref() == Some(cell) && record.metric == *metric
            };
            let found = records.iter().find(is);
            found.map_or_else(|| "-".to_owned(), |record| short(record.value))
        };
        let span = cell.rsplit('/').next().unwrap_or(cell);
        let mut row = vec![span.to_owned()];
        row.extend(metrics.iter().map(value));
        sheet.row(row);
    }
    sheet.render()
}

/// Each value once, in the order of their first records.
fn distinct<'a>(
    records: &[&'a Record],
    of: impl Fn(&'a Record) -> Option<&'a str>,
) -> Vec<&'a str> {
    let mut known = Vec::new();
    for record in records {
        if let Some(value) = of(record)
            && !known.contains(&value)
        {
            known.push(value);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tables::record;

    #[test]
    fn a_cell_has_its_figures_and_their_course() {
        let records = [
            record("sextant", "a/0-5min", "good_rps", 100.0),
            record("sextant", "a/0-5min", "late_count", 0.0),
            record("sextant", "a/5-10min", "good_rps", 50.0),
            record("sextant", "a", "good_rps", 75.0),
            record("sextant", "a", "late_count", 0.0),
        ];
        let means: Vec<&Record> = records.iter().collect();
        let expected = "

| a          | sextant |
| ---------- | ------: |
| good_rps   |    75.0 |
| late_count |   0.000 |

| sextant | good_rps |
| ------- | -------: |
| 0-5min  |      100 |
| 5-10min |     50.0 |";
        assert_eq!(tables(&means), expected);
    }
}
