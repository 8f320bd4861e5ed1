//! Equal queries that are on their way at once: the first of them runs, the others wait for it.
//!
//! Which variant answers is for the dispatcher to say, so nobody is given the answer of another query. Whoever has waited looks
//! once more for what is kept, and asks with it as everybody does. Where the first one is given up, the next one runs; where it
//! was refused, or its answer is not kept, all others run.

use std::{collections::HashMap, sync::Arc, time::Instant};

use parking_lot::Mutex;
use sextant_answers::InputsDigest;
use sextant_rpc::Query;
use sextant_types::{Prefer, Route, Targets};
use tokio::{sync::Semaphore, time::timeout_at};

use super::entry::deadline;

/// Queries that wait for each other.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Equal, Flight>>);

/// One permit, the right to run for all; closed when that is over.
type Flight = Arc<Semaphore>;

/// What equal queries have in common: whoever demands something else may be answered by another variant, or by another time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Equal {
    inputs: InputsDigest,
    route: Route,
    figures: [Option<u64>; 5],
    prefer: Option<Prefer>,
    best_effort: bool,
}

/// A query's place among those that are equal to it.
pub(super) struct Seat<'a> {
    flights: &'a Flights,
    equal: Equal,
    flight: Option<Flight>,
    is_first: bool,
}

// === impl Flights ===

impl Flights {
    /// Waits while an equal query is on its way, until its own deadline at most.
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
    /// Whether it is this one's turn to run.
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
                // It is given on where the seat is left.
                turn.forget();
                true
            }
            Some(Err(_)) | None => false,
        }
    }

    /// Whether it runs, and others wait for it.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Has those who wait go on.
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
        // Nobody else sits in it, and nobody comes while the lock is held.
        let left = flights.get(&self.equal);
        if left.is_some_and(|flight| Arc::strong_count(flight) == 1) {
            flights.remove(&self.equal);
        }
    }
}
