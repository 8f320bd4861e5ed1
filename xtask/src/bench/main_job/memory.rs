//! Memory of the service with the demo loaded.

use anyhow::Result;

use super::{Bench, figure};
use crate::bench::report::Report;
use crate::demo;

/// Registers the demo's models in a fresh service, asks what the demo asks, and looks at its
/// resident memory.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let server = bench.sextant("demo", &[])?;
    demo::register(&bench.binary, server.address)?;
    demo::ask(&server)?;
    let megabytes = server.resident_bytes()? as f64 / 1e6;
    report.add(figure("demo_rss_mb", megabytes, "MB", Some("<= 150")));
    Ok(())
}
