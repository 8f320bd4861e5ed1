//! Figures of the first ten minutes: everybody can read the pages, the pages are light, and the wheel answers soon.

use anyhow::Result;

use super::{
    Arguments,
    report::{Figure, Report},
};
use crate::pages;

mod install;

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 2] = ["pages", "install"];

/// Measures everything that is asked for.
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
