//! A file of finished units, with which a stopped experiment continues.
//!
//! The file holds the report's records. Before the records of each unit, it holds one that identifies the settings of
//! the unit, because the same cell may have been measured for another time or on other devices before.

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
use sextant_simulator::Error;

/// The metric of the record before a unit's own: a digest of its settings.
const SETTINGS: &str = "settings_count";

/// JSON lines, appended unit by unit.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    finished: BTreeMap<(String, String), Vec<Record>>,
}

impl Journal {
    /// Opens or creates the file. Records of units that were not finished are removed.
    pub(super) fn open(path: &Path, experiment: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(Error::Read { file: name, source }),
        };
        let mut units = read(&text, &name, experiment)?;
        // A unit is written at once, but a full disk may truncate it. The means come last.
        units.retain(|_, records| {
            let last = records.last();
            let whole = |last: &Record| last.metric == LAST_METRIC && last.seed.is_none();
            last.is_some_and(whole) && records[0].metric == SETTINGS
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

    /// The records of a unit that was finished with the same number of seeds.
    pub(super) fn find(&self, unit: &Unit<'_>) -> Result<Option<Vec<Record>>, Error> {
        let Some(policy) = unit.policy else {
            return Ok(None);
        };
        let key = (unit.cell.name.clone(), policy.name().to_owned());
        let Some((settings, records)) = self.finished.get(&key).and_then(|all| all.split_first())
        else {
            return Ok(None);
        };
        if *settings != settings_of(unit) {
            let file = self.path.display();
            let problem = format!("`{file}` has cell `{}` with other settings", unit.cell.name);
            return Err(Error::Setting(problem));
        }
        let seeds = records.iter().filter_map(|record| record.seed).max();
        Ok((seeds == Some(unit.seeds)).then(|| records.to_vec()))
    }

    /// Adds a unit.
    pub(super) fn append(&mut self, unit: &Unit<'_>, records: &[Record]) -> Result<(), Error> {
        if unit.policy.is_none() {
            return Ok(());
        }
        let mut lines = String::new();
        for record in std::iter::once(&settings_of(unit)).chain(records) {
            lines.push_str(&record.to_json());
            lines.push('\n');
        }
        let written = self.file.write_all(lines.as_bytes());
        let written = written.and_then(|()| self.file.flush());
        written.map_err(|source| Error::Write {
            file: self.path.display().to_string(),
            source,
        })
    }
}

/// A digest of everything except the seeds that a unit's figures depend on (FNV-1a, folded).
fn settings_of(unit: &Unit<'_>) -> Record {
    let text = format!("{:?} {:?}", unit.experiment.kind, unit.cell);
    let digest = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let folded = (digest >> 32) as u32 ^ digest as u32;
    unit.label(None).record(SETTINGS, f64::from(folded))
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
            // The last line may be truncated.
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
