//! The way of one query through the dispatcher: its demand, the variant that answers it, and the parts of the answer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sextant_picture::{IndexedVariant, InputSize, Scope};
use sextant_rpc::{Answer, Dispatch, Explanation, Holder, Query, QueryError, Timings};
use sextant_selection as select;
use sextant_selection::{Decision, Demand, Index};
use sextant_types::{
    Code, NamedTensor, Route, Signature, SignatureMismatch, Targets, VariantId,
    index::{DeviceIx, VariantIx},
};

use crate::{
    Dispatcher,
    agreement::Sample,
    ask::{Ask, met, suits},
    budget::{self, Charge},
    composites,
    explain::{candidate, explain},
    families::{Family, InFlightGuard},
    live_load::LiveLoad,
    pending::Done,
    place::Source,
    refusal::{overdue, refuse, standing_by, too_long, uninformed, unsuited},
    snapshot::Snapshot,
    versions::{Outcome, VersionRun},
};

/// The result of the selection.
pub(crate) struct Selection {
    pub(crate) known: Arc<IndexedVariant>,
    /// Whether the variant has to be loaded first.
    pub(crate) load: bool,
    /// Counts the query among those of its family.
    pub(crate) under_way: Option<InFlightGuard>,
    /// What its application was charged; `None` for an application without a budget.
    pub(crate) charge: Option<Charge>,
    pub(crate) explanation: Option<Explanation>,
}

/// The error if nothing is found under `route`: nothing exists there, or nothing is known yet.
fn missing(snapshot: &Snapshot, route: &Route) -> QueryError {
    match snapshot.is_read {
        true => QueryError::not_found(route),
        false => uninformed(),
    }
}

impl Dispatcher {
    /// Answers one query. Offline jobs make room for online queries.
    pub(crate) async fn answer(&self, query: Query) -> Result<Answer, QueryError> {
        check(&query.targets)?;
        let Query {
            route,
            inputs,
            targets,
            best_effort,
            explain,
            sticky,
            serial,
            composites,
            offline,
            step,
            arrived,
        } = query;
        let bind = |signature: &Signature| {
            let (inputs, rows) = signature.bind(inputs)?;
            let dims = signature.dims(&inputs);
            Ok((inputs, rows, InputSize::new(signature, &dims)))
        };
        let (inputs, rows, extent) =
            self.with_signature(&route, bind)?
                .map_err(|error: SignatureMismatch| {
                    QueryError::new(Code::InvalidTensor, error.to_string())
                })?;
        let ask = Ask {
            targets: self.snapshot.load().in_figures(&route, targets, extent),
            asked: targets,
            route,
            rows,
            extent,
            best_effort,
            explain,
            sticky,
            composites,
            offline,
            step,
            arrived,
        };
        if offline {
            // Boxed for the reason given below.
            Box::pin(self.make_way(&ask.route)).await;
        }
        let (draw, shadow) = match offline {
            false => (self.agreements.draws(), self.shadow_of(&ask)),
            true => (None, None),
        };
        let cache = (!offline).then(|| self.cache_of(&ask)).flatten();
        // Queries that fall to a canary or shadow go to it instead.
        let cache = cache.filter(|_| shadow.is_none() && !self.tries_canary(&ask));
        if let Some(cache) = cache {
            // Boxed, so that large values that only some queries need are not moved for all queries.
            return Box::pin(self.answer_by(&cache, &ask, inputs)).await;
        }
        let kept = (draw.is_some() || shadow.is_some()).then(|| inputs.clone());
        let source = Source::Here(inputs);
        let ran = self.run_version(&ask, &source).await?;
        let VersionRun { chosen, done, .. } = ran;
        if let Some(inputs) = kept {
            let missed = self.agreements.offer(Sample {
                draw,
                // The answer of another version says nothing about the current one.
                shadow: shadow.filter(|_| self.is_current(&chosen.known)),
                known: Arc::clone(&chosen.known),
                rows: ask.rows,
                batch_rows: done.batch_rows,
                serial,
                inputs,
                outputs: done.outputs.clone(),
            });
            if let Some(shadow) = missed {
                self.trials.note(&shadow, &Outcome::PassedOver);
            }
        }
        Ok(self.compose(chosen, done, ran.ask.as_ref().unwrap_or(&ask)))
    }

    /// Has a query of a job wait briefly while online batches run where it would run.
    async fn make_way(&self, route: &Route) {
        let workers = self.loaded_on(route);
        self.online.await_room(&workers).await;
    }

    /// Passes the signature of what `route` addresses to `read`, without copying it.
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
        signature.map(read).ok_or_else(|| missing(&snapshot, route))
    }

    /// Chooses what answers a query: within its latency target, else within its patience.
    pub(crate) fn choose(&self, ask: &Ask) -> Result<Selection, QueryError> {
        if !self.is_leading() {
            return Err(standing_by());
        }
        match self.choose_in_time(ask) {
            Err(error) if is_for_time(&error) => match ask.patient() {
                Some(patient) => self.choose_in_time(&patient),
                None => Err(error),
            },
            chosen => chosen,
        }
    }

    fn choose_in_time(&self, ask: &Ask) -> Result<Selection, QueryError> {
        let snapshot = self.snapshot.load();
        match &ask.route {
            Route::Variant(id) => {
                let known = snapshot
                    .variant(id)
                    .ok_or_else(|| missing(&snapshot, &ask.route))?;
                self.choose_named(&snapshot, known, ask)
            }
            Route::Application(id) => {
                let scope = snapshot
                    .application(id)
                    .ok_or_else(|| missing(&snapshot, &ask.route))?;
                self.choose_among(&snapshot, scope, ask)
            }
            Route::Model(id) => {
                let scope = snapshot
                    .model(id)
                    .ok_or_else(|| missing(&snapshot, &ask.route))?;
                self.choose_among(&snapshot, scope, ask)
            }
        }
    }

    /// Chooses for a query that names a variant. No other variant may answer it, so it is refused at once if the
    /// variant can never meet its targets of accuracy or cost.
    fn choose_named(
        &self,
        snapshot: &Snapshot,
        known: &Arc<IndexedVariant>,
        ask: &Ask,
    ) -> Result<Selection, QueryError> {
        if ask.rows > known.max_rows() {
            let what = format!("variant `{}`", known.variant.id);
            return Err(QueryError::too_many_rows(ask.rows, known.max_rows(), &what));
        }
        if let Some(longest) = known
            .variant
            .profile
            .sizes
            .longest
            .filter(|_| !known.takes(ask.extent))
        {
            return Err(too_long(longest));
        }
        if !ask.best_effort && !suits(ask, known) {
            let load = self.live_load(snapshot, ask);
            return Err(unsuited(known, &ask.demand(), &load));
        }
        let explanation = ask.explain.then(|| {
            let load = self.live_load(snapshot, ask);
            let mut named = candidate(known, &known.entry(ask.extent), &ask.demand(), &load);
            named.verdict = "selected".into();
            Explanation {
                reason: "the query names this variant".to_owned(),
                candidates: vec![named],
                considered: 1,
                ..Explanation::default()
            }
        });
        let load = known.workers.is_empty();
        Ok(Selection {
            charge: budget::charge(snapshot.account(known.application), known, ask)?,
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
    ) -> Result<Selection, QueryError> {
        if let Some(longest) = scope.limit(ask.extent) {
            return Err(too_long(longest));
        }
        let load = self.live_load(snapshot, ask);
        let index = scope.index_at(ask.extent);
        let account = snapshot.account(scope.number());
        let (demand, decision) = budget::select(account, ask, index, &load)?;
        if let Some(instead) = composites::instead(ask, (index, &decision), &demand, &load) {
            return Err(QueryError::instead(instead));
        }
        let (ordinal, must_load) = match &decision {
            Decision::Use { ordinal } => (*ordinal, false),
            Decision::LoadThenUse { ordinal } => (*ordinal, true),
            refusal => {
                self.load_in_background(snapshot, refusal);
                let closest = ask.best_effort.then(|| select::best_effort(index, &demand));
                match closest
                    .flatten()
                    .and_then(|ordinal| snapshot.known(ordinal))
                {
                    Some(known) => (known.ordinal, known.workers.is_empty()),
                    None if is_overdue(refusal, index, ask, &demand, &load) => {
                        return Err(overdue(ask.arrived.elapsed()));
                    }
                    None => return Err(refuse(refusal, index, &demand, &load)),
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
        let explanation = ask.explain.then(|| {
            let explanation = explain(index, &demand, &load, &decision, known);
            composites::beside(explanation, &ask.composites, &demand)
        });
        Ok(Selection {
            charge: budget::charge(account, known, ask)?,
            known: Arc::clone(known),
            load: must_load,
            under_way: family.map(Family::begin),
            explanation,
        })
    }

    fn live_load<'a>(&'a self, snapshot: &'a Snapshot, ask: &Ask) -> LiveLoad<'a> {
        LiveLoad {
            snapshot,
            driver: &self.driver,
            extent: ask.extent,
            now: self.clock.now(),
        }
    }

    /// The member of a family that takes a query in place of `chosen`. It must meet the targets as well.
    fn assign(
        &self,
        family: &Family,
        snapshot: &Snapshot,
        chosen: VariantIx,
        demand: &Demand,
        load: &LiveLoad<'_>,
    ) -> VariantIx {
        let usable = |ordinal: VariantIx| {
            let Some(known) = snapshot.known(ordinal) else {
                return false;
            };
            let mut entries = known.entries(load.extent);
            entries.any(|entry| select::answers_now(&entry, demand, load))
        };
        let assigned = family.assign(load.now, chosen, usable);
        for (member, slots) in assigned.slots {
            self.driver.set_slots(member, slots);
        }
        assigned.ordinal
    }

    /// The number of queries that wait for a batch, over all variants.
    pub fn waiting(&self) -> usize {
        self.driver.waiting()
    }

    /// Positions of the workers on which the variant of a route is loaded; empty for other routes.
    pub(crate) fn loaded_on(&self, route: &Route) -> Vec<DeviceIx> {
        let snapshot = self.snapshot.load();
        match route {
            Route::Variant(id) => {
                let known = snapshot.variant(id);
                known.map_or_else(Vec::new, |known| known.workers.clone())
            }
            Route::Application(_) | Route::Model(_) => Vec::new(),
        }
    }

    /// Whether an instance answers for `route` now.
    pub fn is_loaded(&self, route: &Route) -> bool {
        self.snapshot.load().is_loaded(route)
    }

    /// The number of workers on which a variant answers now.
    pub fn serving(&self, variant: &VariantId) -> usize {
        let snapshot = self.snapshot.load();
        snapshot.variant(variant).map_or(0, |known| known.serving())
    }

    fn load_in_background(&self, snapshot: &Snapshot, decision: &Decision) {
        if let Decision::Warming { ordinal, .. } = decision
            && let Some(known) = snapshot.known(*ordinal)
        {
            self.driver.on_missed(known.ordinal);
        }
    }

    pub(crate) fn compose(&self, chosen: Selection, done: Done, ask: &Ask) -> Answer {
        let Selection {
            known,
            load,
            explanation,
            ..
        } = chosen;
        let variant = &known.variant;
        let total = ask.arrived.elapsed();
        let queue_us = us(done.timings.started.saturating_duration_since(ask.arrived));
        let timings = Timings {
            queue_us,
            load_us: if load { queue_us } else { 0.0 },
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
            rows: ask.rows,
            timings,
            cost_usd: timings.cost_usd(ask.rows, done.second_usd),
            targets_met: met(ask, &known, total),
            explanation,
        }
    }
}

/// Whether a query may have been refused for lack of time.
pub(crate) fn is_for_time(error: &QueryError) -> bool {
    matches!(
        error.code,
        Code::Overloaded | Code::DeadlineExceeded | Code::TargetInfeasible
    )
}

fn check(targets: &Targets) -> Result<(), QueryError> {
    targets
        .validate()
        .map_err(|error| QueryError::new(Code::InvalidTarget, error.to_string()))
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

// === impl Dispatch ===

#[async_trait]
impl Dispatch for Dispatcher {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        self.answer(query).await
    }

    async fn place(
        &self,
        ask: sextant_rpc::Ask,
        holder: Arc<dyn Holder>,
    ) -> Result<(), QueryError> {
        check(&ask.targets)?;
        let (ticket, kept) = (ask.ticket, ask.kept.clone());
        let route = ask.route.clone();
        let mut ask = self.with_signature(&route, |signature| Ask::of_front(ask, signature))?;
        let snapshot = self.snapshot.load();
        ask.targets = snapshot.in_figures(&route, ask.targets, ask.extent);
        drop(snapshot);
        if self.answer_by_holder(&ask, (&kept, ticket), &*holder) {
            return Ok(());
        }
        if ask.offline {
            Box::pin(self.make_way(&ask.route)).await;
        }
        let source = Source::Held { ticket, holder };
        self.run_version(&ask, &source).await.map(drop)
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        self.with_signature(route, Signature::clone)
    }

    fn utilization(&self) -> f64 {
        self.online.utilization()
    }

    fn has_workers(&self) -> bool {
        self.snapshot.load().has_workers
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.snapshot.load().is_ready(route)
    }
}

/// Whether a query that is refused as infeasible was feasible when it arrived. It has then waited too long, for a
/// leader or for earlier placements.
fn is_overdue(
    refusal: &Decision,
    index: &Index,
    ask: &Ask,
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> bool {
    let is_infeasible = |decision: &Decision| matches!(decision, Decision::Infeasible { .. });
    // The original target is used: the remainder of it says nothing about a target that was never feasible.
    let on_arrival = Demand {
        latency_ms: ask.targets.latency_ms.unwrap_or(f64::INFINITY),
        ..*demand
    };
    is_infeasible(refusal) && !is_infeasible(&select::select(index, &on_arrival, load))
}
