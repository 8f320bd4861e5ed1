//! What the pages for people keep of their promises: everybody can read them, and they are light.

use anyhow::Result;

use super::report::{Figure, Report};
use crate::pages;

/// Measures it.
pub fn run(report: &mut Report) -> Result<()> {
    let looked = pages::look()?;
    let violations = looked.violations as f64;
    let kb = looked.gzip_bytes / 1024.0;
    report.add(Figure::new(
        "page",
        "axe_violations",
        violations,
        "count",
        Some("0"),
    ));
    report.add(Figure::new(
        "page",
        "page_gzip_kb",
        kb,
        "KiB",
        Some("<= 60"),
    ));
    Ok(())
}
