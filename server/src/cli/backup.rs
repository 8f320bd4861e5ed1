//! `sextant backup` and `sextant restore`: copy a registry and its artefact store into a folder, and back.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::json;
use sextant_storage::backup::{Manifest, Progress};

use super::{
    Error, Output, Settings,
    output::{bytes, tell},
};
use crate::serve::backup;

/// Time between two lines that tell how far the work is.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Write the registry and the artefact store into a folder. The service may run meanwhile.
///
/// The settings say where the two are, as for `serve`. Run the command where the service runs, with the service's
/// environment. The backup does not contain the intermediate files of running jobs.
#[derive(Debug, Args)]
pub struct Backup {
    /// The folder, which is empty or does not exist yet.
    #[arg(value_name = "TO")]
    to: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

/// Restore a backup into an empty registry and an empty artefact store.
///
/// The settings say where the two are, as for `serve`. No service may run on them meanwhile. The command compares
/// every file with its digest.
#[derive(Debug, Args)]
pub struct Restore {
    /// The folder of the backup.
    #[arg(value_name = "FROM")]
    from: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

/// Tells how far the work is, on standard error.
struct Lines {
    quiet: bool,
    told: Option<(&'static str, Instant)>,
}

impl Backup {
    /// Does it.
    pub fn run(self, output: Output) -> Result<(), Error> {
        let config = self.settings.load()?;
        let mut lines = Lines::new(output.json);
        let mut say = |progress| lines.tell(progress);
        let manifest = work(backup::take(&config, &self.to, &mut say))?;
        // The JSON summary names them as well.
        for digest in manifest.missing.iter().filter(|_| !output.json) {
            tell(&format!(
                "warning: the registry names the file `{digest}`, and the store has none"
            ));
        }
        output.either(&summary(&manifest), || text("wrote", &manifest))
    }
}

impl Restore {
    /// Does it.
    pub fn run(self, output: Output) -> Result<(), Error> {
        let config = self.settings.load()?;
        let mut lines = Lines::new(output.json);
        let mut say = |progress| lines.tell(progress);
        let manifest = work(backup::restore(&config, &self.from, &mut say))?;
        output.either(&summary(&manifest), || text("restored", &manifest))
    }
}

fn work<T>(what: impl Future<Output = anyhow::Result<T>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(what).map_err(|error| {
        match error.downcast::<sextant_storage::backup::Error>() {
            Ok(error) => Error::Backup(error),
            Err(error) => Error::Service(error),
        }
    })
}

fn summary(manifest: &Manifest) -> serde_json::Value {
    json!({
        "taken_ms": manifest.taken_ms,
        "rows": rows(manifest),
        "blobs": manifest.blobs,
        "files": manifest.files,
        "bytes": manifest.bytes,
        "missing": manifest.missing,
    })
}

fn rows(manifest: &Manifest) -> u64 {
    manifest.tables.iter().map(|table| table.rows).sum()
}

fn text(done: &str, manifest: &Manifest) -> String {
    format!(
        "{done} {} rows, {} files of models and {} artefacts: {}",
        rows(manifest),
        manifest.blobs,
        manifest.files,
        bytes(manifest.bytes)
    )
}

// === impl Lines ===

impl Lines {
    /// `quiet`: no lines.
    fn new(quiet: bool) -> Self {
        Self { quiet, told: None }
    }

    fn tell(&mut self, progress: Progress) {
        let is_last = progress.of == Some(progress.done);
        let is_new = self.told.is_none_or(|(step, at)| {
            step != progress.step || is_last || at.elapsed() >= LINE_EVERY
        });
        if is_new && !self.quiet {
            let of = progress
                .of
                .map(|of| format!(" of {of}"))
                .unwrap_or_default();
            let size = match progress.bytes {
                0 => String::new(),
                size => format!(", {}", bytes(size)),
            };
            tell(&format!("{}: {}{of}{size}", progress.step, progress.done));
            self.told = Some((progress.step, Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_what_there_is() {
        let manifest: Manifest = serde_json::from_value(json!({
            "format": 1, "schema": 14, "taken_ms": 7, "identity": null,
            "tables": [
                {"name": "models", "rows": 2, "sha256": "0".repeat(64)},
                {"name": "jobs", "rows": 3, "sha256": "0".repeat(64)},
            ],
            "objects": "0".repeat(64), "blobs": 4, "files": 1, "bytes": 2048, "missing": [],
        }))
        .expect("a manifest");
        assert_eq!(
            text("wrote", &manifest),
            "wrote 5 rows, 4 files of models and 1 artefacts: 2.0 KiB"
        );
    }
}
