//! From the file that was uploaded to the one that variants are made from.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest};
use sextant_objects::digest_of;
use sextant_onnx::{
    ModelInfo,
    adapt::{self, Plain},
    external::{self, Files},
    inspect,
    turn::turn,
};
use sextant_registry::METRIC_FILE;
use sextant_types::{Optimization, Precision, Signature};

use super::Registration;
use crate::{
    Error, Isolation,
    isolation::{Task, protocol::Action, protocol::Order},
    measure::{self, MeasureError},
    validation::Scored,
};

/// A file that can be served.
pub(super) struct Readable {
    pub(super) info: ModelInfo,
    pub(super) scored: Scored,
    /// The file, where it is not the one that was uploaded.
    pub(super) adapted: Option<Bytes>,
    pub(super) changes: Vec<String>,
    /// Outputs that keep the model from taking batches.
    pub(super) astray: Vec<String>,
}

/// Said where tensors kept their data in other files.
const EMBEDDED: &str = "the data of the files beside the model is put into it";

/// Said where a model is declared without a batch dimension and takes batches all the same.
const WIDENED: &str = "its inputs or outputs are declared without a batch dimension; batches of 1, 2 and 3 \
                       records are answered as the records are one by one, so it is served in batches";

/// Said where the batch dimension stands elsewhere.
const TURNED: &str = "its batch dimension is not the first one of each input and output; they are transposed, and batches \
                      of 1, 2 and 3 records are answered as the records are one by one";

/// What can be seen of a file without running it.
struct Look {
    plain: Plain,
    info: ModelInfo,
    /// With a batch dimension, where it is declared without one and may have one.
    /// Beside what is said of it.
    wide: Option<(ModelInfo, Bytes, &'static str)>,
}

/// The file with the data beside it, its inputs and outputs made tensors.
fn embedded(file: &Bytes, data: &Files, outputs: &[String]) -> Result<Plain, sextant_onnx::Error> {
    let whole = external::embed(file, data)?;
    let mut plain = adapt::plain(whole.as_ref().unwrap_or(file), outputs)?;
    if whole.is_some() {
        plain.changes.push(EMBEDDED.to_owned());
    }
    Ok(plain)
}

impl Look {
    fn at(plain: Plain) -> Result<Self, sextant_onnx::Error> {
        let info = inspect(&plain.model)?;
        let wide = match info.signature.batched {
            true => None,
            false => match turn(&plain.model)? {
                Some(turned) => Some((turned, TURNED)),
                None => adapt::widen(&plain.model)?.map(|wide| (wide, WIDENED)),
            },
        };
        let wide = wide.map(|(wide, how)| {
            let info = inspect(&wide)?;
            Ok::<_, sextant_onnx::Error>((info, wide, how))
        });
        Ok(Self {
            wide: wide.transpose()?,
            plain,
            info,
        })
    }
}

impl Registration<'_> {
    /// Makes every output a tensor, finds the output that is scored, and finds out by running it whether a
    /// model that is declared without a batch dimension takes batches.
    pub(super) async fn read_onnx(
        &mut self,
        bytes: Bytes,
        engines: &[Arc<dyn Engine>],
    ) -> Result<Readable, Error> {
        let outputs = self.model.outputs.clone();
        let data = self.data_files().await?;
        let file = bytes.clone();
        let embed = move |_: &_| embedded(&file, &data, &outputs);
        let plain = self.parts.threads.run(embed).await??;
        let (plain, unknown) = self.find_ranks(plain, engines).await?;
        let look = self.parts.threads.run(move |_| Look::at(plain));
        let Look { plain, info, wide } = look.await??;
        let scored = self.scored(&plain, &info);
        if let Some(input) = unknown.inputs.first()
            && info.signature.batched
        {
            self.check_batches((&plain.model, input), (&info.signature, &scored), engines)
                .await?;
        }
        let mut readable = Readable {
            scored,
            info,
            changes: plain.changes.clone(),
            adapted: (plain.model != bytes).then(|| plain.model.clone()),
            astray: Vec::new(),
        };
        let Some((info, wide, how)) = wide.filter(|(info, ..)| info.signature.batched) else {
            return Ok(readable);
        };
        let scored = self.scored(&plain, &info);
        let differ = self
            .differing_outputs(&wide, &info.signature, &scored, engines)
            .await?;
        let name = |at: &usize| Some(info.signature.outputs.get(*at)?.name.clone());
        readable.astray = differ.iter().flatten().filter_map(name).collect();
        if differ.is_some_and(|differ| differ.is_empty()) {
            readable.changes.push(how.to_owned());
            readable = Readable {
                info,
                scored,
                adapted: Some(wide),
                ..readable
            };
        }
        Ok(readable)
    }

    /// What is scored: the first of the outputs that were named, or the one that the metric is meant for.
    fn scored(&self, plain: &Plain, info: &ModelInfo) -> Scored {
        let mut scored = match self.model.outputs.is_empty() {
            true => Scored::by(self.application.metric, &info.signature),
            false => Scored::default(),
        };
        scored.classes = classes(plain, &info.signature, scored.output);
        scored
    }

    /// The files beside the model's file.
    async fn data_files(&self) -> Result<Files, Error> {
        let mut files = Files::new();
        let beside = self.model.data.iter();
        for file in beside.filter(|file| file.name != METRIC_FILE) {
            let bytes = self.parts.objects.get_blob(&file.digest).await?;
            files.insert(file.name.clone(), bytes);
        }
        Ok(files)
    }

    /// The outputs by which batches differ from their records; `None` where that cannot be found out.
    pub(super) async fn differing_outputs(
        &mut self,
        model: &Bytes,
        signature: &Signature,
        scored: &Scored,
        engines: &[Arc<dyn Engine>],
    ) -> Result<Option<Vec<usize>>, Error> {
        let isolation = self.parts.config.isolation.clone();
        let is_isolated = |engine: &&Arc<dyn Engine>| {
            let isolation = isolation.as_ref();
            isolation.is_some_and(|isolation| isolation.has(engine.name()))
        };
        let isolated = engines.iter().find(is_isolated);
        let differ = match (isolated, isolation.clone()) {
            (Some(engine), Some(isolation)) => {
                let action = Action::Batches {
                    engine: engine.name().to_owned(),
                };
                let order = Order {
                    action,
                    artefact: digest_of(model),
                    signature: signature.clone(),
                    metric: self.application.metric,
                    scored: scored.clone(),
                    limits: self.parts.config.limits,
                };
                self.batches_isolated(isolation, order, model.clone())
                    .await?
            }
            _ => {
                self.batches_here(model, signature, scored, engines.first())
                    .await?
            }
        };
        if differ.as_ref().is_none_or(|differ| !differ.is_empty()) {
            // What was read for the wider model does not fit the other.
            self.validation = None;
            self.seat = Default::default();
        }
        Ok(differ)
    }

    async fn batches_isolated(
        &mut self,
        isolation: Isolation,
        order: Order,
        model: Bytes,
    ) -> Result<Option<Vec<usize>>, Error> {
        let validation = self.validation_file();
        let task = Task {
            artefact: (order.artefact, model),
            order,
            validation: (validation, self.parts.objects.get_blob(&validation).await?),
        };
        let seat = self.seat.clone();
        let run = self
            .parts
            .threads
            .run(move |cancel| isolation.batches(&seat, task, cancel));
        judge(run.await?)
    }

    async fn batches_here(
        &mut self,
        model: &Bytes,
        signature: &Signature,
        scored: &Scored,
        engine: Option<&Arc<dyn Engine>>,
    ) -> Result<Option<Vec<usize>>, Error> {
        let Some(engine) = engine.cloned() else {
            return Ok(None);
        };
        let validation = match self.validation(signature, scored).await {
            Err(Error::Validation(_)) => return Ok(None),
            validation => validation?,
        };
        let request = request(model);
        let run = self.parts.threads.run(move |cancel| {
            measure::differing_outputs(engine.as_ref(), &request, &validation, cancel)
        });
        judge(run.await?)
    }
}

/// A file as engines load it to be looked at.
pub(crate) fn request(model: &Bytes) -> LoadRequest {
    LoadRequest {
        artefact: digest_of(model),
        model: model.clone(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

/// A model that cannot be run in batches takes none; only a stop is passed on.
fn judge(differ: Result<Vec<usize>, MeasureError>) -> Result<Option<Vec<usize>>, Error> {
    match differ {
        Err(MeasureError::Cancelled) => Err(MeasureError::Cancelled.into()),
        differ => Ok(differ.ok()),
    }
}

fn classes(plain: &Plain, signature: &Signature, output: usize) -> Vec<String> {
    let output = signature.outputs.get(output);
    let named = |(name, _): &&(String, Vec<String>)| output.is_some_and(|it| it.name == *name);
    let classes = plain.classes.iter().find(named);
    classes
        .map(|(_, classes)| classes.clone())
        .unwrap_or_default()
}
