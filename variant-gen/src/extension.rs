//! Finds registered models that were not measured with this process's engines.
//!
//! A model gets variants for the engines of the process that registers it. A process with another engine that reads the
//! model's file adds the missing variants, as a job of its own ([`JobKind::Extend`]) that only processes with that
//! engine can claim. The outcome of a model and an engine follows from the model's steps and its jobs, whoever ran
//! them: a job that succeeded or was cancelled is the last one; a job that failed is followed by another after a pause
//! that doubles. A final outcome is recorded as a step of the model, `extend:{engine}`, so that no process looks again.

use serde_json::json;
use sextant_engine::Engine;
use sextant_registry::{Job, JobKind, JobState, Model, NewJob, Plan, PlannedExtension, Step};
use sextant_types::{EngineName, Variant, time::unix_ms};
use tracing::{info, warn};

use crate::{
    Error, Generator,
    step::{self, ExtensionResult, MeasureOutcome},
};

/// Longest pause after a failure.
const LONGEST_PAUSE_MS: u64 = 24 * 60 * 60 * 1000;

/// Most bytes of a file that are read to recognise a manifest.
const MOST_MANIFEST_BYTES: u64 = 1 << 20;

/// What to do about a model and an engine.
enum Verdict {
    /// Nothing any more.
    Settled(ExtensionResult),
    /// Create a job, after this many earlier ones of the model.
    Begin { earlier: usize },
    /// Nothing before this time, ms since the Unix epoch.
    Later(u64),
}

/// The result of a look at a model and an engine.
enum LookOutcome {
    /// This is to be stored.
    Planned(PlannedExtension),
    /// Nothing before this time, ms since the Unix epoch.
    Later(u64),
}

/// What is known about a model and an engine.
struct ExtensionContext<'a> {
    engine: &'a EngineName,
    variants: &'a [Variant],
    steps: &'a [Step],
    /// Jobs of this model, and not of earlier models with its name.
    jobs: &'a [Job],
}

/// Most entries that are stored in one transaction.
const BATCH: usize = 64;

impl Generator {
    /// Creates the jobs that are missing for the engines of this process. Returns when the next failed job is due, ms
    /// since the Unix epoch.
    pub async fn plan(&self) -> Result<Option<u64>, Error> {
        let mut due: Option<u64> = None;
        for engine in self.engines() {
            let name = EngineName(engine.name().to_owned());
            let models = self
                .registry()
                .extendable(&name, &step::extend(&name))
                .await?;
            for models in models.chunks(BATCH) {
                let mut plans = Vec::new();
                for model in models {
                    match self.look_at(model, engine.as_ref()).await {
                        Ok(LookOutcome::Planned(planned)) => plans.push(Plan { model, planned }),
                        Ok(LookOutcome::Later(at)) => due = Some(due.map_or(at, |due| due.min(at))),
                        // Other models may be sound.
                        Err(error) => {
                            warn!(model = %model.id, engine = %name, %error, "nothing can be planned");
                        }
                    }
                }
                self.store(&name, &plans).await?;
            }
        }
        Ok(due)
    }

    async fn store(&self, engine: &EngineName, plans: &[Plan<'_>]) -> Result<(), Error> {
        if plans.is_empty() {
            return Ok(());
        }
        let done = self.registry().store_plans(plans, unix_ms()).await?;
        for (plan, _) in plans.iter().zip(done).filter(|(_, done)| *done) {
            if let PlannedExtension::Job { job, .. } = &plan.planned {
                info!(job = %job.id, model = %plan.model.id, %engine, "to be extended");
            }
        }
        Ok(())
    }

    async fn look_at(&self, model: &Model, engine: &dyn Engine) -> Result<LookOutcome, Error> {
        let registry = self.registry();
        let name = EngineName(engine.name().to_owned());
        let steps = registry.steps(&model.id).await?;
        let variants = registry.variants_of(&model.id).await?;
        let all = registry.extensions(&model.id, &name).await?;
        let known = all.len();
        let jobs: Vec<Job> = all.into_iter().filter(|job| is_of(job, model)).collect();
        let about = ExtensionContext {
            engine: &name,
            variants: &variants,
            steps: &steps,
            jobs: &jobs,
        };
        let settled = match about.verdict(self.config().extension_back_off.as_millis()) {
            Verdict::Settled(settled) => settled,
            Verdict::Later(at) => return Ok(LookOutcome::Later(at)),
            Verdict::Begin { earlier: 0 } if !self.reads(engine, model).await? => {
                ExtensionResult::NotRead
            }
            Verdict::Begin { earlier } => {
                let job = new_job(model, &name, earlier);
                return Ok(LookOutcome::Planned(PlannedExtension::Job { job, known }));
            }
        };
        Ok(LookOutcome::Planned(note(&name, settled)?))
    }

    async fn reads(&self, engine: &dyn Engine, model: &Model) -> Result<bool, Error> {
        // A manifest is small, so its beginning contains all of it.
        let head = self
            .objects()
            .get_blob_range(&model.digest, 0..MOST_MANIFEST_BYTES);
        Ok(engine.reads(&head.await?))
    }
}

/// The record that nothing more is to be done about a model and an engine.
fn note(engine: &EngineName, settled: ExtensionResult) -> Result<PlannedExtension, Error> {
    let name = step::extend(engine);
    match serde_json::to_value(settled) {
        Ok(result) => Ok(PlannedExtension::Step { name, result }),
        Err(source) => Err(Error::Step { step: name, source }),
    }
}

/// A job for a model and an engine. It says which model with that name it is for, and how many jobs went before it.
fn new_job(model: &Model, engine: &EngineName, earlier: usize) -> NewJob {
    let spec = json!({
        "model": model.id,
        "application": model.application,
        "engine": engine,
        "registered_ms": model.created_ms,
        "earlier": earlier,
    });
    NewJob::new(JobKind::Extend, model.application.clone(), spec)
        .for_model(model.id.clone())
        .for_engine(engine.clone())
}

fn is_of(job: &Job, model: &Model) -> bool {
    job.spec["registered_ms"] == json!(model.created_ms)
}

/// Number of jobs before this one.
pub(crate) fn earlier(job: &Job) -> u32 {
    let earlier = job.spec["earlier"].as_u64().unwrap_or(0);
    u32::try_from(earlier).unwrap_or(u32::MAX)
}

// === impl ExtensionContext ===

impl ExtensionContext<'_> {
    fn verdict(&self, back_off_ms: u128) -> Verdict {
        let ended = |state| self.jobs.iter().any(|job| job.state == state);
        if ended(JobState::Succeeded) {
            return Verdict::Settled(ExtensionResult::Done);
        }
        if ended(JobState::Cancelled) {
            return Verdict::Settled(ExtensionResult::Cancelled);
        }
        let Some(latest_ms) = self.jobs.iter().map(|job| job.updated_ms).max() else {
            return match self.is_of_registration() {
                true => Verdict::Settled(ExtensionResult::Registered),
                false => Verdict::Begin { earlier: 0 },
            };
        };
        let earlier = self.jobs.len();
        let at = latest_ms.saturating_add(pause_ms(earlier, back_off_ms));
        match at <= unix_ms() {
            true => Verdict::Begin { earlier },
            false => Verdict::Later(at),
        }
    }

    /// Whether the process that registered the model had the engine: the model then has variants of it, or was found
    /// not to run. Neither holds if one process measured with it and another finished the registration without it.
    fn is_of_registration(&self) -> bool {
        let mut variants = self.variants.iter();
        variants.any(|it| it.spec.engine == *self.engine) || self.runs_in_no_way()
    }

    fn runs_in_no_way(&self) -> bool {
        let of_engine = |step: &&Step| step::measured_engine(&step.name) == Some(&self.engine.0);
        let mut measured = self.steps.iter().filter(of_engine).peekable();
        let is_skipped = |step: &Step| {
            let measured = serde_json::from_value(step.result.clone());
            matches!(
                measured,
                Ok(MeasureOutcome::Skipped { .. } | MeasureOutcome::Pruned { .. })
            )
        };
        measured.peek().is_some() && measured.all(is_skipped)
    }
}

/// The pause after `failures` failures.
fn pause_ms(failures: usize, back_off_ms: u128) -> u64 {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = back_off_ms.saturating_mul(2u128.saturating_pow(doublings));
    u64::try_from(pause).map_or(LONGEST_PAUSE_MS, |pause| pause.min(LONGEST_PAUSE_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_day() {
        let pauses = [1, 2, 3, 10].map(|failures| pause_ms(failures, 60_000));
        assert_eq!(pauses, [60_000, 120_000, 240_000, 512 * 60_000]);
        for many in [12, 64, 1 << 40] {
            assert_eq!(pause_ms(many, 60_000), LONGEST_PAUSE_MS);
        }
    }
}
