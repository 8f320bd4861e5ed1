//! The end of a job: its parts become files.

use sextant_objects::ObjectPath;
use sextant_records::{Error, Join};
use sextant_registry::Job;
use sextant_types::{Signature, offline::ERRORS_SUFFIX, time::unix_ms};

use super::{
    JobService,
    ledger::Ledger,
    owner,
    plan::{Layout, Target},
    stop::{Stop, patiently},
};

/// The result of joining.
#[derive(Debug, Default)]
pub(crate) struct JoinSummary {
    /// Bytes of all files of answers together.
    pub(crate) bytes: u64,
    /// Files that say which records of an array were not answered.
    pub(crate) errors: Vec<String>,
}

impl JobService {
    /// Joins the parts into the output. The parts stay until the end of the job is recorded. After a crash before that,
    /// the next runner joins again and writes the same bytes.
    pub(crate) async fn join(
        &self,
        job: &Job,
        layout: &Layout,
        ledger: &Ledger,
        signature: &Signature,
    ) -> Result<JoinSummary, Stop> {
        let mut joined = JoinSummary::default();
        for target in &layout.targets {
            self.join_one(job, layout, ledger, (target, signature), &mut joined)
                .await?;
        }
        Ok(joined)
    }

    async fn join_one(
        &self,
        job: &Job,
        layout: &Layout,
        ledger: &Ledger,
        (target, signature): (&Target, &Signature),
        joined: &mut JoinSummary,
    ) -> Result<(), Stop> {
        let place = |chunk| ledger.part(chunk, layout.place(chunk).first);
        let chunks = target.chunks.clone();
        let join = Join::new(&self.files, target.format, chunks, place, signature).await?;
        let errors = errors_of(&target.path)?;
        // A runner that lost the job must not overwrite what the next runner, or the next job, writes.
        let confirm = || async { self.still_ours(job).await };
        if join.has_errors() {
            // Written before the output, so that a reader that finds the output finds these files as well.
            let written = join.write_errors(&errors, confirm).await?;
            written.ok_or(Stop::NotOurs)?;
            joined.errors.push(errors.to_string());
        }
        let written = join.write(&target.path, confirm).await?;
        joined.bytes += written.ok_or(Stop::NotOurs)?;
        if !join.has_errors() {
            self.remove_errors(job, &errors).await?;
        }
        Ok(())
    }

    /// Removes the error lines of an earlier job with this output. They would be taken for those of this job.
    async fn remove_errors(&self, job: &Job, errors: &ObjectPath) -> Result<(), Stop> {
        if self.files.stat(errors).await?.is_none() {
            return Ok(());
        }
        if !self.still_ours(job).await {
            return Err(Stop::NotOurs);
        }
        self.files.delete(errors).await?;
        Ok(())
    }

    async fn still_ours(&self, job: &Job) -> bool {
        let (owner, lease) = (owner(job), self.config.lease_ms);
        let renew = || self.registry.renew(&job.id, owner, lease, unix_ms());
        patiently(renew).await.is_ok()
    }
}

/// The path of the lines about records without an answer.
fn errors_of(output: &ObjectPath) -> Result<ObjectPath, Error> {
    let path = output.with_suffix(ERRORS_SUFFIX);
    path.map_err(|error| sextant_objects::Error::from(error).into())
}
