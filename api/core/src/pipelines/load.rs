//! Loads the pipelines of a front end: reads them from the registry, and checks them against what can be asked now.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use sextant_pipeline::{
    CheckContext, Definition, Graph, Invalid, LoadedPipeline, Memory, Nesting, Part, Target,
};
use sextant_registry::Pipeline;
use sextant_rpc::QueryError;
use sextant_types::{ApplicationId, Code, Route, Targets};
use sha2::{Digest as _, Sha256};

use super::{memory::StepMemory, refused, whole};
use crate::{ApiState, problem::Problem, targets::TargetsBody};

/// Digits of a mark.
const DIGITS: usize = 16;

/// The loaded pipelines, by name.
type Read = HashMap<ApplicationId, Arc<LoadedPipeline>>;

/// The graph of a definition, checked against what can be asked now.
pub fn graph(
    state: &ApiState,
    definition: Definition,
    files: &BTreeMap<String, Bytes>,
) -> Result<Graph, Invalid> {
    graph_over((state, &state.pipelines().all()), definition, files)
}

fn graph_over(
    (state, read): (&ApiState, &Read),
    definition: Definition,
    files: &BTreeMap<String, Bytes>,
) -> Result<Graph, Invalid> {
    let _held = hold(state, definition.memory_to_read(files))?;
    let targets = |route: &Route| target(state, read, route);
    let known = CheckContext {
        targets: &targets,
        files,
    };
    let graph = Graph::new(definition, &known)?;
    if let (Some((step, _)), Err(error)) =
        (graph.functions().next(), state.pipelines().python().state())
    {
        return Err(Invalid {
            step: Some(step.to_owned()),
            key: "python",
            why: format!("cannot run: {}", error.message),
            code: error.code,
        });
    }
    Ok(graph)
}

/// Reserves room for what is made of the files of a pipeline while they are read.
fn hold(state: &ApiState, bytes: u64) -> Result<Part, Invalid> {
    let held = StepMemory::new(state.room()).take(bytes);
    held.map_err(|error| Invalid {
        step: None,
        key: "steps",
        why: format!(
            "have files of which much is made when they are read: {}",
            error.message
        ),
        code: error.code,
    })
}

fn target(state: &ApiState, read: &Read, route: &Route) -> Result<Target, QueryError> {
    let pipeline = match route {
        Route::Application(id) => read.get(id),
        Route::Model(_) | Route::Variant(_) => None,
    };
    let signature = match pipeline.map(|it| it.graph()) {
        Some(Ok(graph)) => graph.signature.clone(),
        Some(Err(why)) => return Err(QueryError::new(Code::Unavailable, why)),
        None => state.pipelines().beneath().signature(route)?,
    };
    let metric = state
        .application_of(route)
        .and_then(|application| state.metric(&application));
    let defaults = state.targets_with(route, None, TargetsBody::default());
    Ok(Target {
        signature,
        metric,
        defaults: defaults.unwrap_or_else(|_| Targets::default()),
    })
}

/// Reads all pipelines again. An unchanged pipeline stays, with its measurements and scales.
pub async fn refresh(state: &ApiState) -> Result<(), sextant_registry::Error> {
    let pipelines = state.registry().pipelines().await?;
    let mut loaded = Read::with_capacity(pipelines.len());
    for pipeline in innermost_first(&pipelines) {
        let known = state.pipelines().get(&pipeline.application);
        let known = known.filter(|known| is_current((state, &loaded), known, pipeline));
        let kept = match known {
            Some(known) => known,
            None => Arc::new(load((state, &loaded), pipeline.clone()).await),
        };
        loaded.insert(pipeline.application.clone(), kept);
    }
    let all = pipelines.iter();
    let all = all.filter_map(|it| Some((it, &**loaded.get(&it.application)?)));
    let all: Vec<(&Pipeline, &LoadedPipeline)> = all.collect();
    whole::tell(state, &all).await?;
    state.pipelines().set(loaded);
    Ok(())
}

/// Pipelines in an order in which each comes after those that its steps ask. Pipelines in a circle come last, and then
/// find no pipeline to ask. A circle arises if two front ends accept its halves at once.
fn innermost_first(pipelines: &[Pipeline]) -> Vec<&Pipeline> {
    let definitions: Vec<(&ApplicationId, Definition)> = pipelines
        .iter()
        .filter_map(|it| Some((&it.application, definition(it).ok()?)))
        .collect();
    let order = Nesting::new(definitions.iter().map(|(name, it)| (*name, it))).in_order();
    let place = |it: &Pipeline| order.iter().position(|name| *name == it.application);
    let mut sorted: Vec<&Pipeline> = pipelines.iter().collect();
    sorted.sort_by_key(|it| place(it).unwrap_or(usize::MAX));
    sorted
}

fn definition(pipeline: &Pipeline) -> Result<Definition, serde_json::Error> {
    Definition::deserialize(&pipeline.definition)
}

/// Checks that a definition makes no circle with the registered pipelines.
pub async fn check_nesting(state: &ApiState, definition: &Definition) -> Result<(), Problem> {
    let name = definition
        .application()
        .map_err(|invalid| refused(&invalid))?;
    let pipelines = state.registry().pipelines().await?;
    let is_new = pipelines.iter().all(|it| it.application != name);
    if is_new && state.registry().application(&name).await.is_ok() {
        // The name belongs to another application, which the registration reports.
        return Ok(());
    }
    let others = pipelines.iter().filter(|it| it.application != name);
    let others: Vec<(&ApplicationId, Definition)> = others
        .filter_map(|it| Some((&it.application, self::definition(it).ok()?)))
        .collect();
    let others = others.iter().map(|(name, it)| (*name, it));
    let nesting = Nesting::new(others.chain([(&name, definition)]));
    nesting
        .check(definition)
        .map_err(|invalid| refused(&invalid))
}

/// Distinguishes a version from another one with the same name and number.
fn mark(pipeline: &Pipeline) -> String {
    let files = pipeline.files.iter();
    let files: BTreeMap<&str, String> = files.map(|(path, it)| (&**path, it.to_string())).collect();
    let of = json!([pipeline.definition, files, pipeline.created_ms]);
    let mut digits = hex::encode(Sha256::digest(of.to_string()));
    digits.truncate(DIGITS);
    digits
}

/// Whether a loaded pipeline is the registry's present version.
pub fn is_of(known: &LoadedPipeline, pipeline: &Pipeline) -> bool {
    known.version == pipeline.version && known.mark == mark(pipeline)
}

fn is_current(
    (state, read): (&ApiState, &Read),
    known: &LoadedPipeline,
    pipeline: &Pipeline,
) -> bool {
    let targets = |route: &Route| target(state, read, route);
    is_of(known, pipeline)
        && known
            .graph()
            .is_ok_and(|graph| graph.is_current(&targets) && fits(state, graph).is_ok())
}

/// Checks that the pipeline has the inputs and outputs of the application that it is a variant of, in the application's
/// present state.
fn fits(state: &ApiState, graph: &Graph) -> Result<(), String> {
    let whole = graph.definition.whole();
    match whole.map_err(|invalid| invalid.to_string())? {
        Some(application) => whole::fits(state, &graph.signature, &application)
            .map_err(|why| format!("`variant_of` {why}")),
        None => Ok(()),
    }
}

async fn load((state, read): (&ApiState, &Read), pipeline: Pipeline) -> LoadedPipeline {
    let (name, version) = (pipeline.application.clone(), pipeline.version);
    let mark = mark(&pipeline);
    let loaded = match try_load((state, read), pipeline).await {
        Ok(loaded) => loaded,
        Err(why) => {
            tracing::debug!(pipeline = %name, version, why, "a pipeline cannot run now");
            LoadedPipeline::unusable(version, why)
        }
    };
    loaded.marked(mark)
}

async fn try_load(
    (state, read): (&ApiState, &Read),
    pipeline: Pipeline,
) -> Result<LoadedPipeline, String> {
    let definition = definition(&pipeline).map_err(|error| error.to_string())?;
    let mut files = BTreeMap::new();
    for (path, digest) in whole::of_steps(pipeline.files) {
        let bytes = state.objects().get_blob(&digest).await;
        let bytes = bytes.map_err(|error| format!("its file `{path}`: {error}"))?;
        files.insert(path, bytes);
    }
    let graph =
        graph_over((state, read), definition, &files).map_err(|invalid| invalid.to_string())?;
    fits(state, &graph)?;
    LoadedPipeline::new(graph, pipeline.version).map_err(|error| error.to_string())
}
