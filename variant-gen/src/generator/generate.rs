//! One artefact per precision.

use bytes::Bytes;
use sextant_onnx::quantize::{Quantized, quantize_dynamic, quantize_static};
use sextant_types::Precision;

use super::{Generated, Inspected, Registration, calibrate};
use crate::{Error, step};

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
        let generated = match precision {
            // Engines that compute in these convert the weights while they load.
            Precision::Fp32 | Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => {
                Generated::Made {
                    artefact: self.model.digest,
                    size_bytes: self.model.size_bytes,
                    nodes: Vec::new(),
                }
            }
            Precision::Int8Dynamic | Precision::Int8Static => {
                self.quantize(precision, inspected).await?
            }
        };
        self.store(&name, &generated).await?;
        Ok(generated)
    }

    async fn quantize(
        &mut self,
        precision: Precision,
        inspected: &Inspected,
    ) -> Result<Generated, Error> {
        let model = self.read_artefact(self.model.digest).await?;
        let quantized = match precision {
            Precision::Int8Static => self.quantize_static(model, inspected).await?,
            _ => {
                self.parts
                    .threads
                    .run(move |_| quantize_dynamic(&model).map_err(|e| e.to_string()))
                    .await?
            }
        };
        let Quantized { model, nodes } = match quantized {
            Ok(quantized) => quantized,
            Err(reason) => return Ok(Generated::Skipped { reason }),
        };
        let size_bytes = model.len() as u64;
        Ok(Generated::Made {
            artefact: self.parts.objects.put_blob(model).await?,
            size_bytes,
            nodes,
        })
    }

    async fn quantize_static(
        &mut self,
        model: Bytes,
        inspected: &Inspected,
    ) -> Result<Result<Quantized, String>, Error> {
        let config = &self.parts.config;
        let sample = calibrate::Sample {
            engines: self.engines.clone(),
            records: config.calibration_records,
            batch: match inspected.signature.batched {
                true => usize::from(config.effort.evaluation_batch),
                false => 1,
            },
            outputs: inspected.signature.outputs.len(),
            validation: self.validation(&inspected.signature).await?,
        };
        self.parts
            .threads
            .run(move |_| {
                let ranges = calibrate::ranges(&model, &sample)?;
                quantize_static(&model, &ranges).map_err(|e| e.to_string())
            })
            .await
    }
}
