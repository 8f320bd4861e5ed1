//! Turns the limits and priorities of applications into a problem that any planner answers.
//!
//! This step comes before the planners, which know nothing of applications:
//!
//! 1. [`Tenants::bounded`]: queries that an application's budget does not pay for, or for which it would need more
//!    devices than it may have, are not planned for. The most expensive ones are left out first, so that most are
//!    answered. If the demand is less than its least number of devices has time for, that much is planned for.
//! 2. [`Tenants::divided`], if a plan leaves something unanswered: the fleet goes to the highest priority first, and
//!    among equals by weight (`divide.rs`).
//!
//! A query counts by its cheapest choice: the device time that it takes there, and the price of that. Other needs may
//! move it to a more expensive device, so the planned cost of an application may exceed its budget. The real cost is
//! limited when queries are answered (`sextant_selection::budget`). *A device's worth* is the load for which a device
//! has time beside the margin that [`shared`](super::shared) keeps.

mod divide;

use sextant_types::index::{ApplicationIx, IndexVec};

use super::{Problem, demand::Forecast, shared::busy_of};

/// The priority of an application that sets none.
const USUAL_PRIORITY: u8 = 100;

/// Lower rates count as zero, 1/s.
const NONE: f64 = 1e-9;

/// What an application may use, and its priority against others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// The most that its answers may cost, US dollars an hour.
    pub budget_per_hour_usd: Option<f64>,
    /// The devices' worth that is planned for it even without demand.
    pub least: u32,
    /// The most devices' worth that is planned for it.
    pub most: Option<u32>,
    /// If there is not enough for all, a higher priority goes first.
    pub priority: u8,
    /// Its share relative to others of the same priority, above 0.
    pub weight: f64,
}

/// The applications, and which needs belong to which. The default: no application has set anything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tenants {
    /// The applications.
    pub all: IndexVec<ApplicationIx, Tenant>,
    /// By need, in the problem's order: the application.
    pub of_need: Vec<ApplicationIx>,
}

/// Why queries are not planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Their application's budget does not pay for them.
    Budget,
    /// Their application would need more devices than it may have.
    Most,
    /// There is not enough for all, and others go first or have their share.
    Others,
}

/// Queries that are not planned for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut {
    /// The position of their need.
    pub need: u32,
    /// The rate, 1/s.
    pub rps: f64,
    /// The reason.
    pub limit: Limit,
}

/// A problem without the queries that are not planned for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Grant {
    /// The problem with the queries that are planned for.
    pub problem: Problem,
    /// The queries that are not planned for.
    pub cuts: Vec<Cut>,
}

/// What one query a second of a need takes, by its cheapest choice.
#[derive(Debug, Clone, Copy)]
struct Unit {
    /// Price of the device time, US dollars an hour.
    usd: f64,
    /// Share of a device's time.
    busy: f64,
    /// Slots of the device.
    slots: u32,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            budget_per_hour_usd: None,
            least: 0,
            most: None,
            priority: USUAL_PRIORITY,
            weight: 1.0,
        }
    }
}

// === impl Tenants ===

impl Tenants {
    /// The problem without queries that budgets do not pay for or that would need too many devices, and with what is
    /// kept for applications with less demand.
    pub fn bounded(&self, problem: &Problem) -> Grant {
        let mut granted = Grant {
            problem: problem.clone(),
            cuts: Vec::new(),
        };
        for (tenant, needs) in self.by_tenant(problem) {
            granted.bound(tenant, &needs);
        }
        granted
    }

    /// The problem without queries that must stand back for others; `None` if no application goes before another. It is
    /// for problems of which a plan leaves something unanswered.
    pub fn divided(&self, problem: &Problem) -> Option<Grant> {
        let usual = Tenant::default();
        let is_usual =
            |tenant: &Tenant| tenant.priority == usual.priority && tenant.weight == usual.weight;
        if self.all.iter().all(is_usual) {
            return None;
        }
        Some(divide::divide(problem, &self.by_tenant(problem)))
    }

    /// The outlooks for judging the number of devices. Queries that are late or refused because their application is
    /// held back do not show that devices are missing.
    pub fn judged(&self, problem: &Problem, outlooks: &[Forecast]) -> Vec<Forecast> {
        let mut judged = outlooks.to_vec();
        for cut in self.bounded(problem).cuts {
            if let Some(forecast) = judged.get_mut(cut.need as usize) {
                (forecast.bad_share, forecast.recent) = (0.0, 0.0);
            }
        }
        judged
    }

    /// Applications and their needs that can be answered, each with what one query a second takes.
    fn by_tenant(&self, problem: &Problem) -> Vec<(Tenant, Vec<(usize, Unit)>)> {
        let mut all: Vec<_> = self
            .all
            .iter()
            .map(|tenant| (*tenant, Vec::new()))
            .collect();
        let owners = self.of_need.iter().zip(&problem.needs);
        for (need, (owner, _)) in owners.enumerate() {
            if let (Some((_, needs)), Some(unit)) =
                (all.get_mut(owner.get() as usize), Unit::of(problem, need))
            {
                needs.push((need, unit));
            }
        }
        all
    }
}

// === impl Grant ===

impl Grant {
    fn bound(&mut self, tenant: Tenant, needs: &[(usize, Unit)]) {
        if let Some(budget) = tenant.budget_per_hour_usd {
            self.keep_affordable(needs, budget, |unit| unit.usd, Limit::Budget);
        }
        if let Some(most) = tenant.most {
            let share = |unit: Unit| unit.busy / busy_of(most, unit.slots);
            match most {
                0 => self.keep_affordable(needs, 0.0, |_| 1.0, Limit::Most),
                _ => self.keep_affordable(needs, 1.0, share, Limit::Most),
            }
        }
        if tenant.least > 0 {
            self.raise(needs, tenant.least);
        }
    }

    /// Keeps the queries that an amount pays for, those that take least first.
    fn keep_affordable(
        &mut self,
        needs: &[(usize, Unit)],
        amount: f64,
        takes: impl Fn(Unit) -> f64,
        limit: Limit,
    ) {
        let mut left = amount.max(0.0);
        for (need, takes) in in_order(&self.problem, needs, takes) {
            let rps = self.problem.needs[need].rps;
            if rps * takes <= left {
                left -= rps * takes;
                continue;
            }
            let kept = left / takes;
            left = 0.0;
            self.problem.needs[need].rps = kept;
            if rps - kept > NONE {
                self.cuts.push(Cut {
                    need: need as u32,
                    rps: rps - kept,
                    limit,
                });
            }
        }
    }

    /// Plans for at least this many devices' worth.
    fn raise(&mut self, needs: &[(usize, Unit)], least: u32) {
        let share = |unit: Unit| unit.busy / busy_of(least, unit.slots);
        let all = &mut self.problem.needs;
        let planned = needs
            .iter()
            .map(|(need, unit)| all[*need].rps * share(*unit));
        let planned: f64 = planned.sum();
        if planned >= 1.0 {
            return;
        }
        if planned > NONE {
            for (need, _) in needs {
                all[*need].rps /= planned;
            }
        } else if let Some((need, unit)) = needs.first() {
            all[*need].rps = 1.0 / share(*unit);
        }
    }
}

/// Needs with what one query a second takes of a scarce resource. Those that take least for their weight come first.
fn in_order(
    problem: &Problem,
    needs: &[(usize, Unit)],
    takes: impl Fn(Unit) -> f64,
) -> Vec<(usize, f64)> {
    let each = needs.iter().map(|(need, unit)| (*need, takes(*unit)));
    let mut order: Vec<(usize, f64)> = each.collect();
    let worth = |(need, takes): (usize, f64)| takes / problem.needs[need].weight.max(NONE);
    order.sort_by(|a, b| worth(*a).total_cmp(&worth(*b)).then(a.0.cmp(&b.0)));
    order
}

// === impl Unit ===

impl Unit {
    fn of(problem: &Problem, need: usize) -> Option<Self> {
        let units = problem.choices_of(need).map(|(_, choice)| {
            let device = &problem.devices[choice.kind()];
            Self {
                usd: device.price_per_hour_usd / choice.rps,
                busy: 1.0 / choice.rps,
                slots: device.slots,
            }
        });
        units.min_by(|a, b| {
            let by_price = a.usd.total_cmp(&b.usd);
            by_price.then(a.busy.total_cmp(&b.busy))
        })
    }
}
