//! Pipelines that are variants of an application: offered with each query to it, and run where selection takes one.
//!
//! The dispatcher selects, since it alone knows what its variants cost and how long they wait now; it is told the
//! measured figures of what is offered, and sends the query back where one of these is better.

use std::{sync::Arc, time::Duration};

use sextant_rpc::{Answer, Composite, Explanation, Query, QueryError};
use sextant_types::{Route, Targets};

use super::{Known, Loaded, Pipelines};
use crate::run::{self, Around};

impl Pipelines {
    /// What can answer a query to an application beside the variants of its models, as the dispatcher is told of it.
    pub(super) fn offered(&self, query: &Query) -> Vec<(Arc<Loaded>, Composite)> {
        let Route::Application(application) = &query.route else {
            return Vec::new();
        };
        let known = self.loaded.load();
        let Some(composites) = known.composites.get(application) else {
            return Vec::new();
        };
        let offered = composites.iter().filter_map(|pipeline| {
            let composite = self.figures(&known, pipeline, query)?;
            Some((Arc::clone(pipeline), composite))
        });
        offered.collect()
    }

    /// The figures of a composite variant; `None` while it cannot answer this query, whatever its targets are.
    fn figures(&self, known: &Known, pipeline: &Loaded, query: &Query) -> Option<Composite> {
        let ready = pipeline.ready().ok()?;
        let whole = ready.whole.load();
        let measured = whole.current()?;
        let beneath = &self.means.dispatcher;
        if !ready.graph.routes().all(|it| known.is_ready(it, beneath)) {
            return None;
        }
        // It takes single records, in a shape of its own.
        ready.graph.signature.bind(query.inputs.clone()).ok()?;
        Some(Composite {
            variant: ready.names.variant.clone(),
            quality_bound: measured.accuracy.quality_bound(),
            latency_ms: measured.p99_ms,
            cost_per_1k_usd: measured.cost_per_1k_usd,
        })
    }

    /// Has a query answered by what is best: a variant of a model, or one of these.
    pub(super) async fn among(
        &self,
        offered: Vec<(Arc<Loaded>, Composite)>,
        mut query: Query,
    ) -> Result<Answer, QueryError> {
        let alone = query.clone();
        let (pipelines, composites): (Vec<_>, Vec<_>) = offered.into_iter().unzip();
        query.composites = composites;
        let instead = match self.means.dispatcher.query(query).await {
            Err(QueryError {
                instead: Some(instead),
                ..
            }) => instead,
            result => return result,
        };
        let named = |it: &&Arc<Loaded>| {
            it.ready()
                .is_ok_and(|ready| ready.names.variant == instead.variant)
        };
        let Some(pipeline) = pipelines.iter().find(named) else {
            return self.means.dispatcher.query(alone).await;
        };
        let ready = pipeline.ready()?;
        let asked = Query {
            // The others were compared with what was measured of it.
            targets: Targets {
                latency_ms: alone.targets.latency_ms,
                ..Targets::default()
            },
            ..alone.clone()
        };
        let known = self.loaded.load_full();
        let around = Around {
            means: &self.means,
            known: &known,
        };
        match run::answer(ready, around, asked).await {
            Ok(answer) => Ok(self.as_variant(&alone.route, answer, instead.explanation)),
            Err(error) if error.code.kind().is_retryable() && has_time(&alone) => {
                self.means.dispatcher.query(alone).await
            }
            Err(error) => Err(error),
        }
    }

    /// The answer as one of the application's: its outputs in the order of the application's, and explained as the
    /// selection explains it.
    fn as_variant(
        &self,
        route: &Route,
        mut answer: Answer,
        selected: Option<Explanation>,
    ) -> Answer {
        if let Ok(signature) = self.means.dispatcher.signature(route) {
            let specs = &signature.outputs;
            let place = |name: &str| specs.iter().position(|spec| spec.name == name);
            answer.outputs.sort_by_key(|output| place(&output.name));
        }
        if let (Some(own), Some(selected)) = (&mut answer.explanation, selected) {
            own.reason = selected.reason;
            own.candidates = selected.candidates;
            own.considered = selected.considered;
        }
        answer
    }
}

/// Whether something is left of a query's time.
fn has_time(query: &Query) -> bool {
    let left = query.targets.latency_ms.map(|ms| {
        Duration::try_from_secs_f64(ms / 1e3).is_ok_and(|all| query.arrived.elapsed() < all)
    });
    left.unwrap_or(true)
}
