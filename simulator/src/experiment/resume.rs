//! A file of finished units, so that a long experiment goes on where it was stopped.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    Record,
    measure::{LAST_METRIC, Unit},
};
use crate::Error;

/// JSON lines, appended unit by unit.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    finished: BTreeMap<(String, String), Vec<Record>>,
}

impl Journal {
    /// Opens or makes the file. What is in it of units that were not finished is removed.
    pub(super) fn open(path: &Path, experiment: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(Error::Read { file: name, source }),
        };
        let mut units = read(&text, &name, experiment)?;
        // A unit is written at once, but a full disk may cut it: its means come last.
        units.retain(|_, records| {
            let last = records.last();
            last.is_some_and(|last| last.metric == LAST_METRIC && last.seed.is_none())
        });
        let failed = |source| Error::Write {
            file: name.clone(),
            source,
        };
        let mut kept = String::new();
        for record in units.values().flatten() {
            kept.push_str(&record.to_json());
            kept.push('\n');
        }
        let beside = path.with_extension("partial");
        std::fs::write(&beside, kept).map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)?;
        let file = File::options().append(true).open(path).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            finished: units,
        })
    }

    /// The records of a unit that was finished with at least these seeds.
    pub(super) fn find(&self, unit: &Unit<'_>) -> Option<Vec<Record>> {
        let policy = unit.policy?.name().to_owned();
        let records = self.finished.get(&(unit.cell.name.clone(), policy))?;
        let seeds = records.iter().filter_map(|record| record.seed).max();
        (seeds == Some(unit.seeds)).then(|| records.clone())
    }

    /// Adds a unit.
    pub(super) fn append(&mut self, records: &[Record]) -> Result<(), Error> {
        let mut lines = String::new();
        for record in records {
            lines.push_str(&record.to_json());
            lines.push('\n');
        }
        let written = self.file.write_all(lines.as_bytes());
        written
            .and_then(|()| self.file.flush())
            .map_err(|source| Error::Write {
                file: self.path.display().to_string(),
                source,
            })
    }
}

/// Records by (cell of the unit, policy).
fn read(
    text: &str,
    file: &str,
    experiment: &str,
) -> Result<BTreeMap<(String, String), Vec<Record>>, Error> {
    let mut units: BTreeMap<(String, String), Vec<Record>> = BTreeMap::new();
    let lines = text.lines().count();
    for (at, line) in text.lines().enumerate() {
        let record: Record = match serde_json::from_str(line) {
            Ok(record) => record,
            // The last line may have been cut.
            Err(_) if at + 1 == lines => break,
            Err(error) => return Err(Error::line(file, at + 1, line, error.to_string())),
        };
        if record.experiment != experiment {
            let problem = format!("is not of experiment `{experiment}`");
            return Err(Error::line(file, at + 1, record.experiment, problem));
        }
        let (Some(cell), Some(policy)) = (&record.cell, &record.policy) else {
            continue;
        };
        let unit = cell.split('/').next().unwrap_or(cell).to_owned();
        units
            .entry((unit, policy.clone()))
            .or_default()
            .push(record);
    }
    Ok(units)
}
