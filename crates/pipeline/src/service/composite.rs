//! Composite variants: pipelines that are variants of an application. They are offered with each query to the
//! application, and run where selection picks one.
//!
//! The dispatcher selects, because only it knows the costs of its variants and their queues now. The front end tells it
//! the measured figures of the pipelines that it offers. The dispatcher sends the query back if one of them is better.
//! Then each row of the query takes its own branches, concurrently with the other rows, so that rows that ask the same
//! share batches.

use std::{sync::Arc, time::Duration};

use arc_swap::Guard;
use futures::{StreamExt, TryStreamExt, stream};
use sextant_rpc::{Answer, Composite, Explanation, Query, QueryError, StepRecord};
use sextant_types::{Code, NamedTensor, Route, Targets, Tensor};

use super::{Catalog, LoadedPipeline, Pipelines};
use crate::run::{self, QueryContext, ROWS_AT_ONCE, Ready};

/// What can answer a query besides the variants of models.
pub(super) struct Offered {
    /// The pipelines as they were when the query came. The query ends on the versions that it began with.
    known: Arc<Catalog>,
    /// The offered pipelines, with their description for the dispatcher.
    composites: Vec<(Arc<LoadedPipeline>, Composite)>,
}

/// The rows of a query. They are cut on demand: a batch may count four billion empty rows.
struct Rows {
    inputs: Vec<NamedTensor>,
    count: u32,
}

impl Pipelines {
    /// The pipelines that can answer a query to an application; `None` where none can.
    pub(super) fn offered(&self, query: &Query) -> Option<Offered> {
        let Route::Application(application) = &query.route else {
            return None;
        };
        let known = self.loaded.load();
        let composites = known.composites.get(application)?;
        // The dispatcher reports what is wrong with the inputs.
        let first = self.rows(query)?.get(0)?;
        let offered = composites.iter().filter_map(|pipeline| {
            let composite = self.figures(&known, pipeline, &first)?;
            Some((Arc::clone(pipeline), composite))
        });
        let composites: Vec<_> = offered.collect();
        (!composites.is_empty()).then(|| Offered {
            known: Guard::into_inner(known),
            composites,
        })
    }

    /// The figures of a composite variant; `None` while it cannot answer such rows, whatever the targets.
    fn figures(
        &self,
        known: &Catalog,
        pipeline: &LoadedPipeline,
        row: &[NamedTensor],
    ) -> Option<Composite> {
        let ready = pipeline.ready().ok()?;
        let whole = ready.whole.load();
        let measured = whole.current()?;
        let beneath = &self.means.dispatcher;
        if !ready.graph.routes().all(|it| known.is_ready(it, beneath)) {
            return None;
        }
        // A pipeline takes single records, in a shape of its own.
        ready.graph.signature.bind(row.to_vec()).ok()?;
        Some(Composite {
            variant: ready.names.variant.clone(),
            quality_bound: measured.accuracy.quality_bound(),
            latency_ms: measured.p99_ms,
            cost_per_1k_usd: measured.cost_per_1k_usd,
        })
    }

    fn rows(&self, query: &Query) -> Option<Rows> {
        let signature = self.means.dispatcher.signature(&query.route).ok()?;
        let (inputs, count) = signature.bind(query.inputs.clone()).ok()?;
        let count = if signature.batched { count } else { 1 };
        Some(Rows { inputs, count })
    }

    /// Has the best variant answer a query: a variant of a model, or one of the offered pipelines.
    pub(super) async fn among(
        &self,
        Offered { known, composites }: Offered,
        mut query: Query,
    ) -> Result<Answer, QueryError> {
        let alone = query.clone();
        let (pipelines, composites): (Vec<_>, Vec<_>) = composites.into_iter().unzip();
        query.composites = composites;
        let instead = match self.means.dispatcher.query(query).await {
            Err(QueryError {
                instead: Some(instead),
                ..
            }) => instead,
            result => return result,
        };
        let named = |it: &&Arc<LoadedPipeline>| {
            it.ready()
                .is_ok_and(|ready| ready.names.variant == instead.variant)
        };
        let Some(pipeline) = pipelines.iter().find(named) else {
            return self.means.dispatcher.query(alone).await;
        };
        match self.by_row((&known, pipeline.ready()?), &alone).await {
            Ok(answer) => Ok(self.as_variant(&alone.route, answer, instead.explanation)),
            Err(error) if error.code.kind().is_retryable() && has_time(&alone) => {
                self.means.dispatcher.query(alone).await
            }
            Err(error) => Err(error),
        }
    }

    /// Sends each row of a query through a pipeline on its own.
    async fn by_row(
        &self,
        (known, ready): (&Catalog, &Ready),
        query: &Query,
    ) -> Result<Answer, QueryError> {
        let around = QueryContext {
            means: &self.means,
            known,
            outer: None,
            demanded: None,
        };
        let asked = |inputs: Vec<NamedTensor>| Query {
            inputs,
            // The dispatcher has compared the other targets with the measurement. The accuracy is passed on because the
            // autoscaler plans the steps by it.
            targets: Targets {
                latency_ms: query.targets.latency_ms,
                min_quality: query.targets.min_quality,
                ..Targets::default()
            },
            ..query.clone()
        };
        let rows = self.rows(query).and_then(|rows| rows.all());
        let rows = rows.unwrap_or_default();
        let count = rows.len();
        let answers = rows
            .into_iter()
            .map(|row| run::answer(ready, around, asked(row)));
        let answers = stream::iter(answers).buffered(ROWS_AT_ONCE).enumerate();
        let answers = answers.map(|(row, answer)| {
            answer.map_err(|error| match count {
                1 => error,
                _ => QueryError {
                    message: format!("row `{row}`: {}", error.message),
                    ..error
                },
            })
        });
        joined(answers.try_collect().await?)
    }

    /// Turns the answer into one of the application: its outputs are in the order of the application's, and its
    /// explanation is that of the selection.
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

// === impl Rows ===

impl Rows {
    /// The inputs of the row `at`.
    fn get(&self, at: usize) -> Option<Vec<NamedTensor>> {
        if self.count == 1 {
            return Some(self.inputs.clone());
        }
        let cut = self.inputs.iter().map(|input| {
            let row = input.tensor.slice_rows(at, 1).ok()?;
            Some(NamedTensor::new(&input.name, row))
        });
        cut.collect()
    }

    fn all(&self) -> Option<Vec<Vec<NamedTensor>>> {
        (0..self.count as usize).map(|at| self.get(at)).collect()
    }
}

/// Joins the answers to the rows.
fn joined(mut answers: Vec<Answer>) -> Result<Answer, QueryError> {
    let nothing = || QueryError::new(Code::InvalidTensor, "the query has no rows");
    let all = answers.len() as u32;
    let mut whole = answers.pop().ok_or_else(nothing)?;
    if answers.is_empty() {
        return Ok(whole);
    }
    let is_left_out = |it: &&NamedTensor| whole.outputs.iter().all(|own| own.name != it.name);
    let mut others = answers.iter().flat_map(|answer| &answer.outputs);
    if let Some(output) = others.find(is_left_out) {
        let why = format!("some of its rows gave no `{}`, and others did", output.name);
        return Err(QueryError::new(Code::InvalidTensor, why));
    }
    for output in &mut whole.outputs {
        let of = answers.iter().filter_map(|answer| {
            let found = answer.outputs.iter().find(|it| it.name == output.name);
            found.map(|it| &it.tensor)
        });
        let rows: Vec<&Tensor> = of.chain([&output.tensor]).collect();
        let joined = Tensor::concat(&rows).ok();
        let joined = joined.filter(|it| it.rows() == all as usize);
        output.tensor = joined.ok_or_else(|| {
            let why = format!(
                "its rows gave `{}` in shapes that make no tensor",
                output.name
            );
            QueryError::new(Code::InvalidTensor, why)
        })?;
    }
    whole.rows = all;
    for answer in &answers {
        let (all, of) = (&mut whole.timings, &answer.timings);
        all.queue_us = all.queue_us.max(of.queue_us);
        all.load_us = all.load_us.max(of.load_us);
        all.compute_us = all.compute_us.max(of.compute_us);
        all.total_us = all.total_us.max(of.total_us);
        all.batch_rows = all.batch_rows.max(of.batch_rows);
        whole.cost_usd += answer.cost_usd;
        whole.targets_met &= answer.targets_met;
    }
    if let Some(explanation) = &mut whole.explanation {
        let others = answers.into_iter().filter_map(|it| it.explanation);
        let others = others.flat_map(|it| it.steps);
        explanation.steps = of_all_rows(others.chain(std::mem::take(&mut explanation.steps)));
    }
    Ok(whole)
}

/// The record of each step over all rows. A step counts as answered if it answered any row.
fn of_all_rows(steps: impl Iterator<Item = StepRecord>) -> Vec<StepRecord> {
    let mut all: Vec<StepRecord> = Vec::new();
    for step in steps {
        let Some(known) = all.iter_mut().find(|it| it.name == step.name) else {
            all.push(step);
            continue;
        };
        let (mut into, of) = match known.outcome == "answered" {
            true => (known.clone(), step),
            false => (step, known.clone()),
        };
        into.rows += of.rows;
        into.cost_usd += of.cost_usd;
        into.queue_us = into.queue_us.max(of.queue_us);
        into.load_us = into.load_us.max(of.load_us);
        into.compute_us = into.compute_us.max(of.compute_us);
        into.total_us = into.total_us.max(of.total_us);
        into.batch_rows = into.batch_rows.max(of.batch_rows);
        into.targets_met &= of.targets_met;
        *known = into;
    }
    all
}

/// Whether any of the query's time is left.
fn has_time(query: &Query) -> bool {
    let left = query.targets.latency_ms.map(|ms| {
        Duration::try_from_secs_f64(ms / 1e3).is_ok_and(|all| query.arrived.elapsed() < all)
    });
    left.unwrap_or(true)
}
