//! Jobs of kind [`JobKind::Extend`]: a ready model, measured with one more engine.
//!
//! Many processes may look for what is missing at once. What one of them concludes it has concluded
//! from jobs that it has read; so the creation of a job names how many there were, and is without
//! effect where another one was created since.

use sextant_types::{EngineName, ModelId};

use super::{Job, NewJob, queue};
use crate::{Error, Model, Registry, database::Session, model, rows::int, sql};

impl Registry {
    /// Models that are ready, have no step of this name and no unfinished job that extends them by
    /// the engine, sorted by name.
    pub async fn extendable(&self, engine: &EngineName, step: &str) -> Result<Vec<Model>, Error> {
        let query = sql::EXTENDABLE_MODELS.bind(engine.0.as_str()).bind(step);
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(model::model).collect()
    }

    /// The jobs that extended a model of this name by the engine or do, oldest first.
    pub async fn extensions(
        &self,
        model: &ModelId,
        engine: &EngineName,
    ) -> Result<Vec<Job>, Error> {
        let mut reader = self.read().await?;
        all(&mut reader, model, engine).await
    }

    /// Creates a job that extends `model` by the engine of the job, while the model is still the one
    /// that the caller has read and [`extensions`](Self::extensions) has no more than the `known`
    /// jobs; `None` otherwise.
    pub async fn extend_model(
        &self,
        model: &Model,
        (job, known): (&NewJob, usize),
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        let Some(engine) = &job.engine else {
            return Ok(None);
        };
        let mut tx = self.begin().await?;
        let is_same = model::is_same(&mut tx, model).await?;
        if !is_same || all(&mut tx, &model.id, engine).await?.len() != known {
            return Ok(None);
        }
        let created = queue::create(&mut tx, job, now_ms).await?;
        self.commit_work(tx).await?;
        Ok(Some(created))
    }
}

/// Ends every job that extends the model.
pub(crate) async fn cancel_all(
    connection: &mut Session,
    model: &ModelId,
    now_ms: u64,
) -> Result<(), Error> {
    let query = sql::CANCEL_EXTENSIONS
        .bind(model.as_str())
        .bind(int(now_ms));
    connection.run(query).await?;
    Ok(())
}

async fn all(
    connection: &mut Session,
    model: &ModelId,
    engine: &EngineName,
) -> Result<Vec<Job>, Error> {
    let query = sql::EXTENSIONS.bind(model.as_str()).bind(engine.0.as_str());
    let rows = connection.rows(query).await?;
    rows.iter().map(queue::job).collect()
}
