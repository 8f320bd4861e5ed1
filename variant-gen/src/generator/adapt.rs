//! Makes the file that variants are made from out of the uploaded file.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, ModelFile};
use sextant_objects::digest_of;
use sextant_onnx::{
    ModelInfo,
    adapt::{self, Plain},
};
use sextant_types::{Optimization, Precision, Signature};

use super::{Registration, inspect::is_half, rewrite::only, sets::WrappedSet};
use crate::{
    Error, Isolation,
    isolation::{
        Task,
        protocol::{Action, Order, Origin},
    },
    measure::{self, Batches, MeasureError},
    rewriting::{Lone, Look, OTHERS, WidenedFile},
    validation::{RecordShapes, ScoringTarget},
};

/// A file that can be served.
pub(super) struct ServableFile {
    pub(super) info: ModelInfo,
    pub(super) scored: ScoringTarget,
    /// The file, if it is not the uploaded one.
    pub(super) adapted: Option<ModelFile>,
    pub(super) changes: Vec<String>,
    /// Outputs that keep the model from taking batches.
    pub(super) astray: Vec<String>,
    /// Why queries share no batches, if that was found.
    pub(super) apart: Option<String>,
    /// The validation set with the names of inputs that it names otherwise.
    pub(super) named: Option<WrappedSet>,
}

/// Message if a record has as many dimensions as an input.
const WHOLE: &str = "the records of the validation set have as many dimensions as its inputs, so the first one is no batch \
                     dimension: a query is one record";

/// Message if records of a batch affect each other.
const ALONE: &str = "its first dimension is declared as one of batches, and a batch of records cannot be run or is not \
                     answered as the records are one by one, so a query is one record";

/// Message for a file that was exported with one record in every shape and cannot be widened.
const FIXED: &str = "it takes no batches: export it with a first dimension that is dynamic (`dynamic_shapes` of \
                     `torch.onnx.export`, an open batch dimension elsewhere)";

/// Why a file that was exported with one record cannot be widened, if an output has no row for the record.
fn without_rows(signature: &Signature) -> Option<String> {
    let size = adapt::fixed_batch(signature).filter(|_| !signature.batched)?;
    let mut outputs = signature.outputs.iter();
    let astray = outputs.find(|output| output.shape.first() != Some(&Some(size)))?;
    Some(format!(
        "it takes no batches: output `{}` is {}, whose first dimension counts no records as that of the inputs does; have \
         the records come first in it, and export it with a first dimension that is dynamic",
        astray.name,
        astray.shape_text()
    ))
}

impl Registration<'_> {
    /// Makes every output a tensor, finds the scored output, and finds out, by running it, whether a model that is
    /// declared without a batch dimension takes batches.
    pub(super) async fn read_onnx(
        &mut self,
        uploaded: ModelFile,
        engines: &[Arc<dyn Engine>],
    ) -> Result<ServableFile, Error> {
        let (file, changed) = match self.with_data(&uploaded).await? {
            Some((file, change)) => (file, Some(change)),
            None => (uploaded, None),
        };
        self.weights = file.weights.clone();
        let registry = &self.parts.registry;
        let application = registry.standing_signature(&self.model.id).await?;
        let fit = self.fit(&file.graph, changed, application.clone());
        let (mut fitted, named) = fit.await?;
        let unknown = fitted.unknown.clone();
        self.find_ranks(&mut fitted.plain, &unknown, engines)
            .await?;
        let mut look = self.look(fitted, application).await?;
        if look.info.signature.batched && unknown.inputs.is_empty() {
            look = self.with_true_batches(look, engines).await?;
        }
        let Look {
            plain,
            info,
            wide,
            mixes,
            alone,
            ..
        } = look;
        let scored = self.scored(&plain, &info);
        if let Some(input) = unknown.inputs.first()
            && info.signature.batched
        {
            self.check_batches((&plain.model, input), (&info, &scored), engines)
                .await?;
        }
        let mut readable = ServableFile {
            scored,
            info,
            changes: plain.changes.clone(),
            adapted: (changed.is_some() || plain.model != file.graph)
                .then(|| self.over_weights(&plain.model)),
            astray: Vec::new(),
            apart: alone.or(mixes),
            named,
        };
        let Some(wide) = wide.filter(|wide| wide.info.signature.batched) else {
            if readable.apart.is_none() {
                let why = without_rows(&readable.info.signature);
                readable.changes.extend(why);
            }
            return Ok(readable);
        };
        let WidenedFile { info, model, how } = wide;
        let scored = self.scored(&plain, &info);
        let batches = self.batches(Origin::Tried, (&info, false));
        let differ = self
            .differing_outputs((&model, batches), &info.signature, &scored, engines)
            .await?;
        let name = |at: &usize| Some(info.signature.outputs.get(*at)?.name.clone());
        readable.astray = differ.iter().flatten().filter_map(name).collect();
        if differ.as_ref().is_some_and(|differ| differ.is_empty()) {
            readable.changes.push(how);
            readable = ServableFile {
                info,
                scored,
                adapted: Some(self.over_weights(&model)),
                ..readable
            };
        } else if differ.is_none() && adapt::fixed_batch(&readable.info.signature).is_some() {
            readable.changes.push(FIXED.to_owned());
        }
        Ok(readable)
    }

    /// Removes a declared batch dimension that is none: either batches are not answered as their records are alone, or
    /// the records have that dimension themselves.
    async fn with_true_batches(
        &mut self,
        look: Look,
        engines: &[Arc<dyn Engine>],
    ) -> Result<Look, Error> {
        let (info, scored) = (look.info.clone(), self.scored(&look.plain, &look.info));
        let batches = self.batches(Origin::Declared, (&info, look.mixes.is_some()));
        let declared = (&look.plain.model.clone(), batches);
        let differ = self
            .differing_outputs(declared, &info.signature, &scored, engines)
            .await?;
        match differ {
            Some(differ) if differ.is_empty() => Ok(look),
            Some(differ) => {
                let outputs = info.signature.outputs.iter().enumerate();
                let mixed = outputs.filter(|(at, _)| differ.contains(at));
                let mixed: Vec<String> = mixed.map(|(_, it)| format!("`{}`", it.name)).collect();
                let others = match differ.len() < info.signature.outputs.len() {
                    true => OTHERS,
                    false => "",
                };
                let said = format!("{ALONE}: {}{others}", mixed.join(", "));
                self.lone(look, Lone::Mixes, said).await
            }
            None if self.are_records_whole(&info.signature).await? => {
                self.lone(look, Lone::Whole, WHOLE.to_owned()).await
            }
            // The measurement reports why the model does not run.
            None => Ok(look),
        }
    }

    async fn lone(&self, look: Look, how: Lone, said: String) -> Result<Look, Error> {
        let made = self.rewrite(&look.plain.model, how).await?;
        Ok(look.without_batches(only(made), said))
    }

    /// Whether the supposed batch dimension is a dimension of the records, as for a vector of any length.
    async fn are_records_whole(&self, signature: &Signature) -> Result<bool, Error> {
        // An error in the file is reported when it is read for the model.
        let shapes = match self.record_shapes().await {
            Err(Error::Validation(_)) => RecordShapes::new(),
            shapes => shapes?,
        };
        let fits = |(given, declared): (&Option<u64>, &Option<u64>)| {
            declared.is_none() || given == declared
        };
        Ok(signature.inputs.iter().all(|input| {
            let record = shapes.get(&input.name);
            // Tokenizers put a 1 before the shape of one text.
            record.is_some_and(|record| {
                record.len() == input.shape.len()
                    && record.first() != Some(&Some(1))
                    && record.iter().zip(&input.shape).all(fits)
            })
        }))
    }

    /// The scored output: the first of the named outputs, or the one that the metric is meant for.
    fn scored(&self, plain: &Plain, info: &ModelInfo) -> ScoringTarget {
        let mut scored = match self.model.outputs.is_empty() {
            true => ScoringTarget::by(self.application.metric, &info.signature),
            false => ScoringTarget::default(),
        };
        scored.classes = classes(plain, &info.signature, scored.output);
        if !scored.classes.is_empty() {
            scored.own.clone_from(&self.own_classes);
        }
        scored
    }

    /// How batches of a file are judged; `is_mixed` if its values are known to depend on the batch.
    pub(super) fn batches(&self, origin: Origin, (info, is_mixed): (&ModelInfo, bool)) -> Batches {
        Batches {
            origin,
            most: self.parts.config.effort.largest_batch,
            is_half: is_half(info),
            is_mixed,
        }
    }

    /// The outputs by which batches differ from their records; `None` if that cannot be found out.
    pub(super) async fn differing_outputs(
        &mut self,
        (model, batches): (&Bytes, Batches),
        signature: &Signature,
        scored: &ScoringTarget,
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
                    batches,
                };
                let order = Order {
                    action,
                    artefact: digest_of(model),
                    signature: signature.clone(),
                    metric: self.application.metric,
                    scored: scored.clone(),
                    limits: self.parts.config.limits,
                };
                self.batches_isolated(isolation, order, self.over_weights(model))
                    .await?
            }
            _ => {
                self.batches_here((model, batches), signature, scored, engines.first())
                    .await?
            }
        };
        if differ.as_ref().is_none_or(|differ| !differ.is_empty()) {
            // What was read for the wider model does not fit the other one.
            self.validation = None;
        }
        Ok(differ)
    }

    async fn batches_isolated(
        &mut self,
        isolation: Isolation,
        order: Order,
        model: ModelFile,
    ) -> Result<Option<Vec<usize>>, Error> {
        let task = Task {
            artefact: Some(model),
            order,
            validation: self.set_file().await?,
            beside: Vec::new(),
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
        (model, batches): (&Bytes, Batches),
        signature: &Signature,
        scored: &ScoringTarget,
        engine: Option<&Arc<dyn Engine>>,
    ) -> Result<Option<Vec<usize>>, Error> {
        let Some(engine) = engine.cloned() else {
            return Ok(None);
        };
        let validation = match self.validation(signature, scored).await {
            Err(Error::Validation(_)) => return Ok(None),
            validation => validation?,
        };
        let request = request(&self.over_weights(model));
        let run = self.parts.threads.run(move |cancel| {
            measure::differing_outputs(engine.as_ref(), (&request, batches), &validation, cancel)
        });
        judge(run.await?)
    }
}

/// The request with which engines load a file to inspect it.
pub(crate) fn request(model: &ModelFile) -> LoadRequest {
    LoadRequest {
        artefact: digest_of(&model.graph),
        model: model.clone(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    }
}

/// A model that cannot be run in batches takes none; only errors that are not the model's are passed on.
fn judge(differ: Result<Vec<usize>, MeasureError>) -> Result<Option<Vec<usize>>, Error> {
    match differ {
        Err(error) if error.is_of_no_model() => Err(error.into()),
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
