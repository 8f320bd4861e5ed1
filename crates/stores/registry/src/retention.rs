//! Removes what is kept only for a while: jobs that have ended, and models whose registration failed.

use sextant_types::{ApplicationId, JobId, ModelId};

use crate::{
    Entity, Error, Job, Registry,
    database::Row,
    job,
    rows::{Columns, int},
    sql,
};

impl Registry {
    /// Jobs that ended before a time and that nothing needs any more, the oldest first, up to the limit. The latest job
    /// that registered a model, and the jobs that extended it, are kept with the model.
    pub async fn ended_jobs(&self, before_ms: u64, limit: u32) -> Result<Vec<Job>, Error> {
        let query = sql::ENDED_JOBS.bind(int(before_ms)).bind(i64::from(limit));
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(job::read).collect()
    }

    /// Offline jobs that ended after a given time and job id, up to the limit, in the order in which they ended.
    pub async fn ended_offline_jobs(
        &self,
        (after_ms, after): (u64, &str),
        limit: u32,
    ) -> Result<Vec<Job>, Error> {
        let query = sql::ENDED_OFFLINE_JOBS
            .bind(int(after_ms))
            .bind(after)
            .bind(i64::from(limit));
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(job::read).collect()
    }

    /// Removes the row of a job that has ended. Returns whether it was there.
    pub async fn forget_job(&self, id: &JobId) -> Result<bool, Error> {
        let mut tx = self.begin().await?;
        let forgotten = tx.run(sql::FORGET_JOB.bind(id.as_str())).await?;
        tx.commit().await?;
        Ok(forgotten > 0)
    }

    /// Removes up to `limit` entries of the audit record that were made before a time, the oldest first. Returns their
    /// number.
    pub async fn forget_audit(&self, before_ms: u64, limit: u32) -> Result<u64, Error> {
        let query = sql::FORGET_AUDIT
            .bind(int(before_ms))
            .bind(i64::from(limit));
        let mut tx = self.begin_rows().await?;
        let forgotten = tx.run(query).await?;
        tx.commit().await?;
        Ok(forgotten)
    }

    /// Removes the models whose registration failed before a time, with their steps, and returns their names. With an
    /// application's last model its signature is removed as well.
    pub async fn forget_failed_models(&self, before_ms: u64) -> Result<Vec<ModelId>, Error> {
        let mut tx = self.begin().await?;
        let rows = tx.rows(sql::FAILED_MODELS.bind(int(before_ms))).await?;
        let rows: Result<Vec<_>, Error> = rows.iter().map(failed).collect();
        let mut forgotten = Vec::new();
        for (model, application) in rows? {
            tx.run(sql::DELETE_MODEL.bind(model.as_str())).await?;
            tx.run(sql::FORGET_SIGNATURE.bind(application.as_str()))
                .await?;
            forgotten.push(model);
        }
        tx.commit().await?;
        Ok(forgotten)
    }
}

fn failed(row: &Row) -> Result<(ModelId, ApplicationId), Error> {
    let columns = Columns::new(row, Entity::Model, "id")?;
    Ok((columns.parse("id")?, columns.parse("application")?))
}
