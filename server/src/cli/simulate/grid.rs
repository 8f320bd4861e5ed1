//! What kinds of experiments share that report records by cell and policy.

use std::path::Path;

use sextant_simulator::experiment::Record;

use super::{Simulate, machine, tables::Sheet};
use crate::cli::{
    Error,
    output::{Output, short},
};

/// An experiment's name, title and source.
pub struct Heading<'a> {
    pub name: &'a str,
    pub title: &'a str,
    pub source: &'a str,
}

/// The file of a user's experiment of a kind; `None` where it is of another kind. One that cannot be
/// read is another kind's to complain about.
pub fn file_of(name: &str, is_of_kind: impl Fn(&str) -> bool) -> Option<&Path> {
    let text = std::fs::read_to_string(name).unwrap_or_default();
    is_of_kind(&text).then(|| Path::new(name))
}

/// Refuses options that mean something to experiments with schedulers alone.
pub fn refuse_others(of: &Simulate, what: &str) -> Result<(), Error> {
    let others = [
        ("--sample", of.sample.is_some()),
        ("--full", of.full),
        ("--resume", of.resume.is_some()),
    ];
    super::refuse(&others, what)
}

/// Prints records one by one as JSON, or their means as a table: a line for each of `rows`, with these
/// metrics under these headings.
pub fn print(
    output: Output,
    heading: &Heading<'_>,
    rows: &[&str],
    shown: &[(&str, &str)],
    records: &[Record],
) -> Result<(), Error> {
    if output.json {
        let lines = records.iter().map(Record::to_json);
        return lines.into_iter().try_for_each(|line| output.text(&line));
    }
    output.text(&format!(
        "{}: {} (simulated)\n{}\nsource: {}\n\n{}",
        heading.name,
        heading.title,
        machine::lines(),
        heading.source,
        table(rows, shown, records)
    ))
}

/// `rows` are the headings of what names a line: cell and policy, or the policy alone.
fn table(rows: &[&str], shown: &[(&str, &str)], records: &[Record]) -> String {
    let means = records.iter().filter(|record| record.seed.is_none());
    let means: Vec<&Record> = means.collect();
    let name = |record: &Record| {
        let both = [&record.cell, &record.policy].map(|part| part.clone().unwrap_or_default());
        both[both.len().saturating_sub(rows.len())..].to_vec()
    };
    // Comparisons of policies come behind the means of all of them.
    let mut names: Vec<Vec<String>> = Vec::new();
    for record in &means {
        let name = name(record);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let headings = shown.iter().map(|(_, heading)| heading);
    let headings: Vec<&str> = rows.iter().chain(headings).copied().collect();
    let mut sheet = Sheet::new(&headings);
    for row in names {
        let value = |metric: &str| {
            let is = |record: &&&Record| name(record) == row && record.metric == metric;
            let found = means.iter().find(is);
            found.map_or_else(String::new, |record| short(record.value))
        };
        let values = shown.iter().map(|(metric, _)| value(metric));
        sheet.row(row.iter().cloned().chain(values).collect());
    }
    sheet.render()
}
