//! What is kept for jobs: their rows for a while, their parts until they end.

use std::collections::HashMap;

use sextant_objects::{ListRequest, ObjectInfo, ObjectPath};
use sextant_registry::{Job, JobKind};
use sextant_types::{JobId, OfflineSpec, offline, time::unix_ms};

use crate::{
    Amount, Error, Inner, SweepReport,
    names::{FilePurpose, is_given, kept_for},
};

/// Number of rows that are removed at once.
const BATCH: u32 = 500;

/// Files whose paths begin with a prefix, in the order of the paths.
pub(crate) struct Files(Option<ListRequest>);

impl Files {
    pub(crate) fn below(prefix: &str) -> Self {
        Self(Some(ListRequest::prefix(prefix)))
    }

    /// The next page; `None` after the last.
    pub(crate) async fn page(&mut self, inner: &Inner) -> Result<Option<Vec<ObjectInfo>>, Error> {
        let Some(mut request) = self.0.take() else {
            return Ok(None);
        };
        inner.go_on()?;
        let page = inner.objects.list(&request).await?;
        self.0 = page.next.map(|next| {
            request.after = Some(next);
            request
        });
        Ok(Some(page.objects))
    }
}

impl Inner {
    /// Removes jobs that ended long enough ago, with what was kept for them.
    pub(crate) async fn forget_jobs(&self, freed: &mut SweepReport) -> Result<(), Error> {
        let Some(keep) = self.config.keep_ended_jobs else {
            return Ok(());
        };
        let before_ms = before(keep);
        loop {
            self.go_on()?;
            let ended = self.registry.ended_jobs(before_ms, BATCH).await?;
            for job in &ended {
                if let Some(folder) = parts_folder(job) {
                    let prefix = format!("{folder}/{}/", job.id);
                    self.remove_kept(&prefix, &mut freed.parts).await?;
                }
                if self.registry.forget_job(&job.id).await? {
                    freed.jobs += 1;
                }
                // The notes are removed after the row: without notes the webhook would be told of the job again.
                let prefix = format!("{}/", offline::notes_folder(&job.id));
                self.remove_kept(&prefix, &mut freed.notes).await?;
            }
            if ended.len() < BATCH as usize {
                return Ok(());
            }
        }
    }

    /// Removes entries of the audit record that are older than `keep`, and returns their number.
    pub(crate) async fn forget_audit(&self, keep: std::time::Duration) -> Result<u64, Error> {
        let (before_ms, mut all) = (before(keep), 0);
        loop {
            self.go_on()?;
            let forgotten = self.registry.forget_audit(before_ms, BATCH).await?;
            all += forgotten;
            if forgotten < u64::from(BATCH) {
                return Ok(all);
            }
        }
    }

    /// Removes the files that ended jobs have left, whoever ran the jobs and however they ended.
    pub(crate) async fn remove_leftovers(&self, freed: &mut SweepReport) -> Result<(), Error> {
        let mut known = HashMap::new();
        let mut files = Files::below("");
        while let Some(page) = files.page(self).await? {
            for file in page {
                let Some(kept) = kept_for(&file.path) else {
                    continue;
                };
                if self.is_left(&kept, &mut known).await? {
                    let amount = match kept {
                        FilePurpose::Parts { .. } => &mut freed.parts,
                        FilePurpose::Notes(_) => &mut freed.notes,
                    };
                    self.remove(&file, amount).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the file is not needed any more. A job that the registry does not know has ended if the service gave it
    /// its name. Files that only have similar names stay.
    async fn is_left(
        &self,
        kept: &FilePurpose,
        known: &mut HashMap<JobId, Option<Job>>,
    ) -> Result<bool, Error> {
        let (FilePurpose::Parts { job: id, .. } | FilePurpose::Notes(id)) = kept;
        if !known.contains_key(id) {
            known.insert(id.clone(), self.job(id).await?);
        }
        let job = known.get(id).and_then(Option::as_ref);
        Ok(match (kept, job) {
            (_, None) => is_given(id),
            (FilePurpose::Parts { folder, .. }, Some(job)) => {
                job.state.is_final() && parts_folder(job).as_ref() == Some(folder)
            }
            // The note says that the webhook need not be told again.
            (FilePurpose::Notes(_), Some(_)) => false,
        })
    }

    async fn job(&self, id: &JobId) -> Result<Option<Job>, Error> {
        match self.registry.job(id).await {
            Ok(job) => Ok(Some(job)),
            Err(sextant_registry::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the files below a prefix whose names are those that the service gives to files of jobs.
    async fn remove_kept(&self, prefix: &str, amount: &mut Amount) -> Result<(), Error> {
        if ObjectPath::parse(prefix.trim_end_matches('/')).is_err() {
            return Ok(());
        }
        let mut files = Files::below(prefix);
        while let Some(page) = files.page(self).await? {
            for file in page {
                if kept_for(&file.path).is_some() {
                    self.remove(&file, amount).await?;
                }
            }
        }
        Ok(())
    }

    async fn remove(&self, file: &ObjectInfo, amount: &mut Amount) -> Result<(), Error> {
        if self.objects.delete(&file.path).await? {
            amount.add(file.size_bytes);
        }
        Ok(())
    }
}

/// The folder in which an offline job keeps its parts.
pub(crate) fn parts_folder(job: &Job) -> Option<String> {
    let spec = specification(job)?;
    Some(offline::parts_folder(&spec.output))
}

/// The specification of an offline job.
pub(crate) fn specification(job: &Job) -> Option<OfflineSpec> {
    let is_offline = job.kind == JobKind::Offline;
    is_offline.then(|| serde_json::from_value(job.spec.clone()).ok())?
}

/// The latest end of things that have been kept for `keep`, ms since the Unix epoch.
pub(crate) fn before(keep: std::time::Duration) -> u64 {
    let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    unix_ms().saturating_sub(keep_ms)
}
