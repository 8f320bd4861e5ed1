//! Measures pipelines as a whole: one job for each version and for each set of models that its steps follow.
//!
//! Every front end looks for pipelines that were not measured in their present state, and makes a job whose name
//! follows from the pipeline, its version and the followed models. So all front ends make the same job. The front end
//! that claims the job asks each record of the validation set as a query, one by one, and keeps the scores.

use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    convert::Infallible,
    hash::{BuildHasher, Hasher},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sextant_pipeline::{LoadedPipeline, Measurement, StepShare, Whole};
use sextant_registry::{Error, Failure, Job, JobKind, JobState, NewJob, PipelineMeasure};
use sextant_rpc::{
    Answer, Dispatch, Query, QueryError, StepRecord,
    examine::{Examination, ExaminationFailure, Examinee},
};
use sextant_types::{
    ApplicationId, Code, JobId, NamedTensor, Route, Tensor, VariantId, time::unix_ms,
};
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};

use super::whole::{self, SET};
use crate::{ApiState, problem::Problem};

/// How often the front end looks if nothing changes.
const EVERY: Duration = Duration::from_secs(2);

/// How long the lease of a job lasts without a renewal, and how often its holder renews it.
const LEASE_MS: u64 = 10_000;
const SIGN_EVERY: Duration = Duration::from_millis(500);

/// How long one record is asked again after an error that may pass, and the pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// Digits of a job's name.
const DIGITS: usize = 24;

/// The specification of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Spec {
    pipeline: ApplicationId,
    version: u32,
    /// The present state of the pipeline and of what its steps follow.
    followed: String,
}

/// Why a job was not completed.
enum Stop {
    /// Another front end has the job, or the job was cancelled.
    NotOurs,
    /// The pipeline, or a model that it follows, has changed meanwhile.
    Changed,
    Failed(Code, String),
}

/// Measures pipelines that need it, for as long as the service runs.
pub async fn keep(state: &ApiState) -> Infallible {
    let mut changed = state.registry().jobs_changed();
    let owner = owner();
    loop {
        if let Err(problem) = look(state, &owner).await {
            let detail = problem.detail();
            tracing::warn!(detail, "pipelines cannot be measured");
        }
        drop(timeout(EVERY, changed.changed()).await);
    }
}

/// A name for the leases of this process.
fn owner() -> String {
    format!("front-{:016x}", RandomState::new().build_hasher().finish())
}

async fn look(state: &ApiState, owner: &str) -> Result<(), Problem> {
    for name in state.pipelines().names() {
        begin(state, &name).await?;
    }
    let claimed = state
        .registry()
        .claim(JobKind::Measure, owner, LEASE_MS, unix_ms())
        .await?;
    match claimed {
        Some(job) => Ok(run(state, &job, owner).await?),
        None => Ok(()),
    }
}

fn spec(state: &ApiState, name: &ApplicationId, loaded: &LoadedPipeline) -> Option<Spec> {
    Some(Spec {
        pipeline: name.clone(),
        version: loaded.version,
        followed: whole::followed(state, loaded)?,
    })
}

/// The name of the job that measures a pipeline in its present state.
pub(crate) fn job_of(
    state: &ApiState,
    name: &ApplicationId,
    loaded: &LoadedPipeline,
) -> Option<JobId> {
    named(&spec(state, name, loaded)?)
}

fn named(spec: &Spec) -> Option<JobId> {
    let text = serde_json::to_vec(spec).ok()?;
    let mut digits = hex::encode(Sha256::digest(text));
    digits.truncate(DIGITS);
    JobId::new(format!("measure-{digits}")).ok()
}

/// Makes the job that measures a pipeline, if it needs one.
pub async fn begin(state: &ApiState, name: &ApplicationId) -> Result<(), Problem> {
    match state.pipelines().get(name) {
        Some(loaded) if matches!(&*loaded.whole(), Whole::Pending(_)) => {
            ask_for(state, name, &loaded).await
        }
        _ => Ok(()),
    }
}

/// Makes the job that measures a pipeline in its present state. If such a job has finished before, its result counts.
async fn ask_for(
    state: &ApiState,
    name: &ApplicationId,
    loaded: &LoadedPipeline,
) -> Result<(), Problem> {
    let Some(spec) = spec(state, name, loaded) else {
        return Ok(());
    };
    let Some(id) = named(&spec) else {
        return Ok(());
    };
    let registry = state.registry();
    match registry.job(&id).await {
        Ok(job) => {
            if let (JobState::Succeeded, Some(figures)) = (job.state, job.result) {
                keep_figures(state, &spec, figures).await?;
            }
            return Ok(());
        }
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let document =
        serde_json::to_value(&spec).map_err(|error| Problem::internal("the job", &error))?;
    let job = NewJob {
        id,
        ..NewJob::new(JobKind::Measure, name.clone(), document)
    };
    match registry.create_job(&job, unix_ms()).await {
        // The pipeline was deleted meanwhile.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn keep_figures(
    state: &ApiState,
    spec: &Spec,
    figures: serde_json::Value,
) -> Result<(), Error> {
    let measure = PipelineMeasure {
        version: spec.version,
        followed: spec.followed.clone(),
        figures,
        measured_ms: unix_ms(),
    };
    state
        .registry()
        .put_pipeline_measure(&spec.pipeline, &measure)
        .await?;
    state.refresh_pipeline(&spec.pipeline).await
}

async fn run(state: &ApiState, job: &Job, owner: &str) -> Result<(), Error> {
    let registry = state.registry();
    let measured = measured(state, job, owner).await;
    let recorded = match measured {
        Ok((spec, figures)) => {
            let kept = keep_figures(state, &spec, figures.clone()).await;
            match kept {
                Ok(()) => registry.finish(&job.id, owner, &figures, unix_ms()).await,
                Err(error) => Err(error),
            }
        }
        Err(Stop::NotOurs) => Ok(()),
        // The job is forgotten, so that the pipeline can be measured if this state comes back.
        Err(Stop::Changed) => {
            let failure = Failure {
                code: Code::Unavailable,
                message: "the pipeline, or a model that it follows, has changed since".to_owned(),
            };
            let failed = registry.fail(&job.id, owner, &failure, unix_ms()).await;
            failed.and(registry.forget_job(&job.id).await.map(drop))
        }
        Err(Stop::Failed(code, message)) => {
            tracing::warn!(job = %job.id, %code, message, "a pipeline was not measured");
            let failure = Failure { code, message };
            registry.fail(&job.id, owner, &failure, unix_ms()).await
        }
    };
    match recorded {
        Err(Error::Cancelled { .. } | Error::LeaseLost { .. } | Error::NotFound { .. }) => Ok(()),
        recorded => recorded,
    }
}

async fn measured(
    state: &ApiState,
    job: &Job,
    owner: &str,
) -> Result<(Spec, serde_json::Value), Stop> {
    let failed = |code: Code, why: &dyn std::fmt::Display| Stop::Failed(code, why.to_string());
    let spec: Spec =
        serde_json::from_value(job.spec.clone()).map_err(|error| failed(Code::Internal, &error))?;
    let pipeline = state.registry().pipeline(&spec.pipeline).await;
    let pipeline = pipeline.map_err(|error| failed(error.code(), &error))?;
    // Another front end may have made the job for a change that this one has not read yet.
    let read = state.refresh().await;
    read.map_err(|error| failed(error.code(), &error))?;
    let loaded = state.pipelines().get(&spec.pipeline).ok_or(Stop::Changed)?;
    if self::spec(state, &spec.pipeline, &loaded).as_ref() != Some(&spec) {
        return Err(Stop::Changed);
    }
    let (graph, digest) = match (loaded.graph(), pipeline.files.get(SET)) {
        (Ok(graph), Some(digest)) => (graph, digest),
        _ => return Err(Stop::Changed),
    };
    let set = state.objects().get_blob(digest).await;
    let set = set.map_err(|error| failed(Code::Unavailable, &error))?;
    let validation = graph.definition.validation.as_ref();
    let examination = Examination {
        set: &set,
        metric: whole::metric(state, &spec.pipeline),
        output: validation.and_then(|it| it.output.as_deref()),
        signature: &graph.signature,
    };
    let mut asking = JobExaminee::new(state, job, owner, &spec);
    let accuracy = state
        .examiner()
        .examine(examination, &mut asking)
        .await
        .map_err(|error| match (asking.is_lost, &error) {
            (true, _) => Stop::NotOurs,
            (false, ExaminationFailure::Unfit(_)) => failed(Code::InvalidValidationSet, &error),
            (false, ExaminationFailure::Unanswered { .. }) => failed(Code::Unavailable, &error),
        })?;
    // Records are answered by the version that is there when they are asked.
    let now = state.pipelines().get(&spec.pipeline).ok_or(Stop::Changed)?;
    if self::spec(state, &spec.pipeline, &now).as_ref() != Some(&spec) {
        return Err(Stop::Changed);
    }
    let figures = asking.tally.figures(accuracy);
    let figures = serde_json::to_value(figures).map_err(|error| failed(Code::Internal, &error))?;
    Ok((spec, figures))
}

/// Asks the records one by one.
struct JobExaminee<'a> {
    state: &'a ApiState,
    job: &'a Job,
    owner: &'a str,
    route: Route,
    tally: Tally,
    /// When the holder renewed the job's lease.
    signed: Option<Instant>,
    /// The job belongs to another front end now.
    is_lost: bool,
}

/// The figures of the records.
#[derive(Default)]
struct Tally {
    /// Times of records for which nothing was loaded, ms. `loaded_ms` has the others; they count only if there are no
    /// such records.
    times_ms: Vec<f64>,
    loaded_ms: Vec<f64>,
    records: u64,
    listed_usd: f64,
    charged_usd: f64,
    steps: BTreeMap<String, StepShare>,
    /// List price of a thousand rows of each variant, US dollars.
    prices: HashMap<VariantId, f64>,
}

// === impl JobExaminee ===

impl<'a> JobExaminee<'a> {
    fn new(state: &'a ApiState, job: &'a Job, owner: &'a str, spec: &Spec) -> Self {
        Self {
            state,
            job,
            owner,
            route: Route::Application(spec.pipeline.clone()),
            tally: Tally::default(),
            signed: None,
            is_lost: false,
        }
    }

    /// Renews the lease and records the job's progress.
    async fn sign(&mut self, done: usize, all: usize) -> Result<(), String> {
        if self.signed.is_some_and(|at| at.elapsed() < SIGN_EVERY) {
            return Ok(());
        }
        self.signed = Some(Instant::now());
        let (registry, id, owner) = (self.state.registry(), &self.job.id, self.owner);
        let progress = (done as u64, all as u64);
        let told = match registry.renew(id, owner, LEASE_MS, unix_ms()).await {
            Ok(()) => {
                registry
                    .advance(id, owner, "measuring", progress, unix_ms())
                    .await
            }
            Err(error) => Err(error),
        };
        match told {
            Ok(()) => Ok(()),
            Err(
                error
                @ (Error::Cancelled { .. } | Error::LeaseLost { .. } | Error::NotFound { .. }),
            ) => {
                self.is_lost = true;
                Err(error.to_string())
            }
            Err(error) => {
                tracing::warn!(job = %id, %error, "the lease was not renewed");
                Ok(())
            }
        }
    }

    async fn ask(&mut self, record: &[NamedTensor], at: (usize, usize)) -> Result<Answer, String> {
        let begun = Instant::now();
        loop {
            self.sign(at.0, at.1).await?;
            let query = Query {
                explain: true,
                ..Query::new(self.route.clone(), record.to_vec(), Instant::now())
            };
            match self.state.pipelines().query(query).await {
                Ok(answer) => return Ok(answer),
                Err(error) if may_pass(&error) && begun.elapsed() < PATIENCE => sleep(PAUSE).await,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Learns what the variants of an answer list, as far as that is not known yet.
    async fn read_prices(&mut self, answer: &Answer, at: (usize, usize)) -> Result<(), String> {
        let variants = steps(answer).iter().filter_map(|it| it.variant.as_ref());
        let unknown = variants.filter(|it| !self.tally.prices.contains_key(*it));
        for variant in unknown.cloned().collect::<Vec<_>>() {
            let price = self.price(&variant, at).await?;
            self.tally.prices.insert(variant, price);
        }
        Ok(())
    }

    /// What a thousand rows of a variant list, US dollars; nothing of a pipeline that is a step, whose own steps list it.
    async fn price(&mut self, variant: &VariantId, at: (usize, usize)) -> Result<f64, String> {
        let begun = Instant::now();
        loop {
            match self.state.registry().variant(variant).await {
                Ok(found) => return Ok(found.cost_per_1k_usd),
                Err(Error::NotFound { .. }) => return Ok(0.0),
                Err(error) if error.is_retryable() && begun.elapsed() < PATIENCE => {
                    self.sign(at.0, at.1).await?;
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// What became of the steps of an answer.
fn steps(answer: &Answer) -> &[StepRecord] {
    match &answer.explanation {
        Some(explanation) => &explanation.steps,
        None => &[],
    }
}

fn may_pass(error: &QueryError) -> bool {
    error.code.kind().is_retryable()
}

#[async_trait]
impl Examinee for JobExaminee<'_> {
    async fn answer(
        &mut self,
        record: Vec<NamedTensor>,
        output: &str,
        (done, all): (usize, usize),
    ) -> Result<Tensor, String> {
        let answer = self.ask(&record, (done, all)).await?;
        self.read_prices(&answer, (done, all)).await?;
        self.tally.count(&answer);
        let mut outputs = answer.outputs.into_iter();
        let found = outputs.find(|it| it.name == output);
        found
            .map(|it| it.tensor)
            .ok_or_else(|| format!("it has no output `{output}`"))
    }
}

// === impl Tally ===

impl Tally {
    fn count(&mut self, answer: &Answer) {
        self.records += 1;
        self.charged_usd += answer.cost_usd;
        let total_ms = answer.timings.total_us / 1e3;
        match answer.timings.load_us > 0.0 {
            true => self.loaded_ms.push(total_ms),
            false => self.times_ms.push(total_ms),
        }
        for step in steps(answer) {
            let share = self.steps.entry(step.name.clone()).or_default();
            share.count(step);
            self.listed_usd += self.listed(step);
        }
    }

    /// List price of a step's rows, US dollars.
    fn listed(&self, step: &StepRecord) -> f64 {
        let price = step.variant.as_ref().and_then(|it| self.prices.get(it));
        price.copied().unwrap_or_default() / 1000.0 * f64::from(step.rows)
    }

    fn figures(mut self, accuracy: sextant_types::Accuracy) -> Measurement {
        let times = match self.times_ms.is_empty() {
            true => &mut self.loaded_ms,
            false => &mut self.times_ms,
        };
        times.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = (times.len() as f64 * share).ceil() as usize;
            times.get(at.saturating_sub(1)).copied().unwrap_or_default()
        };
        let of_thousand = |usd: f64| usd / self.records.max(1) as f64 * 1000.0;
        Measurement {
            accuracy,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            cost_per_1k_usd: of_thousand(self.listed_usd),
            charged_per_1k_usd: of_thousand(self.charged_usd),
            steps: self.steps,
        }
    }
}
