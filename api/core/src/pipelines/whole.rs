//! A pipeline as a whole: its validation set, the application that it is a variant of, and its measurements.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use sextant_pipeline::{Graph, Interval, LoadedPipeline, Measurement, Whole};
use sextant_registry::{Error, ModelStatus, Pipeline, PipelineMeasure};
use sextant_rpc::Dispatch;
use sextant_types::{ApplicationId, Code, Digest, Metric, Route, Signature, TensorSpec};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::{load, read, refused};
use crate::{ApiState, auth::Caller, problem::Problem};

/// The name of the validation set among the files of a pipeline: no path of the artefact store has a space.
pub const SET: &str = "validation set";

/// The metric if neither the definition nor the application has one.
const METRIC: Metric = Metric::Top1;

/// The measurements of a pipeline on its validation set.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PipelineMeasured)]
pub struct MeasuredBody {
    /// `current`: the accuracy is up to date; `stale`: the pipeline, or a model that it follows, has changed
    /// since, and the service measures it again; `measuring`: it is measured for the first time.
    state: &'static str,
    /// The job that measures it, while the accuracy is not current.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// What was measured last.
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<FiguresBody>,
}

/// What was measured of a pipeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PipelineFigures)]
pub struct FiguresBody {
    /// `top1`, `exact`, `mae`, ..
    metric: String,
    /// Point estimate.
    value: f64,
    /// Lower end of the 95 % interval.
    lower: f64,
    /// Upper end of the 95 % interval.
    upper: f64,
    /// Records that were scored.
    records: u64,
    /// Median time of one record that is asked alone, milliseconds.
    p50_ms: f64,
    /// 99th percentile of the same.
    p99_ms: f64,
    /// Cost of a thousand queries by the listed prices of the steps' variants, US dollars.
    cost_per_1k_usd: f64,
    /// Cost of a thousand queries if each is alone in its batches, US dollars.
    charged_per_1k_usd: f64,
    /// Which variant answered each step that asks something, most of the time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    variants: BTreeMap<String, String>,
    /// All variants that answered each of these steps, the most frequent first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    answered: BTreeMap<String, Vec<String>>,
}

/// A pipeline that is a variant of an application.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CompositeVariant)]
pub struct CompositeBody {
    /// The pipeline and its version, as in answers.
    name: String,
    /// The pipeline.
    pipeline: String,
    /// The application of which it is a variant.
    application: String,
    /// Whether it answers the queries to the application for which it is the best; if not, `why` says why.
    answers: bool,
    /// Why it does not answer: `measuring`, the service is measuring it; `not_ready`, no worker can run what
    /// its steps ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    /// What was measured last.
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<FiguresBody>,
}

/// The pipelines that are variants of an application, sorted by name.
pub fn composites(state: &ApiState, application: &ApplicationId) -> Vec<CompositeBody> {
    let all = state.pipelines().composites(application).into_iter();
    let bodies = all.filter_map(|loaded| {
        let graph = loaded.graph().ok()?;
        let whole = loaded.whole();
        let pipelines = state.pipelines();
        let why = match &*whole {
            Whole::Unmeasured | Whole::Pending(_) => Some("measuring"),
            Whole::Current(_) if !graph.routes().all(|it| pipelines.is_ready(it)) => {
                Some("not_ready")
            }
            Whole::Current(_) => None,
        };
        let (Whole::Current(figures) | Whole::Pending(Some(figures))) = &*whole else {
            return Some(CompositeBody::new(graph, &loaded, application, (why, None)));
        };
        let figures = Some(FiguresBody::from(figures));
        Some(CompositeBody::new(
            graph,
            &loaded,
            application,
            (why, figures),
        ))
    });
    bodies.collect()
}

/// How often a step runs, and on how many rows, in the queries to this version that this front end has answered.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StepScale)]
pub struct ScaleBody {
    /// The step.
    step: String,
    /// Queries that have reached the step, including those that skipped it.
    queries: u64,
    /// Share of them in which the step ran.
    visits: IntervalBody,
    /// Probability that the step runs if one of the steps before it gave an output.
    probability: IntervalBody,
    /// Rows of a query in which the step ran.
    rows: IntervalBody,
}

/// A figure with its 95 % interval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FigureInterval)]
pub struct IntervalBody {
    /// The figure.
    value: f64,
    /// Lower end.
    lower: f64,
    /// Upper end; absent if nothing bounds it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    upper: Option<f64>,
}

/// The scales of the steps of a pipeline, in the order of the steps; none before the first query.
pub fn scales(state: &ApiState, pipeline: &ApplicationId) -> Vec<ScaleBody> {
    let Some(loaded) = state.pipelines().get(pipeline) else {
        return Vec::new();
    };
    let counted = loaded.counts().filter(|it| it.scale.queries > 0);
    let scales = counted.map(|it| ScaleBody {
        step: it.step.to_owned(),
        queries: it.scale.queries,
        visits: it.scale.visits.into(),
        probability: it.scale.probability.into(),
        rows: it.scale.rows.into(),
    });
    scales.collect()
}

/// The parts of a definition about the whole, checked.
#[derive(Debug)]
pub struct ValidationSpec {
    /// The digest of its validation set.
    pub set: Option<Digest>,
    /// The metric of the pipeline's application.
    pub metric: Option<Metric>,
}

/// Checks the parts of a definition about the whole. With `keep`, the set is stored as a blob, which cannot change.
pub async fn checked(
    state: &ApiState,
    files: read::Files<'_>,
    graph: &Graph,
    keep: bool,
) -> Result<ValidationSpec, Problem> {
    let definition = &graph.definition;
    let whole = definition.whole().map_err(|invalid| refused(&invalid))?;
    let metric = definition.metric().map_err(|invalid| refused(&invalid))?;
    if let Some(application) = &whole {
        check_variant_of(state, files.caller, (application, metric), graph).await?;
    }
    if !definition.is_measured() {
        return Ok(ValidationSpec {
            set: None,
            metric: None,
        });
    }
    let file = definition
        .validation
        .as_ref()
        .and_then(|it| it.file.as_ref());
    let set = match (file, &whole) {
        (Some(path), _) => {
            let bytes = files.of_set(state, path).await?;
            kept(state, bytes, keep).await?
        }
        (None, Some(application)) => set_of(state, application).await?,
        (None, None) => {
            return Err(invalid(
                "validation",
                "needs a `file`, a path of the artefact store",
            ));
        }
    };
    let of_whole = whole.and_then(|application| state.metric(&application));
    Ok(ValidationSpec {
        set: Some(set),
        metric: metric.or(of_whole).or(Some(METRIC)),
    })
}

async fn kept(state: &ApiState, bytes: Bytes, keep: bool) -> Result<Digest, Problem> {
    Ok(match keep {
        true => state.objects().put_blob(bytes).await?,
        false => Digest::from_bytes(Sha256::digest(&bytes).into()),
    })
}

fn invalid(key: &'static str, why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidPipeline, format!("`{key}` {why}")).field(key)
}

/// Checks that a pipeline can be a variant of an application.
async fn check_variant_of(
    state: &ApiState,
    caller: &Caller,
    (application, metric): (&ApplicationId, Option<Metric>),
    graph: &Graph,
) -> Result<(), Problem> {
    let route = Route::Application(application.clone());
    state.check_owner(caller, &route).await?;
    if state.is_pipeline(&route) {
        let why = format!("names `{application}`, which is a pipeline itself");
        return Err(invalid("variant_of", why));
    }
    let of = state.metric(application);
    if let (Some(own), Some(of)) = (metric, of)
        && own != of
    {
        let (own, of) = (own.name(), of.name());
        let why = format!(
            "has the metric `{own}`, and the variants of `{application}` are compared by `{of}`"
        );
        return Err(invalid("validation", why));
    }
    fits(state, &graph.signature, application).map_err(|why| invalid("variant_of", why))
}

/// Checks that a signature has the inputs and outputs of an application, for one record at a time; the error says what
/// differs.
pub fn fits(
    state: &ApiState,
    signature: &Signature,
    application: &ApplicationId,
) -> Result<(), String> {
    let route = Route::Application(application.clone());
    let of = state.pipelines().beneath().signature(&route);
    let of = of.map_err(|error| format!("names `{application}`: {error}"))?;
    let sides = [
        ("takes", &signature.inputs, &of.inputs),
        ("gives", &signature.outputs, &of.outputs),
    ];
    for (does, own, others) in sides {
        for other in others {
            let same = own.iter().find(|spec| spec.name == other.name);
            if !same.is_some_and(|spec| holds_record(spec, other)) {
                let shape: Vec<String> = record(other).iter().map(usize::to_string).collect();
                return Err(format!(
                    "names `{application}`, which {does} `{}` of {} [{}] for one record, and the pipeline does not",
                    other.name,
                    other.data_type.name(),
                    shape.join(", ")
                ));
            }
        }
        if own.len() != others.len() {
            return Err(format!(
                "names `{application}`, which {does} fewer tensors than the pipeline"
            ));
        }
    }
    Ok(())
}

/// The shape of one record; an open size is 1.
fn record(spec: &TensorSpec) -> Vec<usize> {
    let sizes = spec.shape.iter();
    let sizes = sizes.map(|size| size.and_then(|it| usize::try_from(it).ok()).unwrap_or(1));
    sizes.collect()
}

fn holds_record(own: &TensorSpec, other: &TensorSpec) -> bool {
    own.data_type == other.data_type && own.accepts(&record(other))
}

/// The validation set of the latest model of an application that has labels.
async fn set_of(state: &ApiState, application: &ApplicationId) -> Result<Digest, Problem> {
    let models = state.registry().models(Some(application)).await?;
    let labelled = models
        .into_iter()
        .filter(|it| it.status == ModelStatus::Ready && !it.unlabelled);
    let latest = labelled.max_by_key(|it| it.created_ms);
    let missing = || {
        let why = format!(
            "names `{application}`, of which no model has a validation set with labels: give the pipeline a `validation` \
             with a `file`"
        );
        invalid("variant_of", why)
    };
    Ok(latest.ok_or_else(missing)?.validation)
}

/// The state of the pipeline and of what its steps follow: the models that may answer the steps, each in its version,
/// and nested pipelines, each with its mark.
pub fn followed(state: &ApiState, loaded: &LoadedPipeline) -> Option<String> {
    let mut all = Vec::new();
    follow(state, loaded, &mut all)?;
    all.sort();
    all.dedup();
    Some(all.join(" "))
}

fn follow(state: &ApiState, loaded: &LoadedPipeline, all: &mut Vec<String>) -> Option<()> {
    let graph = loaded.graph().ok()?;
    let (name, version, mark) = (&graph.definition.name, loaded.version, &loaded.mark);
    all.push(format!("{name}-v{version}#{mark}"));
    for route in graph.routes() {
        let nested = match route {
            Route::Application(id) => state.pipelines().get(id),
            Route::Model(_) | Route::Variant(_) => None,
        };
        match nested {
            Some(nested) => follow(state, &nested, all)?,
            None => all.extend(state.directory().followed(route)),
        }
    }
    Some(())
}

/// Gives loaded pipelines their measurements.
pub async fn tell(
    state: &ApiState,
    pipelines: &[(&Pipeline, &LoadedPipeline)],
) -> Result<(), Error> {
    let mut sets = pipelines.iter().map(|(it, _)| it.files.contains_key(SET));
    if !sets.any(|has| has) {
        for (_, loaded) in pipelines {
            loaded.set_whole(Whole::Unmeasured);
        }
        return Ok(());
    }
    let measures = state.registry().pipeline_measures().await?;
    for (pipeline, loaded) in pipelines {
        let whole = match pipeline.files.contains_key(SET) {
            true => whole(state, loaded, measures.get(&pipeline.application)),
            false => Whole::Unmeasured,
        };
        loaded.set_whole(whole);
    }
    Ok(())
}

fn whole(state: &ApiState, loaded: &LoadedPipeline, measure: Option<&PipelineMeasure>) -> Whole {
    let Some(measure) = measure else {
        return Whole::Pending(None);
    };
    let figures: Option<Measurement> = serde_json::from_value(measure.figures.clone()).ok();
    let holds = measure.version == loaded.version
        && followed(state, loaded).is_some_and(|now| now == measure.followed);
    match figures {
        Some(figures) if holds => Whole::Current(figures),
        figures => Whole::Pending(figures),
    }
}

/// The metric of a pipeline's validation set.
pub fn metric(state: &ApiState, pipeline: &ApplicationId) -> Metric {
    state.metric(pipeline).unwrap_or(METRIC)
}

/// The digests of the files that steps read: all of a pipeline's files except its validation set.
pub(crate) fn of_steps(files: BTreeMap<String, Digest>) -> impl Iterator<Item = (String, Digest)> {
    files.into_iter().filter(|(path, _)| path != SET)
}

impl From<Interval> for IntervalBody {
    fn from(of: Interval) -> Self {
        Self {
            value: of.value,
            lower: of.lower,
            upper: Some(of.upper).filter(|it| it.is_finite()),
        }
    }
}

// === impl CompositeBody ===

impl CompositeBody {
    fn new(
        graph: &Graph,
        loaded: &LoadedPipeline,
        application: &ApplicationId,
        (why, figures): (Option<&'static str>, Option<FiguresBody>),
    ) -> Self {
        let pipeline = &graph.definition.name;
        Self {
            name: format!("{pipeline}-v{}", loaded.version),
            pipeline: pipeline.clone(),
            application: application.to_string(),
            answers: why.is_none(),
            why,
            figures,
        }
    }
}

// === impl MeasuredBody ===

impl MeasuredBody {
    /// The measurements of a pipeline; `None` if it is not measured.
    pub fn of(state: &ApiState, pipeline: &Pipeline) -> Option<Self> {
        let loaded = state.pipelines().get(&pipeline.application)?;
        let loaded = Some(loaded).filter(|loaded| load::is_of(loaded, pipeline))?;
        let whole = loaded.whole();
        let (name, figures) = match &*whole {
            Whole::Unmeasured => return None,
            Whole::Current(figures) => ("current", Some(figures)),
            Whole::Pending(None) => ("measuring", None),
            Whole::Pending(Some(before)) => ("stale", Some(before)),
        };
        let job = match &*whole {
            Whole::Pending(_) => super::measure::job_of(state, &pipeline.application, &loaded),
            _ => None,
        };
        Some(Self {
            state: name,
            job: job.map(|job| job.to_string()),
            figures: figures.map(FiguresBody::from),
        })
    }
}

impl From<&Measurement> for FiguresBody {
    fn from(of: &Measurement) -> Self {
        let accuracy = &of.accuracy;
        let steps = of.steps.iter();
        let variants =
            steps.filter_map(|(step, share)| Some((step.clone(), share.variant()?.to_string())));
        let answered = of.steps.iter().map(|(step, share)| {
            let variants = share.answered().into_iter();
            (step.clone(), variants.map(String::from).collect())
        });
        let answered = answered.filter(|(_, variants): &(_, Vec<String>)| !variants.is_empty());
        Self {
            metric: accuracy.metric.name(),
            value: accuracy.value,
            lower: accuracy.lower,
            upper: accuracy.upper,
            records: accuracy.records,
            p50_ms: of.p50_ms,
            p99_ms: of.p99_ms,
            cost_per_1k_usd: of.cost_per_1k_usd,
            charged_per_1k_usd: of.charged_per_1k_usd,
            variants: variants.collect(),
            answered: answered.collect(),
        }
    }
}
