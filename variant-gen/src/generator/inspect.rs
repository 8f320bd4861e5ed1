//! The first step: whether the file is a model of this application.

use std::sync::Arc;

use sextant_engine::{Engine, LoadRequest, ModelFile, is_manifest};
use sextant_onnx::{
    ModelInfo,
    adapt::{advice_on_single_numbers, fixed_batch},
};
use sextant_registry::{METRIC_FILE, ScoredOutput};
use sextant_types::{
    EngineName, ModelId, Optimization, Precision, Signature, TensorSpec, VariantId, VariantSpec,
};

use super::{Inspection, Registration, adapt::ServableFile};
use crate::{
    Error,
    isolation::protocol::SetSummary,
    measure::MeasureError,
    step::{self, UNLABELLED},
    validation::{Invalid, ScoringTarget, row_shape},
};

/// Why queries share no batches if the file has no batch dimension.
const UNBATCHED: &str = "the model takes one record at a time";

/// Message about a file in half precision.
const HALF: &str =
    "its weights are 16-bit floats: `fp32` in a variant's name stands for the file as it is";

impl Registration<'_> {
    /// Refuses a file that cannot be registered; the first model fixes the application's signature.
    pub(super) async fn inspect(&mut self) -> Result<Inspection, Error> {
        if let Some(inspected) = self.stored::<Inspection>(step::INSPECT) {
            self.labelled = inspected.labelled;
            return Ok(inspected);
        }
        self.begin(step::INSPECT).await?;
        self.count(step::INSPECT).await?;
        self.check_name()?;
        let judged = self.take_judge().await?;
        self.own_classes.clear();
        let file = self.read_artefact(self.model.digest).await?;
        self.weigh(&file).await?;
        let engines = self.parts.engines.iter();
        let engines = engines.filter(|it| it.reads(&file.graph));
        let engines: Vec<_> = engines.cloned().collect();
        let ServableFile {
            info,
            scored,
            adapted,
            mut changes,
            astray,
            mut apart,
            named,
        } = match is_manifest(&file.graph) {
            true => self.ask(engines.first().cloned(), file.clone()).await?,
            false => self.read_onnx(file.clone(), &engines).await?,
        };
        if let Some(padding) = &self.model.padding {
            padding.check(&info.signature)?;
        }
        let scored = self.with_classes(scored, &info.signature)?;
        let checked = self.check_set(&info.signature, &scored).await;
        let checked = checked.map_err(|error| unbatched(error, &info.signature, &astray))?;
        let (mut labelled, of_the_model) = (None, changes.len());
        let advice = advice_on_single_numbers(&info.signature);
        changes.extend(advice.map(|advice| format!("a query is one record: {advice}")));
        let is_half = is_half(&info);
        if is_half {
            changes.push(HALF.to_owned());
        }
        if !info.signature.batched && apart.is_none() {
            apart = Some(UNBATCHED.to_owned());
        }
        if !self.has_labels(&checked)? {
            let file = adapted.clone().unwrap_or(file);
            let of = (&info.signature, &scored);
            labelled = Some(self.label(file, of, &engines).await?);
            changes.push(UNLABELLED.to_owned());
        }
        self.fix_signature(&info.signature, &changes[..of_the_model])
            .await?;
        self.show_scored(&scored, &info.signature).await?;
        let stored = match &adapted {
            Some(file) => Some(self.put_model(file).await?),
            None => None,
        };
        let inspected = Inspection {
            signature: info.signature,
            records: checked.records,
            weights_bytes: info.weights_bytes,
            parameters: info.parameters,
            nodes: info.nodes,
            opset: info.opset,
            operators: info.op_types,
            engines: engines.iter().map(|it| it.name().to_owned()).collect(),
            scored,
            adapted: stored.as_ref().map(|it| (it.digest, it.size_bytes)),
            labelled: self.labelled,
            guess: checked.guess,
            changes,
            apart,
            is_half,
        };
        self.store(step::INSPECT, &inspected).await?;
        if let (Some(file), Some(stored)) = (adapted, stored) {
            self.ensure_model(&file, stored.digest).await?;
        }
        if let Some(set) = labelled.or(named).or(judged) {
            self.ensure_wrapped(&set).await?;
        }
        Ok(inspected)
    }

    /// Checks whether the set has labels, as was declared.
    fn has_labels(&self, set: &SetSummary) -> Result<bool, Error> {
        match (set.is_labelled, self.model.unlabelled) {
            (false, false) => Err(Invalid::Unlabelled.into()),
            (true, true) => Err(Invalid::Labelled.into()),
            (labelled, _) => Ok(labelled),
        }
    }

    /// Asks the engine that has the model; the file is a manifest.
    async fn ask(
        &self,
        engine: Option<Arc<dyn Engine>>,
        manifest: ModelFile,
    ) -> Result<ServableFile, Error> {
        let has_data = self.model.data.iter().any(|file| file.name != METRIC_FILE);
        if !self.model.outputs.is_empty() || !self.model.constants.is_empty() || has_data {
            let reason = "it is a manifest: its runtime says what its inputs and outputs are, and it has no data beside it";
            return Err(sextant_onnx::Error::NotOnnx(reason.to_owned()).into());
        }
        if !self.model.names.is_empty() {
            let reason = "it is a manifest: its inputs and outputs have the names that its runtime gives them";
            return Err(sextant_onnx::Error::NotOnnx(reason.to_owned()).into());
        }
        let Some(engine) = engine else {
            let reason = "it is JSON, and no manifest for a runtime that is configured here";
            return Err(sextant_onnx::Error::NotOnnx(reason.to_owned()).into());
        };
        let request = LoadRequest {
            artefact: self.model.digest,
            model: manifest,
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
        };
        let load = move |_: &_| engine.load(&request);
        let model = self.parts.threads.run(load).await?;
        let model = model.map_err(MeasureError::Load)?;
        let scored = ScoringTarget::by(self.application.metric, model.signature());
        let info = ModelInfo {
            ir_version: 0,
            opset: 0,
            opsets: Default::default(),
            op_types: Vec::new(),
            signature: model.signature().clone(),
            nodes: 0,
            weights_bytes: model.weights_bytes(),
            parameters: 0,
            half_parameters: 0,
            wide_output: None,
            batch_first: None,
            indices: Vec::new(),
        };
        Ok(ServableFile {
            info,
            scored,
            adapted: None,
            changes: Vec::new(),
            astray: Vec::new(),
            apart: None,
            named: None,
        })
    }

    /// The scored output, with the classes that the model's owner has named.
    fn with_classes(
        &self,
        scored: ScoringTarget,
        signature: &Signature,
    ) -> Result<ScoringTarget, Error> {
        let classes = match scored.classes.is_empty() {
            true => &self.model.classes,
            false => &scored.classes,
        };
        let Some(output) = signature.outputs.get(scored.output) else {
            return Ok(scored);
        };
        if classes.is_empty() {
            return Ok(scored);
        }
        let columns = match row_shape(output, signature.batched).last() {
            None => {
                return Err(Error::Classes(format!(
                    "output `{}` has no class axis: leave `--classes` (or `id2label` of a folder's `config.json`) out, \
                     or name another output with `--output`",
                    output.name
                )));
            }
            Some(columns) => *columns,
        };
        match columns {
            Some(columns) if columns != classes.len() as u64 => Err(Error::Classes(format!(
                "`--classes` (or else `id2label` of a folder's `config.json`) names `{}` classes, and output `{}` has \
                 `{columns}` columns: name as many with `--classes`",
                classes.len(),
                output.name
            ))),
            _ => Ok(ScoringTarget {
                classes: classes.clone(),
                own: self.own_classes.clone(),
                ..scored
            }),
        }
    }

    async fn show_scored(
        &self,
        scored: &ScoringTarget,
        signature: &Signature,
    ) -> Result<(), Error> {
        let Some(output) = signature.outputs.get(scored.output) else {
            return Ok(());
        };
        let scored = ScoredOutput {
            output: output.name.clone(),
            classes: scored.classes.clone(),
        };
        Ok(self
            .parts
            .registry
            .set_scored(&self.model.id, &scored)
            .await?)
    }

    /// Fixes the application's signature, or compares the model's with it. `changes` says in words how the signature
    /// differs from what the file declares.
    async fn fix_signature(&self, signature: &Signature, changes: &[String]) -> Result<(), Error> {
        let registry = &self.parts.registry;
        let fixed = registry.fix_signature(&self.model.id, signature).await;
        let Err(sextant_registry::Error::SignatureMismatch { application }) = fixed else {
            return Ok(fixed?);
        };
        let known = registry.application(&application).await?.signature;
        let difference = known.and_then(|known| difference(signature, &known));
        let difference = difference.unwrap_or_else(|| "its signature differs".to_owned());
        let changed = match changes {
            [] => String::new(),
            changes => format!("; of the model: {}", changes.join("; ")),
        };
        Err(Error::Signature {
            application: application.to_string(),
            difference: difference + &changed,
        })
    }

    /// Checks that all variants can have names; the longest name decides.
    fn check_name(&self) -> Result<(), Error> {
        let engines = self.parts.engines.iter().map(|engine| engine.name());
        let longest = engines.max_by_key(|name| name.len()).unwrap_or_default();
        let spec = VariantSpec {
            engine: EngineName(longest.to_owned()),
            precision: Precision::Int8Dynamic,
            optimization: Optimization::Basic,
            threads: self.parts.config.cores.max(1),
            max_batch: self.parts.config.effort.largest_batch.max(1),
        };
        variant_id(&self.model.id, &spec).map(|_| ())
    }
}

/// Whether most of a file's weights have 16 bits.
pub(super) fn is_half(info: &ModelInfo) -> bool {
    info.half_parameters > info.parameters / 2
}

/// `{model}-{engine}-{precision}-{optimization}-t{threads}-b{max_batch}`.
pub(super) fn variant_id(model: &ModelId, spec: &VariantSpec) -> Result<VariantId, Error> {
    VariantId::new(format!("{model}-{}", spec.name())).map_err(|source| Error::Name {
        model: model.clone(),
        source,
    })
}

/// Says why a validation set does not fit, if some outputs keep the model from taking batches.
fn unbatched(error: Error, signature: &Signature, astray: &[String]) -> Error {
    let names = signature.outputs.iter().map(|output| &output.name);
    let kept = names.filter(|name| !astray.contains(name)).cloned();
    let kept: Vec<String> = kept.collect();
    match error {
        Error::Validation(source) if !astray.is_empty() && !kept.is_empty() => Error::Unbatched {
            source: Box::new(source),
            astray: astray.join("`, `"),
            kept: kept.join(" --output "),
        },
        Error::Validation(source) if source.is_of_shapes() => {
            match (fixed_batch(signature), advice_on_single_numbers(signature)) {
                (Some(size), _) if size > 1 && !signature.batched => Error::FixedBatch {
                    source: Box::new(source),
                    size,
                },
                (_, Some(advice)) => Error::SingleNumber {
                    source: Box::new(source),
                    advice,
                },
                _ => Error::Validation(source),
            }
        }
        error => error,
    }
}

/// The first difference between the signatures of a model and its application.
fn difference(model: &Signature, application: &Signature) -> Option<String> {
    let of = |what, mine: &[TensorSpec], theirs: &[TensorSpec]| {
        if mine.len() != theirs.len() {
            let (mine, theirs) = (mine.len(), theirs.len());
            return Some(format!(
                "it has `{mine}` {what}s, the application `{theirs}`"
            ));
        }
        let (mine, theirs) = mine
            .iter()
            .zip(theirs)
            .find(|(mine, theirs)| mine != theirs)?;
        Some(format!(
            "its {what} is {}, the application's is {}",
            text(mine),
            text(theirs)
        ))
    };
    of("input", &model.inputs, &application.inputs)
        .or_else(|| of("output", &model.outputs, &application.outputs))
        .or_else(|| {
            let batch = |batched| if batched { "a" } else { "no" };
            (model.batched != application.batched).then(|| {
                format!(
                    "it has {} batch dimension, the application's models have {} one",
                    batch(model.batched),
                    batch(application.batched)
                )
            })
        })
}

fn text(spec: &TensorSpec) -> String {
    let (name, data_type, shape) = (&spec.name, spec.data_type, spec.shape_text());
    format!("`{name}: {data_type} {shape}`")
}
