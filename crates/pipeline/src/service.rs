//! A dispatcher that runs pipelines over a dispatcher that knows none.

use std::{collections::HashMap, sync::Arc, thread};

use arc_swap::{ArcSwap, Guard};
use async_trait::async_trait;
use sextant_rpc::{Answer, Ask, Dispatch, DispatcherClient, Holder, Query, QueryError};
use sextant_types::{ApplicationId, Code, ModelId, Route, Signature, VariantId};
use tokio::sync::Semaphore;

use crate::{
    Graph, Interpreter, Memory, NoPython,
    counts::{Counts, StepCounts},
    flight::Traffic,
    pace::Pace,
    run::{self, Means, Names, QueryContext, Ready},
    whole::Whole,
};

mod composite;
mod offline;

/// A dispatcher that answers queries of applications that are pipelines, and passes other queries to the dispatcher
/// beneath.
///
/// A query ends on the version that it began with, even if [`Self::set`] replaces the pipelines meanwhile.
pub struct Pipelines {
    means: Means,
    loaded: ArcSwap<Catalog>,
}

/// Pipelines by their names, and pipelines that are variants by the applications of which they are variants.
#[derive(Default)]
pub(crate) struct Catalog {
    pipelines: HashMap<ApplicationId, Arc<LoadedPipeline>>,
    composites: HashMap<ApplicationId, Vec<Arc<LoadedPipeline>>>,
}

/// A pipeline as a front end holds it.
pub struct LoadedPipeline {
    /// The version of its definition, from 1.
    pub version: u32,
    /// Tells the pipeline from another one with the same name and version: a pipeline that is deleted and made again
    /// starts at version 1. Empty where it is unknown.
    pub mark: String,
    state: Result<Ready, String>,
}

// === impl LoadedPipeline ===

impl LoadedPipeline {
    /// A pipeline that can run.
    ///
    /// # Errors
    /// When its name cannot be the name of a model or of a variant.
    pub fn new(graph: Graph, version: u32) -> Result<Self, sextant_types::InvalidId> {
        let name = &graph.definition.name;
        let names = Names {
            model: ModelId::new(name)?,
            variant: VariantId::new(format!("{name}-v{version}"))?,
        };
        let (pace, counts) = (Pace::new(&graph), Counts::new(&graph));
        let traffic = Traffic::new(&graph);
        Ok(Self {
            version,
            mark: String::new(),
            state: Ok(Ready {
                graph,
                pace,
                counts,
                traffic,
                names,
                whole: ArcSwap::default(),
            }),
        })
    }

    /// A pipeline that cannot run, and the reason.
    pub fn unusable(version: u32, why: String) -> Self {
        Self {
            version,
            mark: String::new(),
            state: Err(why),
        }
    }

    /// The same pipeline with a mark.
    pub fn marked(self, mark: String) -> Self {
        Self { mark, ..self }
    }

    /// The graph of the pipeline.
    ///
    /// # Errors
    /// Why the pipeline cannot run.
    pub fn graph(&self) -> Result<&Graph, &str> {
        self.state
            .as_ref()
            .map(|ready| &ready.graph)
            .map_err(String::as_str)
    }

    /// The measurement of the pipeline as a whole; none for a pipeline that cannot run.
    pub fn whole(&self) -> Arc<Whole> {
        let ready = self.state.as_ref();
        ready.map_or_else(|_| Arc::default(), |ready| ready.whole.load_full())
    }

    /// Replaces what is known of the pipeline as a whole.
    pub fn set_whole(&self, whole: Whole) {
        if let Ok(ready) = &self.state
            && **ready.whole.load() != whole
        {
            ready.whole.store(Arc::new(whole));
        }
    }

    /// The application of which the pipeline is a variant.
    pub fn variant_of(&self) -> Option<ApplicationId> {
        let definition = &self.graph().ok()?.definition;
        definition.whole().ok()?
    }

    /// The counts of its steps; none for a pipeline that cannot run.
    pub fn counts(&self) -> impl Iterator<Item = StepCounts<'_>> {
        let ready = self.state.iter();
        ready.flat_map(|ready| ready.counts.of(&ready.graph))
    }

    pub(crate) fn ready(&self) -> Result<&Ready, QueryError> {
        self.state.as_ref().map_err(|why| {
            let message = format!("the pipeline cannot run: {why}");
            QueryError::new(Code::Unavailable, message).retry_after_ms(1000.0)
        })
    }
}

// === impl Catalog ===

impl Catalog {
    /// The pipeline that a route names.
    pub(crate) fn of(&self, route: &Route) -> Option<&Arc<LoadedPipeline>> {
        match route {
            Route::Application(id) => self.pipelines.get(id),
            Route::Model(_) | Route::Variant(_) => None,
        }
    }

    /// Whether a route can be answered. For a pipeline, everything that its steps ask must be ready.
    fn is_ready(&self, route: &Route, beneath: &DispatcherClient) -> bool {
        match self.of(route) {
            Some(pipeline) => pipeline
                .graph()
                .is_ok_and(|graph| graph.routes().all(|it| self.is_ready(it, beneath))),
            None => beneath.is_ready(route),
        }
    }
}

// === impl Pipelines ===

impl Pipelines {
    /// Pipelines over a dispatcher that answers the steps, at first none. `memory` counts what steps make.
    pub fn over(dispatcher: DispatcherClient, memory: Arc<dyn Memory>) -> Arc<Self> {
        Self::with_python(dispatcher, memory, Arc::new(NoPython::Off))
    }

    /// The same, with `python` to call the functions of Python files.
    pub fn with_python(
        dispatcher: DispatcherClient,
        memory: Arc<dyn Memory>,
        python: Arc<dyn Interpreter>,
    ) -> Arc<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self {
            means: Means {
                dispatcher,
                cores: Arc::new(Semaphore::new(cores)),
                memory,
                python,
            },
            loaded: ArcSwap::default(),
        })
    }

    /// What calls the functions of Python files.
    pub fn python(&self) -> &Arc<dyn Interpreter> {
        &self.means.python
    }

    /// The dispatcher beneath.
    pub fn beneath(&self) -> &DispatcherClient {
        &self.means.dispatcher
    }

    /// Replaces all pipelines.
    pub fn set(&self, pipelines: HashMap<ApplicationId, Arc<LoadedPipeline>>) {
        let mut composites: HashMap<ApplicationId, Vec<Arc<LoadedPipeline>>> = HashMap::new();
        let mut sorted: Vec<_> = pipelines.iter().collect();
        sorted.sort_by_key(|(name, _)| *name);
        for (_, pipeline) in sorted {
            if let Some(whole) = pipeline.variant_of() {
                composites
                    .entry(whole)
                    .or_default()
                    .push(Arc::clone(pipeline));
            }
        }
        self.loaded.store(Arc::new(Catalog {
            pipelines,
            composites,
        }));
    }

    /// The pipelines that are variants of an application, sorted by name.
    pub fn composites(&self, application: &ApplicationId) -> Vec<Arc<LoadedPipeline>> {
        let known = self.loaded.load();
        known
            .composites
            .get(application)
            .cloned()
            .unwrap_or_default()
    }

    /// The pipeline of a name.
    pub fn get(&self, application: &ApplicationId) -> Option<Arc<LoadedPipeline>> {
        self.loaded.load().pipelines.get(application).cloned()
    }

    /// The names of all pipelines, sorted.
    pub fn names(&self) -> Vec<ApplicationId> {
        let mut names: Vec<_> = self.loaded.load().pipelines.keys().cloned().collect();
        names.sort();
        names
    }

    /// All pipelines.
    pub fn all(&self) -> HashMap<ApplicationId, Arc<LoadedPipeline>> {
        self.loaded.load().pipelines.clone()
    }

    /// The pipeline that a route names.
    fn of(&self, route: &Route) -> Option<Arc<LoadedPipeline>> {
        self.loaded.load().of(route).cloned()
    }

    /// The pipeline that a route names, with the catalog that holds it.
    fn with(&self, route: &Route) -> Option<(Arc<Catalog>, Arc<LoadedPipeline>)> {
        let known = self.loaded.load();
        let pipeline = Arc::clone(known.of(route)?);
        Some((Guard::into_inner(known), pipeline))
    }
}

#[async_trait]
impl Dispatch for Pipelines {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        if let Some((known, pipeline)) = self.with(&query.route) {
            let around = QueryContext {
                means: &self.means,
                known: &known,
                outer: None,
                demanded: None,
            };
            return run::answer(pipeline.ready()?, around, query).await;
        }
        match self.offered(&query) {
            None => self.means.dispatcher.query(query).await,
            // This case is rare. The box keeps its future out of the futures of other queries.
            Some(offered) => Box::pin(self.among(offered, query)).await,
        }
    }

    async fn place(&self, ask: Ask, holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        self.means.dispatcher.place(ask, holder).await
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        match self.of(route) {
            Some(pipeline) => Ok(pipeline.ready()?.graph.signature.clone()),
            None => self.means.dispatcher.signature(route),
        }
    }

    fn utilization(&self) -> f64 {
        self.means.dispatcher.utilization()
    }

    fn has_workers(&self) -> bool {
        self.means.dispatcher.has_workers()
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.loaded.load().is_ready(route, &self.means.dispatcher)
    }
}
