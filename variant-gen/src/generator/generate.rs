//! One artefact per precision.

use sextant_engine::ModelFile;
use sextant_onnx::quantize::{Quantized, quantize_dynamic, quantize_static, quantize_weights_only};
use sextant_types::{Digest, Precision};

use super::{
    Generated, Inspected, Registration,
    calibrate::{self, Calibrated},
};
use crate::{
    Error, Isolation,
    isolation::protocol::{Action, Calibrate},
    measure::Cancel,
    step,
};

/// A quantised model and what was found out on the way, or why there is none.
type Made = Result<(Quantized, Option<String>), String>;

/// The file of a quantised model, and where it is stored.
type Kept = (ModelFile, Digest);

fn made_static(model: &ModelFile, calibrated: Calibrated) -> Made {
    let Calibrated { ranges, note } = calibrated;
    let quantized = calibrate::rewritten(model, |source| quantize_static(source, &ranges));
    quantized
        .map(|quantized| (quantized, note))
        .map_err(|error| error.to_string())
}

impl Registration<'_> {
    /// Makes the artefact of a precision, or says why there is none. The same model and
    /// validation set give the same bytes, so doing it again stores nothing new.
    pub(super) async fn generate(
        &mut self,
        precision: Precision,
        inspected: &Inspected,
    ) -> Result<Generated, Error> {
        let name = step::generate(precision);
        if let Some(generated) = self.stored(&name) {
            return Ok(generated);
        }
        self.begin(&name).await?;
        let (generated, made) = match precision {
            // Engines that compute in these convert the weights while they load.
            Precision::Fp32 | Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => {
                let generated = Generated::Made {
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
                    (Generated::Skipped { reason }, None)
                }
                Err(error) => return Err(error),
            },
        };
        self.store(&name, &generated).await?;
        if let Some((made, digest)) = made {
            self.ensure_model(&made, digest).await?;
            // By the thread that has made it: the allocator keeps what other threads free.
            self.parts.threads.run(move |_: &_| drop(made)).await?;
        }
        Ok(generated)
    }

    /// The artefact, and its file where there is one.
    async fn quantize(
        &mut self,
        precision: Precision,
        inspected: &Inspected,
    ) -> Result<(Generated, Option<Kept>), Error> {
        let model = self.read_artefact(inspected.base(&self.model).0).await?;
        let mut note = None;
        let quantized = match precision {
            Precision::Int8Static => {
                let made = self.quantize_static(model.clone(), inspected).await?;
                made.map(|(quantized, of_ranges)| {
                    note = of_ranges;
                    quantized
                })
            }
            precision => {
                let of = model.clone();
                let quantize = move |_: &_| {
                    let quantized = calibrate::rewritten(&of, |source| match precision {
                        Precision::Int8Weights => quantize_weights_only(source, 8),
                        Precision::Int4Weights => quantize_weights_only(source, 4),
                        _ => quantize_dynamic(source),
                    });
                    quantized.map_err(|error| error.to_string())
                };
                self.parts.threads.run(quantize).await?
            }
        };
        let (file, nodes) = match quantized {
            Ok(Quantized { model: made, nodes }) => (model.with_graph(made), nodes),
            Err(reason) => return Ok((Generated::Skipped { reason }, None)),
        };
        let stored = self.put_model(&file).await?;
        let generated = Generated::Made {
            artefact: stored.digest,
            size_bytes: stored.size_bytes,
            nodes,
            note,
        };
        Ok((generated, Some((file, stored.digest))))
    }

    /// With what was found out about the ranges.
    async fn quantize_static(
        &mut self,
        model: ModelFile,
        inspected: &Inspected,
    ) -> Result<Made, Error> {
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
        self.parts
            .threads
            .run(move |cancel| {
                let calibrated = calibrate::calibrate(&model, &sample, cancel)?;
                made_static(&model, calibrated)
            })
            .await
    }

    fn calibration_batch(&self, inspected: &Inspected) -> usize {
        match inspected.signature.batched {
            true => usize::from(self.parts.config.effort.evaluation_batch),
            false => 1,
        }
    }

    /// The same with ranges from a process of its own.
    async fn calibrate_isolated(
        &mut self,
        isolation: Isolation,
        (model, how): (ModelFile, Calibrate),
        inspected: &Inspected,
    ) -> Result<Made, Error> {
        let digest = inspected.base(&self.model).0;
        let action = Action::Calibrate(how);
        let order = self.order(action, digest, inspected);
        let task = self.task(order, model).await?;
        // The process that calibrates has it now.
        self.artefact = None;
        let seat = self.seat.clone();
        let run = move |cancel: &Cancel| isolation.calibrate(&seat, task, cancel);
        let calibrated = match self.parts.threads.run(run).await? {
            Err(error) if error.is_of_no_model() => return Err(error.into()),
            Err(error) => return Ok(Err(error.to_string())),
            Ok(calibrated) => calibrated,
        };
        let model = self.read_artefact(digest).await?;
        let make = move |_: &Cancel| made_static(&model, calibrated);
        self.parts.threads.run(make).await
    }
}
