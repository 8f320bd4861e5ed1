//! One measurement per configuration.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, Error as EngineError, LoadRequest, ModelFile};
use sextant_types::{Accuracy, Code, Digest, EngineName};

use super::{Generation, Inspection, MeasureOutcome, Registration};
use crate::{
    Error, Isolation,
    configuration::{Configuration, unsupported_type},
    isolation::{
        Task,
        protocol::{Action, Order},
    },
    measure::{self, MeasureError, Measurement, Rival, Subject},
    score::{CustomMetric, ScoreError},
    step,
};

/// A configuration to be measured.
pub(super) struct Trial<'a> {
    pub engine: Arc<dyn Engine>,
    pub configuration: &'a Configuration,
    pub generated: &'a Generation,
    pub inspected: &'a Inspection,
    /// Measurements of other configurations on the same devices.
    pub rivals: &'a [Rival],
    /// Whether no earlier configuration of the same engine runs.
    pub is_needed: bool,
    /// The accuracy, if it was measured with another number of threads.
    pub accuracy: Option<Accuracy>,
}

impl Registration<'_> {
    /// Measures a configuration, or returns why it does not run.
    pub(super) async fn measure(&mut self, trial: &Trial<'_>) -> Result<MeasureOutcome, Error> {
        let name = step::measure(trial.configuration);
        let starts = match self.stored.get(&name).cloned().map(serde_json::from_value) {
            // A retry within one claim does not mean that the process ended.
            Some(Ok(MeasureOutcome::Begun { starts, claim })) => {
                starts - u32::from(claim == self.claim_number()).min(starts)
            }
            Some(Ok(_)) => return self.stored(&name).ok_or(Error::Interrupted { attempts: 0 }),
            Some(Err(_)) | None => 0,
        };
        self.begin(&name).await?;
        let measured = self.try_out(&name, starts, trial).await?;
        if !self.passing.contains_key(&name) {
            self.store(&name, &measured).await?;
        }
        Ok(measured)
    }

    /// Why a configuration of a large model is not tried, if that is so: each session that packs weights holds them
    /// once more, and an engine that maps nothing holds the file besides.
    pub(super) fn is_spared(
        &self,
        trial: &Trial<'_>,
        measured: &[(Configuration, MeasureOutcome)],
    ) -> Option<String> {
        let Generation::Made { size_bytes, .. } = trial.generated else {
            return None;
        };
        if !self.is_large(*size_bytes) {
            return None;
        }
        let size = size_bytes >> 20;
        let (threads, cores) = (trial.configuration.threads, self.parts.config.cores.max(1));
        let at_once = cores / threads.max(1);
        if trial.engine.capabilities().threads && at_once > 1 {
            return Some(format!(
                "with `{threads}` of `{cores}` threads `{at_once}` batches would run at once, each with weights of its own: \
                 the file has `{size}` MiB (`limits.map_model_bytes`)"
            ));
        }
        let maps = |name: &EngineName| {
            let engine = self.engines.iter().find(|engine| engine.name() == name.0);
            engine.is_some_and(|engine| engine.maps_weights())
        };
        let mut done = measured.iter();
        let is_served = done.any(|(before, result)| {
            matches!(result, MeasureOutcome::Done { .. }) && maps(&before.engine)
        });
        (is_served && !trial.engine.maps_weights()).then(|| {
            format!(
                "the engine holds the whole file in memory, `{size}` MiB, and others map it (`limits.map_model_bytes`)"
            )
        })
    }

    /// Records that a configuration is not tried.
    pub(super) async fn spare(
        &mut self,
        trial: &Trial<'_>,
        reason: String,
    ) -> Result<MeasureOutcome, Error> {
        let name = step::measure(trial.configuration);
        if let Some(measured) = self.stored(&name) {
            return Ok(measured);
        }
        self.begin(&name).await?;
        let measured = MeasureOutcome::Pruned { reason };
        self.store(&name, &measured).await?;
        Ok(measured)
    }

    async fn try_out(
        &mut self,
        name: &str,
        starts: u32,
        trial: &Trial<'_>,
    ) -> Result<MeasureOutcome, Error> {
        let artefact = match trial.generated {
            Generation::Made { artefact, .. } => *artefact,
            Generation::Skipped { reason } => {
                return Ok(MeasureOutcome::skipped(Code::UnsupportedOperator, reason));
            }
        };
        let capabilities = trial.engine.capabilities();
        if let Some(data_type) = unsupported_type(&capabilities, &trial.inspected.signature) {
            let reason = format!("the engine takes no tensors of {data_type}");
            return Ok(MeasureOutcome::skipped(Code::UnsupportedOperator, reason));
        }
        let crashes = self.crashes.get(trial.engine.name()).copied();
        if let Some(crashes) = crashes.filter(|crashes| *crashes >= self.parts.config.most_crashes)
        {
            let reason = format!(
                "engine `{}` crashed or did not end with `{crashes}` other configurations",
                trial.engine.name()
            );
            return Ok(MeasureOutcome::skipped(Code::EngineCrashed, reason));
        }
        if let Some(reason) = self.budget_is_spent(trial) {
            return Ok(MeasureOutcome::Pruned { reason });
        }
        // An isolated engine takes another process down, which is reported.
        let is_isolated = self.is_isolated(trial.engine.name());
        if starts >= self.parts.config.starts && !is_isolated {
            let reason = format!("the process ended `{starts}` times while it was measured");
            return Ok(MeasureOutcome::skipped(Code::EngineFailed, reason));
        }
        let begun = MeasureOutcome::Begun {
            starts: starts + 1,
            claim: self.claim_number(),
        };
        if !is_isolated {
            self.put(name, &begun).await?;
        }
        match self.run(artefact, trial).await? {
            Ok(measurement) => Ok(MeasureOutcome::Done {
                measurement: Box::new(measurement),
            }),
            Err(error) => {
                // A model that does not fit on a device is no crash: in another precision it may fit.
                let has_room = !matches!(error, MeasureError::Load(EngineError::OutOfMemory(_)));
                if let Code::EngineCrashed | Code::MemoryExceeded | Code::TimeExceeded =
                    error.code()
                    && has_room
                {
                    let engine = trial.engine.name().to_owned();
                    *self.crashes.entry(engine).or_default() += 1;
                }
                self.judge(name, error)
            }
        }
    }

    fn is_isolated(&self, engine: &str) -> bool {
        let isolation = self.parts.config.isolation.as_ref();
        isolation.is_some_and(|isolation| isolation.has(engine))
    }

    /// Why nothing more is measured, if that is so. The first configuration of each engine that runs is measured in any
    /// case.
    fn budget_is_spent(&self, trial: &Trial<'_>) -> Option<String> {
        let budget = self.parts.config.budget?;
        let is_spent = self.opened.elapsed() >= budget && !trial.is_needed;
        is_spent.then(|| {
            format!(
                "the `{}` s that registrations may take were over: raise `variants.budget_s`",
                budget.as_secs()
            )
        })
    }

    /// Leaves out a configuration that does not run, or fails the whole job.
    fn judge(&mut self, name: &str, error: MeasureError) -> Result<MeasureOutcome, Error> {
        match error {
            error if error.is_of_no_model() => Err(error.into()),
            MeasureError::Pruned(reason) => Ok(MeasureOutcome::Pruned { reason }),
            // The set does not fit the model: no other configuration can do better.
            MeasureError::Score(ScoreError::Invalid(invalid)) if !self.extends() => {
                Err(invalid.into())
            }
            // The same holds for the declared padding.
            MeasureError::Padding { .. } if !self.extends() => Err(error.into()),
            MeasureError::Refused(ref refused) if refused.is_final && !self.extends() => {
                Err(error.into())
            }
            other => {
                let skipped = MeasureOutcome::skipped(other.code(), other.to_string());
                if self.extends() && other.may_pass() {
                    self.passing.insert(name.to_owned(), other);
                }
                Ok(skipped)
            }
        }
    }

    async fn run(
        &mut self,
        artefact: Digest,
        trial: &Trial<'_>,
    ) -> Result<Result<Measurement, MeasureError>, Error> {
        let isolation = self.parts.config.isolation.clone();
        if let Some(isolation) = isolation.filter(|it| it.has(trial.engine.name())) {
            return self.run_isolated(isolation, artefact, trial).await;
        }
        let request = LoadRequest {
            artefact,
            model: self.read_artefact(artefact).await?,
            precision: trial.configuration.precision,
            optimization: trial.configuration.optimization,
            threads: trial.configuration.threads,
        };
        let validation = self
            .validation(&trial.inspected.signature, &trial.inspected.scored)
            .await?;
        let (engine, signature) = (trial.engine.clone(), trial.inspected.signature.clone());
        let (metric, effort) = (self.application.metric, self.parts.config.effort);
        let padding = self.model.padding.clone();
        let rivals = trial.rivals.to_vec();
        let (accuracy, is_half) = (trial.accuracy, trial.inspected.is_half);
        let uploaded = Arc::clone(&self.uploaded);
        let engines = self.parts.engines.clone();
        self.parts
            .threads
            .run(move |cancel| {
                let judge = validation
                    .judge()
                    .map(|graph| CustomMetric::load(graph, &engines));
                let judge = judge.transpose().map_err(ScoreError::from)?;
                let subject = Subject {
                    judge: judge.as_ref(),
                    engine: engine.as_ref(),
                    request,
                    signature: &signature,
                    validation: &validation,
                    metric,
                    padding: padding.as_ref(),
                    rivals: &rivals,
                    accuracy,
                    uploaded: Some(&uploaded),
                    is_half,
                    in_own_process: false,
                };
                measure::measure(&subject, &effort, cancel)
            })
            .await
    }

    /// The same in a process of its own.
    async fn run_isolated(
        &mut self,
        isolation: Isolation,
        artefact: Digest,
        trial: &Trial<'_>,
    ) -> Result<Result<Measurement, MeasureError>, Error> {
        let Configuration {
            precision,
            optimization,
            threads,
            ..
        } = *trial.configuration;
        let action = Action::Measure {
            engine: trial.engine.name().to_owned(),
            precision,
            optimization,
            threads,
            padding: self.model.padding.clone(),
            effort: Box::new(self.parts.config.effort),
            rivals: trial.rivals.to_vec(),
            accuracy: trial.accuracy,
            is_half: trial.inspected.is_half,
        };
        let order = self.order(action, artefact, trial.inspected);
        let file = match self.seat.has(&order, &self.validation_file()) {
            true => Bytes::new().into(),
            false => self.read_artefact(artefact).await?,
        };
        // The other process has it now: a large model is held once.
        self.artefact = None;
        let task = self.task(order, file).await?;
        let seat = self.seat.clone();
        self.parts
            .threads
            .run(move |cancel| isolation.measure(&seat, task, cancel))
            .await
    }

    /// An order about an artefact.
    pub(super) fn order(&self, action: Action, artefact: Digest, inspected: &Inspection) -> Order {
        Order {
            action,
            artefact,
            signature: inspected.signature.clone(),
            metric: self.application.metric,
            scored: inspected.scored.clone(),
            limits: self.parts.config.limits,
        }
    }

    /// An order with its files.
    pub(super) async fn task(&self, order: Order, artefact: ModelFile) -> Result<Task, Error> {
        Ok(Task {
            order,
            validation: self.set_file().await?,
            artefact: Some(artefact),
            beside: Vec::new(),
        })
    }
}
