//! One measurement per configuration.

use std::sync::Arc;

use sextant_engine::{Engine, LoadRequest};
use sextant_types::{Code, Digest};

use super::{Generated, Inspected, Measured, Registration};
use crate::{
    Error,
    configuration::{Configuration, unsupported_type},
    measure::{self, MeasureError, Measurement, Subject},
    score::ScoreError,
    step,
};

/// A configuration to be tried.
pub(super) struct Trial<'a> {
    pub engine: Arc<dyn Engine>,
    pub configuration: &'a Configuration,
    pub generated: &'a Generated,
    pub inspected: &'a Inspected,
}

impl Registration<'_> {
    /// Measures a configuration, or says why it does not run.
    pub(super) async fn measure(&mut self, trial: &Trial<'_>) -> Result<Measured, Error> {
        let name = step::measure(trial.configuration);
        let starts = match self.stored.get(&name).cloned().map(serde_json::from_value) {
            // Trying again within one claim is no sign of a process that ended.
            Some(Ok(Measured::Begun { starts, claim })) => {
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

    async fn try_out(
        &mut self,
        name: &str,
        starts: u32,
        trial: &Trial<'_>,
    ) -> Result<Measured, Error> {
        let artefact = match trial.generated {
            Generated::Made { artefact, .. } => *artefact,
            Generated::Skipped { reason } => {
                return Ok(Measured::skipped(Code::UnsupportedOperator, reason));
            }
        };
        let capabilities = trial.engine.capabilities();
        if let Some(data_type) = unsupported_type(&capabilities, &trial.inspected.signature) {
            let reason = format!("the engine takes no tensors of {data_type}");
            return Ok(Measured::skipped(Code::UnsupportedOperator, reason));
        }
        if starts >= self.parts.config.starts {
            let reason = format!("the process ended `{starts}` times while it was measured");
            return Ok(Measured::skipped(Code::EngineFailed, reason));
        }
        let begun = Measured::Begun {
            starts: starts + 1,
            claim: self.claim_number(),
        };
        self.put(name, &begun).await?;
        match self.run(artefact, trial).await? {
            Ok(measurement) => Ok(Measured::Done {
                measurement: Box::new(measurement),
            }),
            Err(error) => self.judge(name, error),
        }
    }

    /// Whether a configuration that does not run is left out, or the whole job ends.
    fn judge(&mut self, name: &str, error: MeasureError) -> Result<Measured, Error> {
        match error {
            MeasureError::Cancelled => Err(error.into()),
            // The set does not fit the model: no other configuration can do better.
            MeasureError::Score(ScoreError::Invalid(invalid)) if !self.extends() => {
                Err(invalid.into())
            }
            // So does what was declared of its padding.
            MeasureError::Padding { .. } if !self.extends() => Err(error.into()),
            other => {
                let skipped = Measured::skipped(other.code(), other.to_string());
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
        let request = LoadRequest {
            artefact,
            model: self.read_artefact(artefact).await?,
            precision: trial.configuration.precision,
            optimization: trial.configuration.optimization,
            threads: trial.configuration.threads,
        };
        let validation = self.validation(&trial.inspected.signature).await?;
        let (engine, signature) = (trial.engine.clone(), trial.inspected.signature.clone());
        let (metric, effort) = (self.application.metric, self.parts.config.effort);
        let padding = self.model.padding.clone();
        self.parts
            .threads
            .run(move |cancel| {
                let subject = Subject {
                    engine: engine.as_ref(),
                    request,
                    signature: &signature,
                    validation: &validation,
                    metric,
                    padding: padding.as_ref(),
                };
                measure::measure(&subject, &effort, cancel)
            })
            .await
    }
}
