//! Equal concurrent queries: the first of them runs, and the others wait for it.
//!
//! The dispatcher chooses which variant answers, so no query is given the answer of another one. A query that has
//! waited looks into the cache again, and then asks as every query does. If the first query is given up, the next one
//! runs. If it was refused, or its answer is not cached, all others run.

use std::{collections::HashMap, sync::Arc, time::Instant};

use parking_lot::Mutex;
use sextant_answers::InputsDigest;
use sextant_rpc::Query;
use sextant_types::{Prefer, Route, Targets};
use tokio::{sync::Semaphore, time::timeout_at};

use super::entry::deadline;

/// The queries that wait for each other.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Equal, Flight>>);

/// A semaphore with one permit, the right to run for all. It is closed when that is over.
type Flight = Arc<Semaphore>;

/// What equal queries have in common. With other demands another variant may answer, or another deadline may apply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Equal {
    inputs: InputsDigest,
    route: Route,
    figures: [Option<u64>; 5],
    prefer: Option<Prefer>,
    best_effort: bool,
}

/// A query's place among the queries that are equal to it.
pub(super) struct Seat<'a> {
    flights: &'a Flights,
    equal: Equal,
    flight: Option<Flight>,
    is_first: bool,
}

// === impl Flights ===

impl Flights {
    /// Waits while an equal query runs, at most until the query's own deadline.
    pub(super) async fn join(&self, query: &Query, inputs: InputsDigest) -> Seat<'_> {
        let mut seat = self.seat(Equal::new(query, inputs));
        let limits = (&query.targets, query.step.as_deref());
        let deadline = deadline(limits, query.best_effort, query.arrived);
        seat.is_first = seat.wait(deadline).await;
        seat
    }

    fn seat(&self, equal: Equal) -> Seat<'_> {
        let mut flights = self.0.lock();
        let flight = flights.entry(equal.clone());
        let flight = flight.or_insert_with(|| Arc::new(Semaphore::new(1)));
        Seat {
            flights: self,
            equal,
            flight: Some(Arc::clone(flight)),
            is_first: false,
        }
    }
}

// === impl Equal ===

impl Equal {
    fn new(query: &Query, inputs: InputsDigest) -> Self {
        let Targets {
            latency_ms,
            min_quality,
            min_relative_accuracy,
            min_agreement,
            max_cost_per_1k_usd,
            prefer,
        } = query.targets;
        let figures = [
            latency_ms,
            min_quality,
            min_relative_accuracy,
            min_agreement,
            max_cost_per_1k_usd,
        ];
        Self {
            inputs,
            route: query.route.clone(),
            figures: figures.map(|figure| figure.map(f64::to_bits)),
            prefer,
            best_effort: query.best_effort,
        }
    }
}

// === impl Seat ===

impl Seat<'_> {
    /// Whether it is this query's turn to run.
    async fn wait(&self, deadline: Option<Instant>) -> bool {
        let Some(flight) = &self.flight else {
            return false;
        };
        let turn = match deadline {
            Some(deadline) => timeout_at(deadline.into(), flight.acquire()).await.ok(),
            None => Some(flight.acquire().await),
        };
        match turn {
            Some(Ok(turn)) => {
                // The permit is released when the seat is dropped.
                turn.forget();
                true
            }
            Some(Err(_)) | None => false,
        }
    }

    /// Whether this query runs and others wait for it.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Lets the waiting queries go on.
    pub(super) fn end(self) {
        if let Some(flight) = &self.flight {
            flight.close();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        let flight = self.flight.take();
        if let Some(flight) = flight.filter(|_| self.is_first) {
            flight.add_permits(1);
        }
        // Nobody else has a seat, and nobody can join while the lock is held.
        let left = flights.get(&self.equal);
        if left.is_some_and(|flight| Arc::strong_count(flight) == 1) {
            flights.remove(&self.equal);
        }
    }
}
