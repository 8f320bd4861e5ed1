//! Pipelines as a front end keeps them: read from the registry, checked against what can be asked now.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use sextant_pipeline::{Definition, Graph, Invalid, Known, Loaded, Target};
use sextant_registry::Pipeline;
use sextant_rpc::QueryError;
use sextant_types::{Route, Targets};

use super::whole;
use crate::{ApiState, targets::TargetsBody};

/// The graph of a definition over what can be asked now.
pub(super) fn graph(
    state: &ApiState,
    definition: Definition,
    files: &BTreeMap<String, Bytes>,
) -> Result<Graph, Invalid> {
    let targets = |route: &Route| target(state, route);
    let known = Known {
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

fn target(state: &ApiState, route: &Route) -> Result<Target, QueryError> {
    let signature = state.pipelines().beneath().signature(route)?;
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

/// Reads all pipelines again. Those that are as they were stay, with what they have learnt.
pub(crate) async fn refresh(state: &ApiState) -> Result<(), sextant_registry::Error> {
    let pipelines = state.registry().pipelines().await?;
    let mut loaded = HashMap::with_capacity(pipelines.len());
    for pipeline in pipelines.iter().cloned() {
        let known = state.pipelines().get(&pipeline.application);
        let known = known.filter(|known| is_current(state, known, &pipeline));
        let application = pipeline.application.clone();
        let kept = match known {
            Some(known) => known,
            None => Arc::new(load(state, pipeline).await),
        };
        loaded.insert(application, kept);
    }
    let all = pipelines.iter();
    let all = all.filter_map(|it| Some((it, &**loaded.get(&it.application)?)));
    let all: Vec<(&Pipeline, &Loaded)> = all.collect();
    whole::tell(state, &all).await?;
    state.pipelines().set(loaded);
    Ok(())
}

fn is_current(state: &ApiState, known: &Loaded, pipeline: &Pipeline) -> bool {
    let targets = |route: &Route| target(state, route);
    known.version == pipeline.version
        && known
            .graph()
            .is_ok_and(|graph| graph.is_current(&targets) && fits(state, graph).is_ok())
}

/// Whether it takes and gives what the application does that it is a variant of, as that is now.
fn fits(state: &ApiState, graph: &Graph) -> Result<(), String> {
    let whole = graph.definition.whole();
    match whole.map_err(|invalid| invalid.to_string())? {
        Some(application) => whole::fits(state, &graph.signature, &application)
            .map_err(|why| format!("`variant_of` {why}")),
        None => Ok(()),
    }
}

async fn load(state: &ApiState, pipeline: Pipeline) -> Loaded {
    let (name, version) = (pipeline.application.clone(), pipeline.version);
    match try_load(state, pipeline).await {
        Ok(loaded) => loaded,
        Err(why) => {
            tracing::debug!(pipeline = %name, version, why, "a pipeline cannot run now");
            Loaded::unusable(version, why)
        }
    }
}

async fn try_load(state: &ApiState, pipeline: Pipeline) -> Result<Loaded, String> {
    let definition: Result<Definition, _> = serde_json::from_value(pipeline.definition);
    let definition = definition.map_err(|error| error.to_string())?;
    let mut files = BTreeMap::new();
    for (path, digest) in whole::of_steps(pipeline.files) {
        let bytes = state.objects().get_blob(&digest).await;
        let bytes = bytes.map_err(|error| format!("its file `{path}`: {error}"))?;
        files.insert(path, bytes);
    }
    let graph = graph(state, definition, &files).map_err(|invalid| invalid.to_string())?;
    fits(state, &graph)?;
    Loaded::new(graph, pipeline.version).map_err(|error| error.to_string())
}
