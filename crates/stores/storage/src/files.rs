//! What is kept for jobs: their rows for a while, their parts until they are over.

use std::collections::HashMap;

use sextant_objects::{ListRequest, ObjectInfo, ObjectPath};
use sextant_registry::{Job, JobKind};
use sextant_types::{JobId, OfflineSpec, offline, time::unix_ms};

use crate::{
    Amount, Error, Inner, SweepReport,
    names::{FilePurpose, is_given, kept_for},
};

/// Rows that are forgotten at once.
const BATCH: u32 = 500;

/// Files whose paths begin with a prefix, in the order of the paths.
pub(crate) struct Files(Option<ListRequest>);

impl Files {
    pub(crate) fn below(prefix: &str) -> Self {
        Self(Some(ListRequest::prefix(prefix)))
    }

    /// The next of them; `None` behind the last.
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
    /// Forgets jobs that ended long enough ago, with what was kept for them.
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
                // Not before the row: what is told of no more would be told again.
                let prefix = format!("{}/", offline::notes_folder(&job.id));
                self.remove_kept(&prefix, &mut freed.notes).await?;
            }
            if ended.len() < BATCH as usize {
                return Ok(());
            }
        }
    }

    /// Forgets entries of the audit record that are older than so long, and returns how many.
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

    /// Removes what was left of jobs that are over, whoever ran them and however that ended.
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

    /// Whether nobody needs it any more. A job that the registry does not know is over where the service
    /// gave it its name: what others call their files stays.
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
            // It tells that the webhook need not be told again.
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

    /// Removes the files below a prefix that are called as what the service keeps for jobs.
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

/// Where an offline job keeps its parts.
pub(crate) fn parts_folder(job: &Job) -> Option<String> {
    let spec = specification(job)?;
    Some(offline::parts_folder(&spec.output))
}

/// What an offline job was asked to do.
pub(crate) fn specification(job: &Job) -> Option<OfflineSpec> {
    let is_offline = job.kind == JobKind::Offline;
    is_offline.then(|| serde_json::from_value(job.spec.clone()).ok())?
}

/// The moment before which something must have ended that is kept for so long, ms.
pub(crate) fn before(keep: std::time::Duration) -> u64 {
    let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    unix_ms().saturating_sub(keep_ms)
}
