//! Jobs of kind [`JobKind::Extend`]: a ready model is measured with one more engine.
//!
//! Several processes may look for missing measurements at once. A process plans from the jobs that it has read. So the
//! creation of a job states how many there were, and has no effect if another one was created since.

use serde_json::Value;
use sextant_types::{EngineName, ModelId};

use super::{Job, NewJob, queue};
use crate::{Error, Model, Registry, database::Session, model, rows::int, sql};

/// The plan for a model and an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<'a> {
    /// The model, as the planner has read it.
    pub model: &'a Model,
    /// What to store.
    pub planned: PlannedExtension,
}

/// The content of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannedExtension {
    /// A step that records that nothing needs to be done.
    Step {
        /// Its name.
        name: String,
        /// Its result.
        result: Value,
    },
    /// A job that extends the model by its engine.
    Job {
        /// The job.
        job: NewJob,
        /// The number of such jobs before.
        known: usize,
    },
}

impl Registry {
    /// Models that are ready, have no step of this name, and have no unfinished job that extends them by the engine,
    /// sorted by name.
    pub async fn extendable(&self, engine: &EngineName, step: &str) -> Result<Vec<Model>, Error> {
        let query = sql::EXTENDABLE_MODELS.bind(engine.0.as_str()).bind(step);
        let rows = self.read().await?.rows(query).await?;
        rows.iter().map(model::model).collect()
    }

    /// The finished and unfinished jobs that extend a model of this name by the engine, oldest first.
    pub async fn extensions(
        &self,
        model: &ModelId,
        engine: &EngineName,
    ) -> Result<Vec<Job>, Error> {
        let mut reader = self.read().await?;
        all(&mut reader, model, engine).await
    }

    /// Stores plans. A plan is stored only if its model is still the one that the planner has read. For a job,
    /// [`extensions`](Self::extensions) must also have no more than the known number of jobs. All plans are stored in
    /// one transaction, which wakes runners once. Returns which plans were stored.
    pub async fn store_plans(&self, plans: &[Plan<'_>], now_ms: u64) -> Result<Vec<bool>, Error> {
        let mut tx = self.begin().await?;
        let mut done = Vec::with_capacity(plans.len());
        for plan in plans {
            done.push(store(&mut tx, plan, now_ms).await?);
        }
        let jobs = plans.iter().zip(&done);
        let mut jobs = jobs.filter(|(plan, done)| plan.is_job() && **done);
        match jobs.next().is_some() {
            true => self.commit_work(tx).await?,
            false => tx.commit().await?,
        }
        Ok(done)
    }
}

impl Plan<'_> {
    fn is_job(&self) -> bool {
        matches!(self.planned, PlannedExtension::Job { .. })
    }
}

async fn store(tx: &mut Session, plan: &Plan<'_>, now_ms: u64) -> Result<bool, Error> {
    let model = plan.model;
    if !model::is_same(tx, model).await? {
        return Ok(false);
    }
    match &plan.planned {
        PlannedExtension::Step { name, result } => {
            model::put_step(tx, &model.id, name, result).await?;
        }
        PlannedExtension::Job { job, known } => {
            let Some(engine) = &job.engine else {
                return Ok(false);
            };
            if all(tx, &model.id, engine).await?.len() != *known {
                return Ok(false);
            }
            queue::create(tx, job, now_ms).await?;
        }
    }
    Ok(true)
}

/// Cancels every job that extends the model.
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
