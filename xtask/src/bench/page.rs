//! Figures of a user's first ten minutes: whether everybody can read the pages, how light the pages are, and how soon
//! an installed wheel answers.

use anyhow::Result;

use super::{
    Arguments,
    report::{Figure, Report},
};
use crate::pages;

mod install;

/// The parts that `--parts` may name.
pub const PARTS: [&str; 2] = ["pages", "install"];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("pages") {
        pages(report)?;
    }
    if arguments.wants("install") {
        install::run(report)?;
    }
    Ok(())
}

fn pages(report: &mut Report) -> Result<()> {
    let looked = pages::look()?;
    let violations = looked.violations as f64;
    let kb = looked.gzip_bytes / 1024.0;
    report.add(figure("axe_violations", violations, "count", Some("0")));
    report.add(figure("page_gzip_kb", kb, "KiB", Some("<= 60")));
    Ok(())
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("page", metric, value, unit, goal)
}
