//! What applications have left to spend on answers.
//!
//! An application with a budget has an account. Each of its queries carries a [`Charge`], which is settled when its
//! batch ends and given back if the query leaves the scheduler in any other way. Applications without a budget have no
//! account, so no lock is taken for them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sextant_picture::IndexedVariant;
use sextant_rpc::QueryError;
use sextant_selection as select;
use sextant_selection::{Decision, Demand, Index, budget, budget::TokenBucket};
use sextant_types::{ApplicationId, Code};

use crate::{ask::Ask, clock::Clock, live_load::LiveLoad};

/// The account of an application that has a budget.
pub(crate) struct Account {
    application: ApplicationId,
    budget_per_hour_usd: f64,
    bucket: Arc<Mutex<TokenBucket>>,
    clock: Clock,
}

/// What a query was charged with. Given back when it is dropped.
pub(crate) struct Charge {
    account: Arc<Account>,
    charge: Option<budget::Charge>,
}

/// What may answer, and what the query demands. If the application has an account, variants that it cannot pay for now
/// are excluded. Refuses the query if a variant could answer it but the account cannot pay for any that could.
pub(crate) fn select(
    account: Option<&Arc<Account>>,
    ask: &Ask,
    index: &Index,
    load: &LiveLoad<'_>,
) -> Result<(Demand, Decision), QueryError> {
    let demand = ask.demand();
    let may_list = account.map_or(f64::INFINITY, |account| {
        account.may_list_per_1k_usd(ask.rows)
    });
    let bounded = Demand {
        max_cost_per_1k_usd: demand.max_cost_per_1k_usd.min(may_list),
        ..demand
    };
    let decision = select::select(index, &bounded, load);
    let is_infeasible = |decision: &Decision| matches!(decision, Decision::Infeasible { .. });
    if let (Some(account), true) = (account, is_infeasible(&decision))
        && may_list < demand.max_cost_per_1k_usd
        && !ask.best_effort
    {
        return match select::select(index, &demand, load) {
            unpaid if is_infeasible(&unpaid) => Ok((demand, unpaid)),
            _ => Err(account.exhausted(least_cost_per_1k_usd(index, &demand), ask.rows)),
        };
    }
    Ok((bounded, decision))
}

/// Charges an application that has an account for a query that a variant is to answer.
pub(crate) fn charge(
    account: Option<&Arc<Account>>,
    known: &IndexedVariant,
    ask: &Ask,
) -> Result<Option<Charge>, QueryError> {
    let charge = account.map(|account| {
        let listed = known.least_cost_per_1k_usd(ask.extent);
        account.charge(listed, ask.rows)
    });
    charge.transpose()
}

/// The lowest price listed for a thousand rows among the variants that meet the demand, US dollars.
fn least_cost_per_1k_usd(index: &Index, demand: &Demand) -> f64 {
    let entries = index.entries().iter();
    let meets = entries.filter(|entry| {
        entry.max_rows >= demand.rows
            && demand.least_quality.is_met_by(entry.quality())
            && entry.latency_ms <= demand.latency_ms
    });
    let costs = meets.map(|entry| entry.cost_per_1k_usd);
    costs.fold(f64::INFINITY, f64::min)
}

// === impl Account ===

impl Account {
    /// A new account with a full bucket.
    pub(crate) fn new(application: ApplicationId, budget_per_hour_usd: f64, clock: Clock) -> Self {
        Self {
            application,
            budget_per_hour_usd,
            bucket: Arc::new(Mutex::new(TokenBucket::new(
                budget_per_hour_usd,
                clock.now(),
            ))),
            clock,
        }
    }

    /// The same account with another budget.
    pub(crate) fn with_budget(&self, budget_per_hour_usd: f64) -> Self {
        self.lock()
            .set_budget(budget_per_hour_usd, self.clock.now());
        Self {
            application: self.application.clone(),
            budget_per_hour_usd,
            bucket: Arc::clone(&self.bucket),
            clock: self.clock,
        }
    }

    pub(crate) fn budget_per_hour_usd(&self) -> f64 {
        self.budget_per_hour_usd
    }

    /// The highest price listed for a thousand rows at which a query of this many rows can be paid now, US dollars.
    pub(crate) fn may_list_per_1k_usd(&self, rows: u32) -> f64 {
        self.lock().may_list_usd(self.clock.now()) / f64::from(rows.max(1)) * 1000.0
    }

    /// Charges a query of this many rows whose variant lists this price for a thousand rows, US dollars.
    pub(crate) fn charge(
        self: &Arc<Self>,
        per_1k_usd: f64,
        rows: u32,
    ) -> Result<Charge, QueryError> {
        let charge = self
            .lock()
            .charge(listed_usd(per_1k_usd, rows), self.clock.now());
        match charge {
            Some(charge) => Ok(Charge {
                account: Arc::clone(self),
                charge: Some(charge),
            }),
            None => Err(self.exhausted(per_1k_usd, rows)),
        }
    }

    /// The refusal of a query for which the cheapest variant lists this price for a thousand rows.
    pub(crate) fn exhausted(&self, per_1k_usd: f64, rows: u32) -> QueryError {
        let wait = self
            .lock()
            .wait(listed_usd(per_1k_usd, rows), self.clock.now());
        let (application, budget) = (&self.application, self.budget_per_hour_usd);
        let advice = match wait {
            Some(_) => "try again later, ask for less, or have the budget raised",
            None => "have the budget raised",
        };
        let message = format!(
            "the budget of application `{application}`, `{budget}` US dollars an hour, cannot pay the \
             cheapest variant that meets the targets: {advice}"
        );
        let error = QueryError::new(Code::BudgetExhausted, message);
        match wait {
            Some(wait) => error.retry_after_ms(wait as f64 / 1e6),
            None => error,
        }
    }

    fn lock(&self) -> MutexGuard<'_, TokenBucket> {
        self.bucket.lock()
    }
}

/// The price listed for a query; 0 if it is not known.
fn listed_usd(per_1k_usd: f64, rows: u32) -> f64 {
    match per_1k_usd.is_finite() {
        true => per_1k_usd / 1000.0 * f64::from(rows),
        false => 0.0,
    }
}

// === impl Charge ===

impl Charge {
    /// The query has been run and cost this much, US dollars.
    pub(crate) fn settle(mut self, cost_usd: f64) {
        if let Some(charge) = self.charge.take() {
            self.account.lock().settle(charge, cost_usd);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.account.lock().take_back(charge);
        }
    }
}
