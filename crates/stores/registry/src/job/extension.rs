//! Jobs of kind [`JobKind::Extend`]: a ready model, measured with one more engine.
//!
//! Many processes may look for what is missing at once. What one of them concludes it has concluded
//! from jobs that it has read; so the creation of a job names how many there were, and is without
//! effect where another one was created since.

use serde_json::Value;
use sextant_types::{EngineName, ModelId};

use super::{Job, NewJob, queue};
use crate::{Error, Model, Registry, database::Session, model, rows::int, sql};

/// What is planned for a model and an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<'a> {
    /// The model, as the planner has read it.
    pub model: &'a Model,
    /// What is to be stored.
    pub planned: PlannedExtension,
}

/// What a plan stores.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannedExtension {
    /// A step that says that nothing is to be done.
    Step {
        /// Its name.
        name: String,
        /// What it says.
        result: Value,
    },
    /// A job that extends the model by its engine.
    Job {
        /// The job.
        job: NewJob,
        /// How many there were before.
        known: usize,
    },
}

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

    /// Stores what was planned for models, while each is still the one that the planner has read and, for a
    /// job, [`extensions`](Self::extensions) has no more than the jobs that it knew. All of it is one
    /// transaction, and wakes whoever takes jobs once. Returns which of it was done.
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
