//! The three calls as blocking code that holds the folder's lock.

use std::{fs, io};

use sextant_types::{DeviceTypeName, WorkerId, time::unix_ms};

use super::{
    Settings, away,
    folder::{Entry, Folder, at},
    life::{self, Process},
    record::{End, Record},
    refused, start,
};
use crate::{Error, Machine, MachineId, Pool};

/// The machines of a folder.
pub(super) struct Machines {
    settings: Settings,
    /// The id of the present start of the system.
    boot: String,
}

// === impl Machines ===

impl Machines {
    pub(super) fn open(settings: Settings) -> Result<Self, Error> {
        let folder = &settings.folder;
        fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
        let boot = life::boot().map_err(|error| away("the start of the system", error))?;
        Ok(Self { settings, boot })
    }

    pub(super) fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error> {
        let folder = Folder::lock(&self.settings.folder)?;
        let records = self.living(&folder)?;
        let own = records.iter().filter(|it| it.pool == pool.device_type);
        Ok(own.map(Record::machine).collect())
    }

    pub(super) fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error> {
        let folder = Folder::lock(&self.settings.folder)?;
        let mut records = self.living(&folder)?;
        let own = records.iter().filter(|it| it.pool == pool.device_type);
        let there = own.filter(|it| it.end.is_none()).count();
        let missing = (count as usize).saturating_sub(there);
        let room = (self.settings.most as usize).saturating_sub(records.len());
        if room < missing {
            let most = self.settings.most;
            tracing::warn!(pool = %pool.device_type, missing, room, most, "no room for machines");
        }
        if missing > 0 {
            folder.prune_logs(&records)?;
        }
        for _ in 0..missing.min(room) {
            records.push(self.start(&folder, &pool.device_type, &records)?);
        }
        Ok(())
    }

    /// Ends machines. Returns whether any was told to end.
    pub(super) fn end(&self, pool: &Pool, ids: &[MachineId]) -> Result<bool, Error> {
        let folder = Folder::lock(&self.settings.folder)?;
        let by_ms = unix_ms().saturating_add(pool.end_ms);
        let mut told = false;
        for mut record in self.living(&folder)? {
            let named = record.pool == pool.device_type && ids.iter().any(|id| id.0 == record.id);
            if named && record.end.is_none() {
                record.end = Some(End { by_ms, told: false });
                folder.write(&record)?;
                self.carry_out(&folder, &mut record)?;
                told = true;
            }
        }
        Ok(told)
    }

    /// Ends machines whose time has passed.
    pub(super) fn sweep(&self) -> Result<(), Error> {
        let folder = Folder::lock(&self.settings.folder)?;
        self.living(&folder).map(drop)
    }

    /// The living machines. Drops the others, and continues the ending of machines that are to end.
    fn living(&self, folder: &Folder<'_>) -> Result<Vec<Record>, Error> {
        let mut living = Vec::new();
        for entry in folder.entries()? {
            let Some((mut record, process)) = self.mend(folder, entry)? else {
                continue;
            };
            let lives = process.lives(&self.boot);
            if !lives.map_err(|error| away(&format!("process {}", process.pid), error))? {
                folder.remove(&record.id)?;
                continue;
            }
            self.carry_out(folder, &mut record)?;
            living.push(record);
        }
        Ok(living)
    }

    /// A record with its process. If the record has no process, or the file cannot be read, the start of the machine
    /// was interrupted: its process is looked for.
    fn mend(&self, folder: &Folder<'_>, entry: Entry) -> Result<Option<(Record, Process)>, Error> {
        if let Ok(Record {
            process: Some(process),
            ..
        }) = &entry.record
        {
            let process = process.clone();
            return Ok(entry.record.ok().map(|record| (record, process)));
        }
        let found = life::marked(&entry.id, &self.boot);
        let found = found.map_err(|error| away("the processes of this machine", error))?;
        let known = match (entry.record, found) {
            (Ok(_), None) => return folder.remove(&entry.id).map(|()| None),
            (Err(reason), None) => {
                tracing::warn!(machine = entry.id, "its file is set aside: {reason}");
                return folder.set_aside(&entry.id).map(|()| None);
            }
            (Ok(record), Some((process, _))) => Some((record, process)),
            (Err(_), Some((process, pool))) => {
                rebuilt(&entry.id, pool).map(|record| (record, process))
            }
        };
        let Some((mut record, process)) = known else {
            return Err(refused(
                &entry.id,
                "its file cannot be read, and its process has no pool: end it",
            ));
        };
        record.process = Some(process.clone());
        folder.write(&record)?;
        Ok(Some((record, process)))
    }

    /// Asks the machine to end if it is to end and has not been asked, and ends it after its time.
    fn carry_out(&self, folder: &Folder<'_>, record: &mut Record) -> Result<(), Error> {
        let (Some(process), Some(end)) = (&record.process, &mut record.end) else {
            return Ok(());
        };
        let fault = |error: io::Error| refused(&format!("signal to `{}`", record.id), error);
        if end.by_ms <= unix_ms() {
            process.kill(&self.boot).map_err(fault)?;
        } else if !end.told {
            process.ask(&self.boot).map_err(fault)?;
            end.told = true;
            folder.write(record)?;
        }
        Ok(())
    }

    /// Starts one more machine in addition to these.
    fn start(
        &self,
        folder: &Folder<'_>,
        pool: &DeviceTypeName,
        records: &[Record],
    ) -> Result<Record, Error> {
        let worker = start::name(pool, records)?;
        let mut record = Record {
            id: worker.as_str().to_owned(),
            pool: pool.clone(),
            worker: Some(worker),
            since_ms: unix_ms(),
            process: None,
            end: None,
        };
        let template = self.settings.pools.get(pool);
        let template = template.unwrap_or(&self.settings.template);
        folder.write(&record)?;
        let pid = match start::start(template, &record, folder) {
            Ok(pid) => pid,
            Err(error) => {
                folder.remove(&record.id)?;
                return Err(error);
            }
        };
        let process = life::process(pid, &self.boot);
        record.process = process.map_err(|error| away(&format!("process {pid}"), error))?;
        folder.write(&record)?;
        Ok(record)
    }
}

/// What is known of a machine whose file cannot be read.
fn rebuilt(id: &str, pool: Option<String>) -> Option<Record> {
    Some(Record {
        id: id.to_owned(),
        pool: DeviceTypeName::new(pool?).ok()?,
        worker: WorkerId::new(id).ok(),
        since_ms: 0,
        process: None,
        end: None,
    })
}
