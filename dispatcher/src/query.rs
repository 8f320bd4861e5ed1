//! The way of one query through the dispatcher.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_policies::{
    schedule::{DropReason, NEVER, Request},
    select::{self, Decision, Demand},
};
use sextant_rpc::{Answer, Dispatch, Explanation, InferError, Query, QueryError, Route, Timings};
use sextant_types::{Code, NamedTensor, Signature, Targets};
use tokio::sync::oneshot;

use crate::{
    Dispatcher,
    explain::explain,
    families::{Family, UnderWay},
    index::{Known, LiveLoad, Scope, Snapshot},
    pending::{Done, Pending, Refusal},
    refusal::{not_found, refuse, refused, warming},
};

/// What the selection came to.
struct Chosen {
    known: Arc<Known>,
    /// Whether it has to be loaded first.
    load: bool,
    /// Counts it among the queries of its family.
    under_way: Option<UnderWay>,
    explanation: Option<Explanation>,
}

/// How often a query whose instance went away under it is placed anew.
const PLACEMENTS: usize = 3;

/// Longest wait for the news that an instance is gone before a query is placed anew.
const NEWS_WAIT: Duration = Duration::from_millis(100);

impl Dispatcher {
    /// Answers one query; `online` ones are what offline jobs make room for.
    pub(crate) async fn answer(&self, query: Query, online: bool) -> Result<Answer, QueryError> {
        query
            .targets
            .validate()
            .map_err(|error| QueryError::new(Code::InvalidTarget, error.to_string()))?;
        let Query {
            route,
            inputs,
            targets,
            best_effort,
            explain,
            arrived,
        } = query;
        let (inputs, rows) = self
            .with_signature(&route, |signature| signature.bind(inputs))?
            .map_err(|error| QueryError::new(Code::InvalidTensor, error.to_string()))?;
        let ask = Ask {
            route,
            targets,
            rows: rows as u32,
            best_effort,
            explain,
            arrived,
        };
        let mut last = QueryError::new(Code::Unavailable, "no instance could take the query");
        for _ in 0..PLACEMENTS {
            let revision = *self.revision.borrow();
            let chosen = self.choose(&ask)?;
            match self.run(&chosen, inputs.clone(), &ask, online).await {
                Ok(done) => {
                    if let Some(under_way) = &chosen.under_way {
                        under_way.answered(chosen.known.ordinal, done.timings.exec_us / 1e6);
                    }
                    return Ok(self.compose(chosen, done, &ask));
                }
                Err(refusal) if chosen.load => return Err(self.cold(&chosen.known, refusal, &ask)),
                Err(Refusal::Dropped(DropReason::Gone))
                | Err(Refusal::Worker(InferError::NotLoaded(_) | InferError::WeightsChanged(_))) => {
                    last = refused(
                        &Refusal::Dropped(DropReason::Gone),
                        &chosen.known,
                        &ask.targets,
                    );
                    self.await_news(revision).await;
                }
                Err(refusal) => return Err(refused(&refusal, &chosen.known, &ask.targets)),
            }
        }
        Err(last)
    }

    /// Waits a little for an index newer than `revision`: a worker knows of an unload before the
    /// feed has told the dispatcher, and the same choice would fail again.
    async fn await_news(&self, revision: u64) {
        let mut revisions = self.revision.subscribe();
        let newer = revisions.wait_for(|now| *now != revision);
        // Without news the next placement still may find another worker.
        drop(tokio::time::timeout(NEWS_WAIT, newer).await);
    }

    /// Hands the signature of what `route` addresses to `read`, without copying it.
    fn with_signature<T>(
        &self,
        route: &Route,
        read: impl FnOnce(&Signature) -> T,
    ) -> Result<T, QueryError> {
        let snapshot = self.snapshot.load();
        let signature = match route {
            Route::Application(id) => snapshot.application(id).map(|scope| &scope.signature),
            Route::Model(id) => snapshot.model(id).map(|scope| &scope.signature),
            Route::Variant(id) => snapshot.variant(id).map(|known| &known.variant.signature),
        };
        signature.map(read).ok_or_else(|| not_found(route))
    }

    fn choose(&self, ask: &Ask) -> Result<Chosen, QueryError> {
        let snapshot = self.snapshot.load();
        match &ask.route {
            Route::Variant(id) => {
                let known = snapshot.variant(id).ok_or_else(|| not_found(&ask.route))?;
                self.choose_named(known, ask)
            }
            Route::Application(id) => {
                let scope = snapshot
                    .application(id)
                    .ok_or_else(|| not_found(&ask.route))?;
                self.choose_among(&snapshot, scope, ask)
            }
            Route::Model(id) => {
                let scope = snapshot.model(id).ok_or_else(|| not_found(&ask.route))?;
                self.choose_among(&snapshot, scope, ask)
            }
        }
    }

    fn choose_named(&self, known: &Arc<Known>, ask: &Ask) -> Result<Chosen, QueryError> {
        if ask.rows > known.max_rows() {
            let (rows, most, id) = (ask.rows, known.max_rows(), &known.variant.id);
            let message = format!("`{rows}` rows: variant `{id}` takes at most `{most}`");
            return Err(QueryError::new(Code::InvalidTensor, message));
        }
        let explanation = ask.explain.then(|| Explanation {
            reason: "the query names this variant".to_owned(),
            candidates: Vec::new(),
            considered: 1,
        });
        let load = known.workers.is_empty();
        Ok(Chosen {
            known: Arc::clone(known),
            load,
            under_way: None,
            explanation,
        })
    }

    fn choose_among(
        &self,
        snapshot: &Snapshot,
        scope: &Scope,
        ask: &Ask,
    ) -> Result<Chosen, QueryError> {
        let load = LiveLoad {
            snapshot,
            driver: &self.driver,
            now: self.clock.now(),
        };
        let demand = ask.demand();
        let decision = select::select(&scope.index, &demand, &load);
        let (ordinal, must_load) = match &decision {
            Decision::Use { ordinal } => (*ordinal, false),
            Decision::LoadThenUse { ordinal } => (*ordinal, true),
            refusal => {
                self.load_in_background(snapshot, refusal);
                let closest = ask
                    .best_effort
                    .then(|| select::best_effort(&scope.index, &demand));
                match closest
                    .flatten()
                    .and_then(|ordinal| snapshot.known(ordinal))
                {
                    Some(known) => (known.ordinal, known.workers.is_empty()),
                    None => return Err(refuse(refusal, scope, &demand, &load)),
                }
            }
        };
        let family = snapshot.families.of(ordinal).filter(|_| !must_load);
        let ordinal = family.map_or(ordinal, |family| {
            self.assign(family, snapshot, ordinal, &demand, &load)
        });
        let known = snapshot
            .known(ordinal)
            .ok_or_else(|| QueryError::new(Code::Internal, "the chosen variant is unknown"))?;
        let explanation = ask
            .explain
            .then(|| explain(&scope.index, &demand, &load, &decision, known));
        Ok(Chosen {
            known: Arc::clone(known),
            load: must_load,
            under_way: family.map(Family::begin),
            explanation,
        })
    }

    /// The member of a family that takes a query instead of `chosen`: one that meets the targets as
    /// well.
    fn assign(
        &self,
        family: &Family,
        snapshot: &Snapshot,
        chosen: u32,
        demand: &Demand,
        load: &LiveLoad<'_>,
    ) -> u32 {
        let usable = |ordinal: u32| {
            let Some(known) = snapshot.known(ordinal) else {
                return false;
            };
            select::answers_now(&known.entry(), demand, load)
        };
        let assigned = family.assign(load.now, chosen, usable);
        for (member, slots) in assigned.slots {
            self.driver.set_slots(member, slots);
        }
        assigned.ordinal
    }

    /// Queries that wait for a batch, over all variants.
    pub fn waiting(&self) -> usize {
        self.driver.waiting()
    }

    /// Most rows that one query to `route` may have.
    pub(crate) fn most_rows(&self, route: &Route) -> u32 {
        let snapshot = self.snapshot.load();
        let most = |scope: Option<&Scope>| {
            let entries = scope.map_or(&[][..], |scope| scope.index.entries());
            entries
                .iter()
                .map(|entry| entry.max_rows)
                .max()
                .unwrap_or(1)
        };
        match route {
            Route::Application(id) => most(snapshot.application(id)),
            Route::Model(id) => most(snapshot.model(id)),
            Route::Variant(id) => snapshot.variant(id).map_or(1, |known| known.max_rows()),
        }
    }

    fn load_in_background(&self, snapshot: &Snapshot, decision: &Decision) {
        if let Decision::Warming { ordinal, .. } = decision
            && let Some(known) = snapshot.known(*ordinal)
        {
            self.driver.warm(known.ordinal);
        }
    }

    /// Why a query whose variant had to be loaded was not answered.
    fn cold(&self, known: &Known, refusal: Refusal, ask: &Ask) -> QueryError {
        match (refusal, self.driver.load_failure(known.ordinal)) {
            (Refusal::Dropped(DropReason::Gone | DropReason::Expired), Some(reason)) => {
                QueryError::new(Code::Unavailable, reason)
            }
            (Refusal::Dropped(DropReason::Expired | DropReason::Infeasible), None) => {
                warming(known)
            }
            (Refusal::Dropped(DropReason::Gone), None) => QueryError::new(
                Code::Unavailable,
                format!(
                    "no worker has the engine and the memory for variant `{}`",
                    known.variant.id
                ),
            ),
            (refusal, _) => refused(&refusal, known, &ask.targets),
        }
    }

    async fn run(
        &self,
        chosen: &Chosen,
        inputs: Vec<NamedTensor>,
        ask: &Ask,
        online: bool,
    ) -> Result<Done, Refusal> {
        let (reply, receiver) = oneshot::channel();
        let deadline = ask
            .deadline()
            .map_or(NEVER, |deadline| self.clock.nanos(deadline));
        let known = &chosen.known;
        let payload = Pending {
            queue: known.ordinal,
            variant: known.variant.id.clone(),
            inputs,
            online,
            reply,
        };
        self.driver.enqueue(Request {
            payload,
            rows: ask.rows,
            deadline,
        });
        let longest = match chosen.load && deadline == NEVER {
            true => Duration::from_millis(self.config.max_load_wait_ms),
            false => Duration::MAX,
        };
        match tokio::time::timeout(longest, receiver).await {
            Ok(reply) => reply.unwrap_or(Err(Refusal::Worker(InferError::ShuttingDown))),
            Err(_) => Err(Refusal::Dropped(DropReason::Expired)),
        }
    }

    fn compose(&self, chosen: Chosen, done: Done, ask: &Ask) -> Answer {
        let Chosen {
            known, explanation, ..
        } = chosen;
        let variant = &known.variant;
        let total = ask.arrived.elapsed();
        let timings = Timings {
            queue_us: us(done.timings.started.saturating_duration_since(ask.arrived)),
            compute_us: done.timings.input_us + done.timings.exec_us + done.timings.output_us,
            total_us: us(total),
            batch_rows: done.batch_rows,
        };
        let names = variant
            .signature
            .outputs
            .iter()
            .map(|spec| spec.name.clone());
        let outputs = names
            .zip(done.outputs)
            .map(|(name, tensor)| NamedTensor { name, tensor })
            .collect();
        Answer {
            variant: variant.id.clone(),
            model: variant.model.clone(),
            outputs,
            timings,
            targets_met: met(&ask.targets, &known, total),
            explanation,
        }
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn met(targets: &Targets, known: &Known, took: Duration) -> bool {
    let variant = &known.variant;
    targets
        .latency_ms
        .is_none_or(|most| took.as_secs_f64() * 1e3 <= most)
        && targets
            .min_quality
            .is_none_or(|least| variant.accuracy.quality_bound() >= least)
        && targets
            .max_cost_per_1k_usd
            .is_none_or(|most| variant.cost_per_1k_usd <= most)
}

// === Ask ===

/// A query without its inputs.
struct Ask {
    route: Route,
    targets: Targets,
    rows: u32,
    best_effort: bool,
    explain: bool,
    arrived: Instant,
}

impl Ask {
    /// When the answer must be ready. A best-effort query is never dropped for being late.
    fn deadline(&self) -> Option<Instant> {
        if self.best_effort {
            return None;
        }
        let ms = self.targets.latency_ms?;
        self.arrived.checked_add(Duration::from_secs_f64(ms / 1e3))
    }

    fn demand(&self) -> Demand {
        let spent_ms = self.arrived.elapsed().as_secs_f64() * 1e3;
        Demand {
            latency_ms: self
                .targets
                .latency_ms
                .map_or(f64::INFINITY, |ms| ms - spent_ms),
            min_quality: self.targets.min_quality.unwrap_or(f64::NEG_INFINITY),
            max_cost_per_1k_usd: self.targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY),
            rows: self.rows,
        }
    }
}

// === impl Dispatch ===

#[async_trait]
impl Dispatch for Dispatcher {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        self.answer(query, true).await
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        self.with_signature(route, Signature::clone)
    }

    fn utilization(&self) -> f64 {
        self.online.utilization()
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.snapshot.load().is_ready(route)
    }
}
