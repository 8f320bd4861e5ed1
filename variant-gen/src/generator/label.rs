//! Labels for a validation set without labels: the answers of the uploaded file.

use std::sync::Arc;

use sextant_engine::{Engine, ModelFile};
use sextant_objects::digest_of;
use sextant_registry::METRIC_FILE;
use sextant_types::{Code, Metric, Signature};

use super::{Registration, adapt::request, sets::WrappedSet};
use crate::{
    Error,
    isolation::{
        Task,
        protocol::{Action, Order},
    },
    measure,
    validation::{Labels, ScoringTarget},
};

impl Registration<'_> {
    /// Stores the validation set with the graph of the metric, and uses that set from now on, if the application has a
    /// custom metric.
    pub(super) async fn take_judge(&mut self) -> Result<Option<WrappedSet>, Error> {
        let graph = self.model.data.iter().find(|file| file.name == METRIC_FILE);
        let is_custom = self.application.metric == Metric::Custom;
        let refuse = |why: &str| Err(Error::MetricModel(why.to_owned()));
        let graph = match (is_custom, graph) {
            (false, None) => return Ok(None),
            (true, None) => {
                return refuse(
                    "the application is scored by `custom`: send the metric's graph with `--metric-model FILE`",
                );
            }
            (false, Some(_)) => {
                return refuse(
                    "a metric's graph is given, and the application is scored by another metric: leave \
                     `--metric-model` out, or make an application with `--metric custom`",
                );
            }
            (true, Some(graph)) => graph.digest,
        };
        Ok(Some(self.wrap(|front| front, Some(graph)).await?))
    }

    /// Stores the validation set with the answers of `file` to its records, and uses that set from now on.
    pub(super) async fn label(
        &mut self,
        file: ModelFile,
        of: (&Signature, &ScoringTarget),
        engines: &[Arc<dyn Engine>],
    ) -> Result<WrappedSet, Error> {
        let labels = self.first_answers(file, of, engines).await?;
        let labelled = self.wrap(|front| front.labelled(labels), None).await?;
        self.validation = None;
        Ok(labelled)
    }

    /// The answers of the first engine that runs the file.
    async fn first_answers(
        &mut self,
        file: ModelFile,
        of: (&Signature, &ScoringTarget),
        engines: &[Arc<dyn Engine>],
    ) -> Result<Vec<Labels>, Error> {
        let mut reasons = Vec::new();
        for engine in engines {
            match self.answers(file.clone(), of, engine.clone()).await {
                Err(Error::Measure(error)) if error.is_of_the_engine() => {
                    reasons.push(format!("engine `{}`: {error}", engine.name()));
                }
                answered => return answered,
            }
        }
        if reasons.is_empty() {
            reasons.push("no engine here reads it".to_owned());
        }
        let reasons = reasons.join("; ");
        Err(Error::NothingRuns {
            code: Code::UnsupportedOperator,
            reasons: format!("{reasons}; and the validation set has no labels"),
        })
    }

    async fn answers(
        &mut self,
        file: ModelFile,
        (signature, scored): (&Signature, &ScoringTarget),
        engine: Arc<dyn Engine>,
    ) -> Result<Vec<Labels>, Error> {
        let metric = self.application.metric;
        let batch = match signature.batched {
            true => usize::from(self.parts.config.effort.evaluation_batch).max(1),
            false => 1,
        };
        let isolation = self.parts.config.isolation.clone();
        if let Some(isolation) = isolation.filter(|it| it.has(engine.name())) {
            let task = Task {
                order: Order {
                    action: Action::Answers {
                        engine: engine.name().to_owned(),
                        batch,
                    },
                    artefact: digest_of(&file.graph),
                    signature: signature.clone(),
                    metric,
                    scored: scored.clone(),
                    limits: self.parts.config.limits,
                },
                validation: self.set_file().await?,
                artefact: Some(file),
                beside: Vec::new(),
            };
            let seat = self.seat.clone();
            let run = move |cancel: &_| isolation.answers(&seat, task, cancel);
            return Ok(self.parts.threads.run(run).await??);
        }
        let validation = self.validation(signature, scored).await?;
        let run = move |cancel: &_| {
            let how = (metric, batch);
            measure::answers(engine.as_ref(), &request(&file), &validation, how, cancel)
        };
        Ok(self.parts.threads.run(run).await??)
    }
}
