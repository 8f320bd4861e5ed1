//! Records on a page for people: tables under a heading, and the progress of a run.

mod answer;
mod machine;
mod progress;
mod sheet;

use std::fmt;

use sextant_types::number::short;

pub use answer::page;
pub use progress::Progress;
pub use sheet::Sheet;

use crate::Record;

/// Figures of a fleet that are shown, with their headings. The rest is in the JSON.
pub const OF_FLEETS: [(&str, &str); 6] = [
    ("violation_percent", "late or refused, %"),
    ("accuracy_percent", "accuracy, %"),
    ("throughput_rps", "answers/s"),
    ("device_hours", "device hours"),
    ("cost_usd", "USD"),
    ("reversals_in_ten_minutes_count", "turns in 10 min"),
];

/// An experiment's name, title and source, shown with the machine and the version.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it shows, in one line.
    pub title: &'a str,
    /// Where it was published.
    pub source: &'a str,
}

/// The means in a table: one line for each of `rows`, with these metrics under these headings.
#[derive(Debug, Clone, Copy)]
pub struct Grid<'a> {
    /// Headings of the columns that name a line: cell and policy, or only the policy.
    pub rows: &'a [&'a str],
    /// Metrics with their headings.
    pub shown: &'a [(&'a str, &'a str)],
}

/// The machine and version with which figures were made. Simulated figures do not depend on them, but the time that
/// they take does.
pub fn made_by() -> String {
    machine::lines()
}

impl fmt::Display for Heading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            title,
            source,
        } = self;
        let made_by = made_by();
        write!(
            f,
            "{name}: {title} (simulated)\n{made_by}\nsource: {source}"
        )
    }
}

// === impl Grid ===

impl Grid<'_> {
    /// The means among `records` as a table below a heading.
    pub fn page(&self, heading: &Heading<'_>, records: &[Record]) -> String {
        format!("{heading}\n\n{}", self.table(records))
    }

    fn table(&self, records: &[Record]) -> String {
        let means = records.iter().filter(|record| record.seed.is_none());
        let means: Vec<&Record> = means.collect();
        let name = |record: &Record| {
            let both = [&record.cell, &record.policy].map(|part| part.clone().unwrap_or_default());
            both[both.len().saturating_sub(self.rows.len())..].to_vec()
        };
        // Comparisons of policies come after the means of all of them.
        let mut names: Vec<Vec<String>> = Vec::new();
        for record in &means {
            let name = name(record);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let headings = self.shown.iter().map(|(_, heading)| heading);
        let headings: Vec<&str> = self.rows.iter().chain(headings).copied().collect();
        let mut sheet = Sheet::new(&headings);
        for row in names {
            let value = |metric: &str| {
                let is = |record: &&&Record| name(record) == row && record.metric == metric;
                let found = means.iter().find(is);
                found.map_or_else(String::new, |record| short(record.value))
            };
            let values = self.shown.iter().map(|(metric, _)| value(metric));
            sheet.row(row.iter().cloned().chain(values).collect());
        }
        sheet.render()
    }
}
