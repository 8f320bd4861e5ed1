//! Divides a fleet that does not have enough for all.
//!
//! Priorities are served one after the other, from the highest: a lower one gets the rest when the higher ones have all
//! that they can use. Among equals the planned amount grows equally for all, in proportion to weights, until it no
//! longer fits. An application that can have no more stays there, and the others go on (weighted max-min fairness:
//! Bertsekas and Gallager 1992, section 6.5.2). The amount is the price of the device time, or the device time itself
//! if devices cost nothing.
//!
//! The greedy assignment determines whether an amount fits, because it is quick. An exact plan may find room for a
//! little more.

use super::{Cut, Grant, Limit, NONE, Tenant, Unit, in_order};
use crate::{Problem, shared::fits};

/// The number of halvings in the search for what fits: to a millionth.
const STEPS: u32 = 20;

/// The number of times that applications that can have no more are set aside.
const ROUNDS: usize = 8;

/// The factor by which an application must be able to grow to go on.
const GROWTH: f64 = 1.01;

/// An application and its share.
struct Share<'a> {
    weight: f64,
    needs: &'a [(usize, Unit)],
    /// The amount for all of its demand.
    desired: f64,
    /// The amount that is granted.
    granted: f64,
}

/// Determines what is planned for by priority and weight. Needs that nothing can answer stay unchanged.
pub(super) fn divide(problem: &Problem, tenants: &[(Tenant, Vec<(usize, Unit)>)]) -> Grant {
    let mut trial = problem.clone();
    for need in &mut trial.needs {
        need.rps = 0.0;
    }
    let mut levels: Vec<u8> = tenants.iter().map(|(tenant, _)| tenant.priority).collect();
    levels.sort_unstable();
    levels.dedup();
    for level in levels.into_iter().rev() {
        let of_level = tenants
            .iter()
            .filter(|(tenant, _)| tenant.priority == level);
        let mut shares: Vec<Share<'_>> = of_level
            .map(|(tenant, needs)| Share::new(problem, tenant.weight, needs))
            .collect();
        grow(problem, &mut trial, &mut shares);
    }
    granted(problem, trial, tenants)
}

/// Gives the applications of one priority what fits beside what is already granted.
fn grow(problem: &Problem, trial: &mut Problem, shares: &mut [Share<'_>]) {
    let mut open: Vec<usize> = (0..shares.len()).collect();
    for _ in 0..ROUNDS {
        let most = open
            .iter()
            .map(|at| shares[*at].desired / shares[*at].weight);
        let most = most.fold(0.0, f64::max);
        let grant = |shares: &mut [Share<'_>], level: f64| {
            for at in &open {
                let share = &mut shares[*at];
                share.granted = share.desired.min(level * share.weight);
            }
        };
        grant(shares, most);
        if fits_with(problem, trial, shares) {
            break;
        }
        let (mut low, mut high) = (0.0, most);
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            grant(shares, middle);
            match fits_with(problem, trial, shares) {
                true => low = middle,
                false => high = middle,
            }
        }
        grant(shares, low);
        open.retain(|at| can_grow(problem, trial, shares, *at));
        if open.is_empty() {
            break;
        }
    }
    for share in shares {
        share.plan(problem, trial);
    }
}

/// Whether one application could have more if the others stayed as they are.
fn can_grow(problem: &Problem, trial: &mut Problem, shares: &mut [Share<'_>], at: usize) -> bool {
    let before = shares[at].granted;
    if before >= shares[at].desired {
        return false;
    }
    let step = shares[at].desired * (GROWTH - 1.0);
    shares[at].granted = (before * GROWTH).max(before + step).min(shares[at].desired);
    let can = fits_with(problem, trial, shares);
    shares[at].granted = before;
    can
}

fn fits_with(problem: &Problem, trial: &mut Problem, shares: &[Share<'_>]) -> bool {
    for share in shares {
        share.plan(problem, trial);
    }
    fits(trial)
}

/// Determines the demand that is not granted.
fn granted(
    problem: &Problem,
    mut trial: Problem,
    tenants: &[(Tenant, Vec<(usize, Unit)>)],
) -> Grant {
    let mut can_be_answered = vec![false; problem.needs.len()];
    for (need, _) in tenants.iter().flat_map(|(_, needs)| needs) {
        can_be_answered[*need] = true;
    }
    let mut cuts = Vec::new();
    let needs = problem.needs.iter().zip(&mut trial.needs).enumerate();
    for (at, (asked, need)) in needs {
        if !can_be_answered[at] {
            *need = *asked;
        } else if asked.rps - need.rps > NONE {
            cuts.push(Cut {
                need: at as u32,
                rps: asked.rps - need.rps,
                limit: Limit::Others,
            });
        }
    }
    Grant {
        problem: trial,
        cuts,
    }
}

/// The amount that one query a second takes.
fn takes(unit: Unit) -> f64 {
    match unit.usd > 0.0 {
        true => unit.usd,
        false => unit.busy,
    }
}

// === impl Share ===

impl<'a> Share<'a> {
    fn new(problem: &Problem, weight: f64, needs: &'a [(usize, Unit)]) -> Self {
        let each = needs.iter();
        let desired = each.map(|(need, unit)| problem.needs[*need].rps * takes(*unit));
        Self {
            weight: weight.max(NONE),
            needs,
            desired: desired.sum(),
            granted: 0.0,
        }
    }

    /// Writes the granted amount into a problem, the cheapest queries first.
    fn plan(&self, problem: &Problem, trial: &mut Problem) {
        let mut left = self.granted;
        for (need, takes) in in_order(problem, self.needs, takes) {
            let asked = problem.needs[need].rps;
            let kept = asked.min(left / takes);
            trial.needs[need].rps = kept;
            left = (left - kept * takes).max(0.0);
        }
    }
}
