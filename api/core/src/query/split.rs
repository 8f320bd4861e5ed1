//! Queries with more rows than a batch holds: they are asked in parts and answered as one.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use sextant_rpc::{Answer, Ask, Dispatch, DispatcherClient, ForStep, Holder, Query, QueryError};
use sextant_types::{Code, NamedTensor, Route, Signature, Tensor};

/// Parts of one query that are asked at the same time, so that other queries run between them.
const PARTS_AT_ONCE: usize = 4;

/// A dispatcher that splits the queries which are too long for a batch.
pub struct Splitting(DispatcherClient);

// === impl Splitting ===

impl Splitting {
    /// A dispatcher for queries of any length that asks `dispatcher`.
    pub fn over(dispatcher: DispatcherClient) -> DispatcherClient {
        Arc::new(Self(dispatcher))
    }

    /// Asks for `most` rows at a time. The variant that answers the first part also answers the others.
    async fn in_parts(&self, query: Query, most: u32) -> Result<Answer, QueryError> {
        let rows = rows_of(&query);
        let part = |start: usize| part(&query, start, (most as usize).min(rows - start));
        let first = self.0.query(part(0)?).await?;
        let route = Route::Variant(first.variant.clone());
        let others = (most as usize..rows).step_by(most as usize).map(|start| {
            let part = part(start).map(|part| Query {
                route: route.clone(),
                explain: false,
                ..part
            });
            async move { self.0.query(part?).await }
        });
        let others = stream::iter(others).buffered(PARTS_AT_ONCE);
        let others: Vec<Answer> = others.try_collect().await?;
        joined(first, &others)
    }
}

#[async_trait]
impl Dispatch for Splitting {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        if rows_of(&query) < 2 {
            return self.0.query(query).await;
        }
        let kept = query.clone();
        match self.0.query(query).await {
            Err(QueryError {
                most_rows: Some(most @ 1..),
                ..
            }) if (most as usize) < rows_of(&kept) && has_elements(&kept) => {
                self.in_parts(kept, most).await
            }
            result => result,
        }
    }

    async fn place(&self, ask: Ask, holder: Arc<dyn Holder>) -> Result<(), QueryError> {
        self.0.place(ask, holder).await
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        self.0.signature(route)
    }

    fn utilization(&self) -> f64 {
        self.0.utilization()
    }

    fn has_workers(&self) -> bool {
        self.0.has_workers()
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.0.is_ready(route)
    }
}

fn rows_of(query: &Query) -> usize {
    let mut inputs = query.inputs.iter();
    inputs.next().map_or(1, |input| input.tensor.rows())
}

/// Whether the rows have elements: without elements, a query of a few bytes may have billions of rows.
fn has_elements(query: &Query) -> bool {
    query.inputs.iter().any(|input| !input.tensor.is_empty())
}

/// The query for some of its rows.
fn part(query: &Query, start: usize, count: usize) -> Result<Query, QueryError> {
    let cut = |input: &NamedTensor| {
        let tensor = input.tensor.slice_rows(start, count);
        let tensor =
            tensor.map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
        Ok(NamedTensor::new(input.name.clone(), tensor))
    };
    // All parts together count as the one run of the whole.
    let share = count as f64 / rows_of(query).max(1) as f64;
    let step = query.step.as_deref().map(|step| {
        Box::new(ForStep {
            share: step.share * share,
            ..step.clone()
        })
    });
    Ok(Query {
        inputs: query
            .inputs
            .iter()
            .map(cut)
            .collect::<Result<_, QueryError>>()?,
        route: query.route.clone(),
        // The rows of a part are numbered from 0, so a shadow's answer to a part belongs to no row of the whole.
        serial: None,
        // Composite variants were offered the whole query.
        composites: Vec::new(),
        step,
        ..*query
    })
}

/// The answers to all parts as one.
fn joined(first: Answer, others: &[Answer]) -> Result<Answer, QueryError> {
    let column = |(at, output): (usize, &NamedTensor)| {
        let others = others.iter().filter_map(|it| it.outputs.get(at));
        let parts: Vec<&Tensor> = std::iter::once(output)
            .chain(others)
            .map(|output| &output.tensor)
            .collect();
        let tensor = Tensor::concat(&parts).map_err(|error| {
            let message = format!("the query was split, and its answers do not fit: {error}");
            QueryError::new(Code::InvalidTensor, message)
        })?;
        Ok(NamedTensor::new(output.name.clone(), tensor))
    };
    let outputs = first.outputs.iter().enumerate().map(column);
    let outputs = outputs.collect::<Result<_, QueryError>>()?;
    let mut timings = first.timings;
    for other in others {
        let of = &other.timings;
        timings.queue_us = timings.queue_us.max(of.queue_us);
        timings.load_us = timings.load_us.max(of.load_us);
        timings.compute_us += of.compute_us;
        timings.total_us = timings.total_us.max(of.total_us);
        timings.batch_rows = timings.batch_rows.max(of.batch_rows);
    }
    Ok(Answer {
        outputs,
        timings,
        rows: first.rows + others.iter().map(|it| it.rows).sum::<u32>(),
        targets_met: first.targets_met && others.iter().all(|it| it.targets_met),
        cost_usd: first.cost_usd + others.iter().map(|it| it.cost_usd).sum::<f64>(),
        ..first
    })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Instant,
    };

    use parking_lot::Mutex;
    use sextant_rpc::Timings;
    use sextant_types::StepOf;

    use super::*;

    /// A dispatcher with batches of at most three rows. It counts the queries, and keeps the part of a step that each
    /// is for.
    #[derive(Default)]
    struct Small(AtomicUsize, Mutex<Vec<ForStep>>);

    #[async_trait]
    impl Dispatch for Small {
        async fn query(&self, query: Query) -> Result<Answer, QueryError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let rows = rows_of(&query) as u32;
            if rows > 3 {
                return Err(QueryError::too_many_rows(rows, 3, "what is loaded"));
            }
            self.1.lock().extend(query.step.map(|step| *step));
            Ok(Answer {
                variant: "mlp-b3".parse().expect("a name"),
                model: "mlp".parse().expect("a name"),
                outputs: query.inputs,
                rows,
                timings: Timings::default(),
                targets_met: true,
                cost_usd: 0.0,
                explanation: None,
            })
        }

        fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
            Err(QueryError::not_found(route))
        }

        fn utilization(&self) -> f64 {
            0.0
        }

        fn is_ready(&self, _: &Route) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn rows_without_elements_are_not_asked_for_in_parts() {
        let small = Arc::new(Small::default());
        let splitting = Splitting::over(Arc::clone(&small) as DispatcherClient);
        let rows = Tensor::from_elements(vec![u32::MAX as usize, 0], &[0f32; 0]);
        let inputs = vec![NamedTensor::new("x", rows.expect("rows"))];
        let route = Route::Application("digits".parse().expect("a name"));
        let query = Query::new(route, inputs, Instant::now());
        let refused = splitting.query(query).await.expect_err("too many");
        assert_eq!(
            (refused.code, refused.most_rows),
            (Code::InvalidTensor, Some(3))
        );
        assert_eq!(small.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn parts_are_for_the_step_that_the_whole_is_for() {
        let small = Arc::new(Small::default());
        let splitting = Splitting::over(Arc::clone(&small) as DispatcherClient);
        let route = Route::Application("digits".parse().expect("a name"));
        let step = ForStep {
            of: Arc::new(StepOf {
                pipeline: "photos".parse().expect("a name"),
                step: "read".to_owned(),
                after: Vec::new(),
                asks: route.clone(),
            }),
            share: 0.5,
            whole_ms: Some(80.0),
            patience_ms: Some(60.0),
            accuracy: None,
        };
        let rows = Tensor::from_elements(vec![8, 1], &[1f32; 8]).expect("rows");
        let query = Query {
            step: Some(Box::new(step)),
            ..Query::new(route, vec![NamedTensor::new("x", rows)], Instant::now())
        };
        let answer = splitting.query(query).await.expect("an answer");
        assert_eq!(answer.rows, 8);
        let parts = small.1.lock();
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|it| it.patience_ms == Some(60.0)));
        let share: f64 = parts.iter().map(|it| it.share).sum();
        assert!((share - 0.5).abs() < 1e-9, "{share}");
    }
}
