//! Reports of the holder of a job. Each call is refused with [`Error::Cancelled`] or
//! [`Error::LeaseLost`] if the caller no longer holds the job.

use serde_json::Value;
use sextant_types::{JobId, Variant};

use super::{Job, JobKind, JobState, queue};
use crate::{
    Entity, Error, Failure, ModelStatus, Registry,
    database::Session,
    model,
    rows::{document, int},
    sql, variant, version,
};

impl Registry {
    /// Stores the progress of the job: units done, and in total.
    pub async fn advance(
        &self,
        id: &JobId,
        owner: &str,
        step: &str,
        (done, total): (u64, u64),
        now_ms: u64,
    ) -> Result<(), Error> {
        let mut tx = self.held(id, owner).await?.tx;
        tx.run(
            sql::ADVANCE_JOB
                .bind(id.as_str())
                .bind(step)
                .bind(int(done))
                .bind(int(total))
                .bind(int(now_ms)),
        )
        .await?;
        tx.commit().await
    }

    /// Extends the claim to `now_ms + lease_ms`. A claim that has lapsed may be renewed as long as
    /// nobody else has taken the job.
    pub async fn renew(
        &self,
        id: &JobId,
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<(), Error> {
        let mut tx = self.held(id, owner).await?.tx;
        tx.run(
            sql::RENEW_JOB
                .bind(id.as_str())
                .bind(int(now_ms.saturating_add(lease_ms)))
                .bind(int(now_ms)),
        )
        .await?;
        tx.commit().await
    }

    /// [`put_step`](Self::put_step) for the model of a job that the caller holds: so a runner whose
    /// job was cancelled cannot write into a later registration of the same name.
    pub async fn put_step_held(
        &self,
        id: &JobId,
        owner: &str,
        name: &str,
        result: &Value,
    ) -> Result<(), Error> {
        // The step may refer to a blob.
        let tx = self.begin().await?;
        let ClaimedJob { mut tx, job } = held_in(tx, id, owner).await?;
        let model = job
            .model
            .ok_or_else(|| Error::not_found(Entity::Model, "of the job"))?;
        model::put_step(&mut tx, &model, name, result).await?;
        tx.commit().await
    }

    /// Marks the job as waiting for spare resources, or as running again. The caller keeps the
    /// claim.
    pub async fn set_paused(
        &self,
        id: &JobId,
        owner: &str,
        paused: bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        let state = if paused {
            JobState::Paused
        } else {
            JobState::Running
        };
        let mut tx = self.held(id, owner).await?.tx;
        tx.run(
            sql::SET_JOB_STATE
                .bind(id.as_str())
                .bind(state.as_str())
                .bind(int(now_ms)),
        )
        .await?;
        tx.commit().await
    }

    /// Gives the job back unfinished. It continues later where its progress ends.
    pub async fn release(&self, id: &JobId, owner: &str, now_ms: u64) -> Result<(), Error> {
        let mut tx = self.held(id, owner).await?.tx;
        end(&mut tx, id, JobState::Queued, now_ms).await?;
        self.commit_work(tx).await?;
        Ok(())
    }

    /// Ends the job with a result. The model of a [`JobKind::Register`] job becomes ready in the
    /// same transaction.
    pub async fn finish(
        &self,
        id: &JobId,
        owner: &str,
        result: &Value,
        now_ms: u64,
    ) -> Result<(), Error> {
        self.finish_with(id, owner, &[], result, now_ms).await
    }

    /// [`finish`](Self::finish) and [`put_variants`](Self::put_variants) in one transaction: the
    /// last step of a registration.
    pub async fn finish_with(
        &self,
        id: &JobId,
        owner: &str,
        variants: &[Variant],
        result: &Value,
        now_ms: u64,
    ) -> Result<(), Error> {
        // Whether the model becomes current depends on the other versions of its name.
        let tx = self.begin().await?;
        let ClaimedJob { mut tx, job } = held_in(tx, id, owner).await?;
        variant::put(&mut tx, variants).await?;
        if let (JobKind::Register, Some(model)) = (job.kind, &job.model) {
            model::set_status(&mut tx, model, ModelStatus::Ready, None).await?;
            version::begin(&mut tx, model, now_ms).await?;
        }
        tx.run(
            sql::SET_JOB_RESULT
                .bind(id.as_str())
                .bind(document(Entity::Job, id, result)?),
        )
        .await?;
        end(&mut tx, id, JobState::Succeeded, now_ms).await?;
        match job.kind {
            // A ready model may be extended.
            JobKind::Register => self.commit_work(tx).await,
            JobKind::Extend | JobKind::Offline | JobKind::Measure => tx.commit().await,
        }
    }

    /// Ends the job with an error. The model of a [`JobKind::Register`] job fails with the same
    /// error in the same transaction.
    pub async fn fail(
        &self,
        id: &JobId,
        owner: &str,
        failure: &Failure,
        now_ms: u64,
    ) -> Result<(), Error> {
        let ClaimedJob { mut tx, job } = self.held(id, owner).await?;
        if let (JobKind::Register, Some(model)) = (job.kind, &job.model) {
            model::set_status(&mut tx, model, ModelStatus::Failed, Some(failure)).await?;
        }
        tx.run(
            sql::SET_JOB_ERROR
                .bind(id.as_str())
                .bind(failure.code.as_str())
                .bind(failure.text()),
        )
        .await?;
        end(&mut tx, id, JobState::Failed, now_ms).await?;
        tx.commit().await
    }

    /// A transaction in which the caller holds the job.
    async fn held(&self, id: &JobId, owner: &str) -> Result<ClaimedJob, Error> {
        held_in(self.begin_rows().await?, id, owner).await
    }
}

/// The given transaction, after a check that the caller holds the job.
async fn held_in(mut tx: Session, id: &JobId, owner: &str) -> Result<ClaimedJob, Error> {
    let job = queue::to_change(&mut tx, id).await?;
    if job.state == JobState::Cancelled {
        return Err(Error::Cancelled { job: job.id });
    }
    if job.state.is_final() || job.owner.as_deref() != Some(owner) {
        return Err(Error::LeaseLost {
            job: job.id,
            owner: owner.to_owned(),
        });
    }
    Ok(ClaimedJob { tx, job })
}

struct ClaimedJob {
    tx: Session,
    job: Job,
}

/// Puts the job into a state without a holder.
async fn end(tx: &mut Session, id: &JobId, state: JobState, now_ms: u64) -> Result<(), Error> {
    tx.run(
        sql::END_JOB
            .bind(id.as_str())
            .bind(state.as_str())
            .bind(int(now_ms)),
    )
    .await?;
    Ok(())
}
