//! Queries in real time: when they arrive, and their outcomes.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use sextant_rpc::{Answer, DispatcherClient, Query};
use sextant_schedule::Nanos;
use sextant_simulator::{trace::Trace, workload};
use sextant_types::{ApplicationId, NamedTensor, Route, Targets, Tensor};
use tokio::runtime::Runtime;

use crate::service;

/// A thread wakes up this much early and spins for the rest.
const AWAKE: Duration = Duration::from_micros(150);

/// The outcome of a query.
pub struct QueryRecord {
    /// When the query arrived, ns from the beginning.
    pub at: Nanos,
    /// The time from the arrival to the answer.
    pub latency: Duration,
    /// The answer; `None` when it was refused.
    pub answer: Option<Answer>,
}

/// Returns at `instant`, a few microseconds late at most while a core is free.
pub fn wait_until(instant: Instant) {
    if let Some(left) = instant.checked_duration_since(Instant::now() + AWAKE) {
        thread::sleep(left);
    }
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}

/// Poisson arrivals for one model until `end`.
pub fn poisson(model: &str, rps: f64, seed: u64, end: Nanos) -> Result<Trace> {
    let stream = workload::Stream {
        model: 0,
        gaps: workload::Gaps::Exponential,
        rate: workload::Rate::Constant(rps),
    };
    let mut source = workload::open_loop(&[stream], seed)?;
    let mut trace = Trace {
        models: vec![model.to_owned()],
        requests: Vec::new(),
    };
    while source.peek().is_some_and(|at| at < end) {
        let arrival = source.next();
        trace.requests.push((arrival.at, arrival.model));
    }
    Ok(trace)
}

/// Sends every request at its time, from this thread, and waits for all answers.
pub fn replay(
    runtime: &Runtime,
    service: &DispatcherClient,
    trace: &Trace,
    target: Duration,
) -> Result<Vec<QueryRecord>> {
    let begun = Instant::now() + Duration::from_millis(50);
    let mut answers = Vec::with_capacity(trace.requests.len());
    for (at, _) in &trace.requests {
        let (at, arrived) = (*at, begun + Duration::from_nanos(*at));
        wait_until(arrived);
        let dispatcher = Arc::clone(service);
        let query = query(arrived, target)?;
        answers.push(runtime.spawn(async move {
            let answer = dispatcher.query(query).await.ok();
            let latency = arrived.elapsed();
            QueryRecord {
                at,
                latency,
                answer,
            }
        }));
    }
    let answers = answers.into_iter();
    answers
        .map(|answer| Ok(runtime.block_on(answer)?))
        .collect()
}

fn query(arrived: Instant, target: Duration) -> Result<Query> {
    Ok(Query {
        targets: Targets {
            latency_ms: Some(target.as_secs_f64() * 1e3),
            ..Targets::default()
        },
        ..Query::new(
            Route::Application(ApplicationId::new(service::APPLICATION)?),
            vec![NamedTensor::new(
                "x",
                Tensor::from_elements(vec![1, 1], &[1.0_f32])?,
            )],
            arrived,
        )
    })
}
