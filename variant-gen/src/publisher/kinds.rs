//! The kind of the figures of models that an earlier version registered: accuracy, or agreement with the uploaded file.
//!
//! The registration's findings, which are kept beside the model, contain the kind, or else the job's result does. If
//! neither is left, the kind stays unknown, and the figures meet no least accuracy until the model is registered again.

use std::collections::BTreeMap;

use serde_json::Value;
use sextant_registry::{JobFilter, JobKind, JobState, Registry};
use sextant_types::{AccuracyKind, ModelId, Variant, VariantId};

use crate::{
    Error,
    step::{self, INSPECT},
};

/// Sets the kinds of variants whose kind is unknown; returns those whose kind is known now.
pub(super) async fn mark(
    registry: &Registry,
    variants: &mut [Variant],
) -> Result<Vec<VariantId>, Error> {
    let mut known: BTreeMap<ModelId, AccuracyKind> = BTreeMap::new();
    let mut marked = Vec::new();
    let unknown = variants.iter_mut();
    for variant in unknown.filter(|it| it.accuracy.kind == AccuracyKind::Unknown) {
        let kind = match known.get(&variant.model) {
            Some(kind) => *kind,
            None => kind_of(registry, &variant.model).await?,
        };
        known.insert(variant.model.clone(), kind);
        if kind != AccuracyKind::Unknown {
            variant.accuracy.kind = kind;
            marked.push(variant.id.clone());
        }
    }
    Ok(marked)
}

/// The kind, from what the model's registration said of its labels.
async fn kind_of(registry: &Registry, model: &ModelId) -> Result<AccuracyKind, Error> {
    let steps = registry.steps(model).await?;
    let inspected = steps.into_iter().find(|step| step.name == INSPECT);
    if let Some(step) = inspected {
        return Ok(said(&step.result));
    }
    let filter = JobFilter {
        kind: Some(JobKind::Register),
        model: Some(model.clone()),
        limit: Some(1),
        ..JobFilter::default()
    };
    let job = registry.jobs(&filter).await?.pop();
    let result = job.filter(|job| job.state == JobState::Succeeded);
    let result = result.and_then(|job| job.result);
    Ok(result.map_or(AccuracyKind::Unknown, |result| said(&result)))
}

fn said(document: &Value) -> AccuracyKind {
    let changes = document.get("changes").and_then(Value::as_array);
    let changes = changes.into_iter().flatten().filter_map(Value::as_str);
    step::kind_of(changes)
}
