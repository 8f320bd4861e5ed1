//! Makes one artefact for each precision.

use bytes::Bytes;
use sextant_engine::ModelFile;
use sextant_types::{Digest, Precision};

use super::{Generation, Inspection, Registration, calibrate, rewrite::only};
use crate::{
    Error, Isolation,
    isolation::protocol::{Action, Calibrate},
    measure::Cancel,
    rewriting::Quantize,
    step,
};

/// A quantised model, the nodes that compute in 8 bits and a note, or why there is none.
type Quantized = Result<(Bytes, Vec<String>, Option<String>), String>;

/// The file of a quantised model, and its digest.
type QuantizedFile = (ModelFile, Digest);

impl Registration<'_> {
    /// Makes the artefact of a precision, or returns why there is none. The same model and validation set give the same
    /// bytes, so a repetition stores nothing new.
    pub(super) async fn generate(
        &mut self,
        precision: Precision,
        inspected: &Inspection,
    ) -> Result<Generation, Error> {
        let name = step::generate(precision);
        if let Some(generated) = self.stored(&name) {
            return Ok(generated);
        }
        self.begin(&name).await?;
        let (generated, made) = match precision {
            // For these precisions, engines convert the weights while they load.
            Precision::Fp32 | Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => {
                let generated = Generation::Made {
                    artefact: inspected.base(&self.model).0,
                    size_bytes: inspected.base(&self.model).1,
                    nodes: Vec::new(),
                    note: None,
                };
                (generated, None)
            }
            Precision::Int8Dynamic
            | Precision::Int8Static
            | Precision::Int8Weights
            | Precision::Int4Weights => match self.count(&name).await {
                Ok(()) => self.quantize(precision, inspected).await?,
                Err(Error::Interrupted { attempts }) => {
                    let reason = format!("the process ended `{attempts}` times while it was made");
                    (Generation::Skipped { reason }, None)
                }
                Err(error) => return Err(error),
            },
        };
        self.store(&name, &generated).await?;
        if let Some((made, digest)) = made {
            self.ensure_model(&made, digest).await?;
            // Dropped by the thread that has made it: the allocator keeps memory that other threads free.
            self.parts.threads.run(move |_: &_| drop(made)).await?;
        }
        Ok(generated)
    }

    /// The artefact, and its file if there is one.
    async fn quantize(
        &mut self,
        precision: Precision,
        inspected: &Inspection,
    ) -> Result<(Generation, Option<QuantizedFile>), Error> {
        let model = self.read_artefact(inspected.base(&self.model).0).await?;
        let quantized = match precision {
            Precision::Int8Static => self.quantize_static(model.clone(), inspected).await?,
            precision => {
                let how = Quantize { precision };
                let made = self.rewrite_file(model.clone(), Vec::new(), how).await;
                let made = made.map(only);
                unless_of_no_model(made.map(|(nodes, made)| (made, nodes, None)))?
            }
        };
        let (file, nodes, note) = match quantized {
            Ok((made, nodes, note)) => (model.with_graph(made), nodes, note),
            Err(reason) => return Ok((Generation::Skipped { reason }, None)),
        };
        let stored = self.put_model(&file).await?;
        let generated = Generation::Made {
            artefact: stored.digest,
            size_bytes: stored.size_bytes,
            nodes,
            note,
        };
        Ok((generated, Some((file, stored.digest))))
    }

    /// The same with a note about the ranges.
    async fn quantize_static(
        &mut self,
        model: ModelFile,
        inspected: &Inspection,
    ) -> Result<Quantized, Error> {
        let config = &self.parts.config;
        if let Some(isolation) = config.isolation.clone() {
            let names = self.engines.iter().map(|engine| engine.name());
            let names: Vec<String> = names.map(str::to_owned).collect();
            if names.iter().any(|name| isolation.has(name)) {
                let names = names.into_iter().filter(|name| isolation.has(name));
                let how = Calibrate {
                    engines: names.collect(),
                    records: config.calibration_records,
                    batch: self.calibration_batch(inspected),
                };
                return self
                    .calibrate_isolated(isolation, (model, how), inspected)
                    .await;
            }
        }
        let sample = calibrate::Sample {
            engines: self.engines.clone(),
            records: config.calibration_records,
            batch: self.calibration_batch(inspected),
            signature: inspected.signature.clone(),
            metric: self.application.metric,
            validation: self
                .validation(&inspected.signature, &inspected.scored)
                .await?,
        };
        let quantize = move |cancel: &_| calibrate::quantized(&model, &sample, cancel);
        let made = self.parts.threads.run(quantize).await?;
        Ok(made
            .map(only)
            .map(|((nodes, note), made)| (made, nodes, note)))
    }

    fn calibration_batch(&self, inspected: &Inspection) -> usize {
        match inspected.signature.batched {
            true => usize::from(self.parts.config.effort.evaluation_batch),
            false => 1,
        }
    }

    /// The same in a process of its own.
    async fn calibrate_isolated(
        &mut self,
        isolation: Isolation,
        (model, how): (ModelFile, Calibrate),
        inspected: &Inspection,
    ) -> Result<Quantized, Error> {
        let digest = inspected.base(&self.model).0;
        let action = Action::Calibrate(how);
        let order = self.order(action, digest, inspected);
        let task = self.task(order, model).await?;
        let seat = self.seat.clone();
        let run = move |cancel: &Cancel| isolation.rewrite(&seat, task, cancel);
        let made = match self.parts.threads.run(run).await? {
            Ok(made) => made.map_err(Error::Unable),
            Err(error) => Err(error.into()),
        };
        let made = made.map(only);
        unless_of_no_model(made.map(|((nodes, note), made)| (made, nodes, note)))
    }
}

/// An error of the model is the reason why there is no artefact; any other error ends the step.
fn unless_of_no_model<T>(made: Result<T, Error>) -> Result<Result<T, String>, Error> {
    match made {
        Ok(made) => Ok(Ok(made)),
        Err(Error::Measure(error)) if error.is_of_no_model() => Err(error.into()),
        Err(error @ (Error::Model(_) | Error::Unable(_) | Error::Measure(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
