//! Registers one model, step by step, or extends it by an engine.
//!
//! [`Generator::run`] may be called again and again for the same job, by different processes, after any interruption:
//! steps whose result is stored are skipped, and the others are done again. The last step stores variants, marks, the
//! model's status and the end of the job in one transaction, so a model is never registered in part.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Instant};

use prometheus_client::metrics::counter::Counter;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use sextant_engine::{Engine, ModelFile, WeightsFolder};
use sextant_metadata::MetadataStore;
use sextant_objects::ObjectStore;
use sextant_registry::{Application, Job, JobKind, Model, Registry};
use sextant_types::{Accuracy, AccuracyKind, Digest, Precision, time::unix_ms};

use crate::{
    Config, Error, Publisher,
    blocking::Threads,
    checkpoint::{Checkpoint, NoWatch, Phase},
    configuration::{self, Configuration},
    isolation::Seat,
    measure::{MeasureError, Rival, UploadedAnswers, rivals},
    step::{Generation, Inspection, MeasureOutcome},
    validation::ValidationSet,
};

pub(crate) mod adapt;
mod begun;
pub(crate) mod calibrate;
mod extend;
mod files;
mod fit;
mod generate;
mod inspect;
mod label;
mod profile;
mod publish;
mod ranks;
mod rewrite;
mod sets;
mod warnings;

/// The stores of a generator.
#[derive(Clone)]
pub struct Stores {
    /// Models, steps, variants, jobs.
    pub registry: Registry,
    /// ONNX files and validation sets.
    pub objects: Arc<dyn ObjectStore>,
    /// The store from which dispatchers learn of variants.
    pub metadata: Arc<dyn MetadataStore>,
}

/// Turns models into variants. Cheap to clone.
#[derive(Clone)]
pub struct Generator {
    parts: Arc<Parts>,
}

/// A job and its holder.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The job, of kind `register` or `extend`.
    pub job: Job,
    /// The name under which it was claimed.
    pub owner: String,
}

/// The result of a registration or an extension.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Number of variants that it made.
    pub variants: usize,
    /// The output that accuracy is measured on.
    pub scored_output: String,
    /// The variant that answers queries which name the model and no accuracy, unless another target demands something
    /// else, and its accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<(String, f64)>,
    /// The kind of the figures: `accuracy`, or `agreement` with the uploaded file.
    pub measures: AccuracyKind,
    /// What was changed in the file so that it can be served, and warnings about the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Number of variants on the frontier.
    pub frontier: usize,
    /// Number of configurations that run.
    pub configurations: usize,
    /// Configurations that were not measured in full, and why: another one is better in every way, or there was no
    /// time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pruned: BTreeMap<String, String>,
    /// Precisions and configurations that do not run, and why.
    pub skipped: BTreeMap<String, String>,
}

pub(crate) struct Parts {
    pub(crate) registry: Registry,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) publisher: Publisher,
    pub(crate) engines: Vec<Arc<dyn Engine>>,
    pub(crate) config: Config,
    pub(crate) threads: Threads,
    /// Number of steps whose result was stored.
    pub(crate) steps: Counter,
    checkpoint: Arc<dyn Checkpoint>,
}

// === impl Generator ===

impl Generator {
    /// A generator that makes variants for `engines`.
    pub fn new(stores: Stores, engines: Vec<Arc<dyn Engine>>, config: Config) -> Self {
        Self::watched(stores, engines, config, Arc::new(NoWatch))
    }

    /// The same, with a checkpoint that is called at every phase.
    pub fn watched(
        stores: Stores,
        engines: Vec<Arc<dyn Engine>>,
        config: Config,
        checkpoint: Arc<dyn Checkpoint>,
    ) -> Self {
        Self {
            parts: Arc::new(Parts {
                publisher: Publisher::new(stores.registry.clone(), stores.metadata)
                    .knowing(config.devices.clone()),
                registry: stores.registry,
                objects: stores.objects,
                engines,
                threads: Threads::start(config.places()),
                config,
                steps: Counter::default(),
                checkpoint,
            }),
        }
    }

    /// The publisher of registrations; deletions should share it.
    pub fn publisher(&self) -> &Publisher {
        &self.parts.publisher
    }

    pub(crate) fn steps(&self) -> &Counter {
        &self.parts.steps
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.parts.config
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.parts.registry
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        self.parts.objects.as_ref()
    }

    pub(crate) fn engines(&self) -> &[Arc<dyn Engine>] {
        &self.parts.engines
    }

    /// Does the remaining work of a job, up to its end. An error leaves the job as it is: the caller tries again, fails
    /// the job, or gives it back.
    pub async fn run(&self, claim: &Claim) -> Result<Summary, Error> {
        match claim.job.kind {
            JobKind::Extend => self.extend(claim).await,
            JobKind::Register | JobKind::Offline | JobKind::Measure => self.register(claim).await,
        }
    }

    async fn register(&self, claim: &Claim) -> Result<Summary, Error> {
        let mut registration = Registration::open(&self.parts, claim).await?;
        let inspected = registration.inspect().await?;
        registration.restrict().await?;
        registration.complete(&inspected).await
    }
}

// === impl Registration ===

/// A registration in progress.
struct Registration<'a> {
    parts: &'a Parts,
    claim: &'a Claim,
    model: Model,
    application: Application,
    /// Engines that read the model's file; all engines until the file is inspected.
    engines: Vec<Arc<dyn Engine>>,
    stored: BTreeMap<String, Value>,
    done: u64,
    /// Steps of an extension that failed in a way that may pass.
    passing: BTreeMap<String, MeasureError>,
    /// The artefact that was read last.
    artefact: Option<(Digest, ModelFile)>,
    /// The folder with the weights of the registered model, if it is a large one.
    weights: Option<Arc<WeightsFolder>>,
    /// A large model that was assembled from several files, and where it is stored.
    whole: Option<(ModelFile, files::StoredFile)>,
    validation: Option<Arc<ValidationSet>>,
    /// The answers in single precision to its records, for those that were compared.
    uploaded: Arc<UploadedAnswers>,
    /// The validation set with the labels, names or metric that this registration added.
    labelled: Option<Digest>,
    /// The model's own names of the scored output's classes, if its application uses others.
    own_classes: Vec<String>,
    /// The seat of the measuring process, if engines are isolated.
    seat: Seat,
    /// By engine: number of configurations that ended its process or took too long.
    crashes: BTreeMap<String, u32>,
    /// Watches this process while a step runs.
    watch: Option<begun::Watch>,
    /// When this claim was begun.
    opened: Instant,
}

impl<'a> Registration<'a> {
    async fn open(parts: &'a Parts, claim: &'a Claim) -> Result<Self, Error> {
        let job = &claim.job;
        if job.attempts > parts.config.claims {
            let attempts = job.attempts;
            return Err(Error::Interrupted { attempts });
        }
        let id = job.model.as_ref();
        let id = id.ok_or_else(|| Error::NoModel(job.id.to_string()))?;
        let model = parts.registry.model(id).await?;
        let application = parts.registry.application(&model.application).await?;
        let steps = parts.registry.steps(id).await?;
        Ok(Self {
            parts,
            claim,
            model,
            application,
            engines: parts.engines.clone(),
            stored: steps.into_iter().map(|it| (it.name, it.result)).collect(),
            done: 0,
            passing: BTreeMap::new(),
            artefact: None,
            weights: None,
            whole: None,
            validation: None,
            uploaded: Arc::default(),
            labelled: None,
            own_classes: Vec::new(),
            seat: Seat::default(),
            crashes: BTreeMap::new(),
            watch: None,
            opened: Instant::now(),
        })
    }

    /// Whether the model is ready and gets variants for one more engine.
    fn extends(&self) -> bool {
        self.claim.job.kind == JobKind::Extend
    }

    /// All steps after the inspection.
    async fn complete(&mut self, inspected: &Inspection) -> Result<Summary, Error> {
        let mut generated = BTreeMap::new();
        for precision in self.precisions() {
            let made = self.generate(precision, inspected).await?;
            generated.insert(precision, made);
        }
        let mut measured: Vec<(Configuration, MeasureOutcome)> = Vec::new();
        for (engine, configuration) in self.configurations() {
            let Some(artefact) = generated.get(&configuration.precision) else {
                continue;
            };
            let runs = |(before, result): &(Configuration, MeasureOutcome)| {
                before.engine == configuration.engine
                    && matches!(result, MeasureOutcome::Done { .. })
            };
            // A worker may have this engine alone, so its plainest configuration that runs is needed.
            let is_needed = !measured.iter().any(runs);
            let rivals = match is_needed {
                true => Vec::new(),
                false => self.rivals(&configuration, &measured),
            };
            let trial = profile::Trial {
                engine,
                configuration: &configuration,
                generated: artefact,
                inspected,
                rivals: &rivals,
                is_needed,
                accuracy: known_accuracy(&configuration, &measured),
            };
            let result = match self.is_spared(&trial, &measured) {
                Some(reason) => self.spare(&trial, reason).await?,
                None => self.measure(&trial).await?,
            };
            measured.push((configuration, result));
        }
        let outcome = publish::Outcome {
            inspected,
            generated: &generated,
            measured: &measured,
        };
        self.publish(&outcome).await
    }

    /// Leaves out the engines that do not read the file. The process that inspected it may have had other engines.
    async fn restrict(&mut self) -> Result<(), Error> {
        let file = self.read_artefact(self.model.digest).await?;
        self.engines.retain(|engine| engine.reads(&file.graph));
        Ok(())
    }

    /// The precisions of all engines, in a fixed order.
    fn precisions(&self) -> Vec<Precision> {
        let capabilities = self.engines.iter().map(|engine| engine.capabilities());
        let mut precisions: Vec<_> = capabilities.flat_map(|it| it.precisions).collect();
        precisions.sort_unstable();
        precisions.dedup();
        precisions
    }

    /// Measurements on the same devices of configurations that are as accurate as the uploaded file.
    fn rivals(
        &self,
        configuration: &Configuration,
        measured: &[(Configuration, MeasureOutcome)],
    ) -> Vec<Rival> {
        let device = |of: &Configuration| self.parts.config.device(&of.engine).name.clone();
        let here = device(configuration);
        let done = measured.iter().filter_map(|(before, measured)| {
            let MeasureOutcome::Done { measurement } = measured else {
                return None;
            };
            (device(before) == here).then_some((before, measurement.as_ref()))
        });
        rivals(&done.collect::<Vec<_>>())
    }

    /// All configurations in the order in which they are tried: the most exact and most optimised first, so that the
    /// rest finds rivals.
    fn configurations(&self) -> Vec<(Arc<dyn Engine>, Configuration)> {
        let of_engine = |engine: &Arc<dyn Engine>| {
            let capabilities = engine.capabilities();
            configuration::enumerate(engine.name(), &capabilities, self.parts.config.cores)
                .into_iter()
                .map(|configuration| (engine.clone(), configuration))
                .collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.engines.iter().flat_map(of_engine).collect();
        if self.parts.config.extremes_only {
            configuration::keep_extremes(&mut all);
        }
        // Engines stay in the configured order.
        all.sort_by_key(|(_, it)| (it.precision, Reverse(it.optimization)));
        all
    }

    /// Number of steps: `inspect` and `publish`, precisions, configurations.
    fn total_steps(&self) -> u64 {
        (2 + self.precisions().len() + self.configurations().len()) as u64
    }

    /// The stored result of a step that need not be done again. A result that another version wrote and that cannot be
    /// read is computed again.
    fn stored<T: DeserializeOwned>(&mut self, step: &str) -> Option<T> {
        let value = self.stored.get(step)?.clone();
        let result = serde_json::from_value(value).ok()?;
        self.done += 1;
        Some(result)
    }

    async fn reach(&self, step: &str, phase: Phase) -> Result<(), Error> {
        self.parts.checkpoint.reached(step, phase).await
    }

    /// Records the job's progress before a step is begun.
    async fn begin(&self, step: &str) -> Result<(), Error> {
        let (job, owner) = (&self.claim.job.id, &self.claim.owner);
        let progress = (self.done, self.total_steps());
        let registry = &self.parts.registry;
        registry
            .advance(job, owner, step, progress, unix_ms())
            .await?;
        self.reach(step, Phase::Begin).await
    }

    /// Makes a step's result durable.
    async fn store<T: Serialize>(&mut self, step: &str, result: &T) -> Result<(), Error> {
        self.reach(step, Phase::Worked).await?;
        self.put(step, result).await?;
        self.watch = None;
        self.done += 1;
        self.parts.steps.inc();
        self.reach(step, Phase::Stored).await
    }

    async fn put<T: Serialize>(&self, step: &str, result: &T) -> Result<(), Error> {
        let value = serde_json::to_value(result).map_err(|source| Error::Step {
            step: step.to_owned(),
            source,
        })?;
        let (registry, Claim { job, owner }) = (&self.parts.registry, self.claim);
        Ok(registry.put_step_held(&job.id, owner, step, &value).await?)
    }
}

/// The accuracy of a configuration that differs only in the number of threads, if measured.
fn known_accuracy(
    configuration: &Configuration,
    measured: &[(Configuration, MeasureOutcome)],
) -> Option<Accuracy> {
    let answers = |of: &Configuration| (of.engine.clone(), of.precision, of.optimization);
    let same = measured
        .iter()
        .filter(|(before, _)| answers(before) == answers(configuration));
    let mut known = same.filter_map(|(_, result)| match result {
        MeasureOutcome::Done { measurement } => Some(measurement.accuracy),
        _ => None,
    });
    known.next()
}
