//! Memory of the service with the demo loaded.

use anyhow::Result;

use super::figure;
use crate::bench::bed::Bench;
use crate::bench::report::Report;
use crate::demo;
use crate::server::Server;

/// Measures the resident memory of a service that has just registered the demo's models and answered the demo's
/// queries; it includes what the measurements of the models left behind. Then measures a restarted service, which
/// serves the same without having measured anything.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let server = bench.sextant("demo", &[])?;
    demo::register(&bench.binary, server.address)?;
    let first = megabytes(&server)?;
    drop(server);
    let restarted = megabytes(&bench.sextant("demo", &[])?)?;
    report.add(figure("demo_rss_mb", first, "MB", Some("<= 150")));
    report.add(figure("demo_restarted_rss_mb", restarted, "MB", None));
    Ok(())
}

/// Resident memory after the demo's queries.
fn megabytes(server: &Server) -> Result<f64> {
    demo::ask(server)?;
    Ok(server.resident_bytes()? as f64 / 1e6)
}
