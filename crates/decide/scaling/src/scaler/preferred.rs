//! Plans for queries that prefer accuracy or latency to a low price.
//!
//! A plan costs as little as it can, so the choices of a need are limited to the most preferred ones, and the first
//! plan is made with these alone. If it leaves something of a need unanswered, for lack of devices or of money, the
//! need gets the next best choices in addition. This is repeated until everything is answered or nothing is left to
//! add. Accuracy therefore gives way before answers do, and for each need only as far as that need requires.

use super::{Fleet, PlannerInput, Scaler, UNANSWERED_RPS};
use crate::{Plan, Policy, Problem};

/// The most plans that are made. The last one may choose from everything.
const PLANS: u32 = 6;

impl Scaler {
    /// The plan for a problem with the input's choices.
    pub(super) fn preferred(
        &mut self,
        input: &PlannerInput,
        problem: &Problem,
        fleet: Fleet,
    ) -> Plan {
        let ranks = &input.preferences;
        let is_plain = ranks.len() != problem.choices.len() || ranks.iter().all(|rank| *rank == 0);
        if is_plain || self.options.policy != Policy::Sextant {
            return self.answer(problem, fleet);
        }
        let mut worst = vec![0; problem.needs.len()];
        for (choice, rank) in problem.choices.iter().zip(ranks) {
            let of = &mut worst[choice.need as usize];
            *of = (*rank).max(*of);
        }
        let mut allowed = vec![0; problem.needs.len()];
        for _ in 1..PLANS {
            let plan = self.among(problem, ranks, (&allowed, fleet));
            let needs = allowed.iter_mut().zip(&worst).zip(&plan.unserved_rps);
            let mut is_short = false;
            for ((allowed, worst), unserved_rps) in needs {
                if *unserved_rps > UNANSWERED_RPS && *allowed < *worst {
                    *allowed += 1;
                    is_short = true;
                }
            }
            if !is_short {
                return plan;
            }
        }
        self.answer(problem, fleet)
    }

    /// The plan with choices up to the allowed rank of their need, in terms of all choices.
    fn among(
        &mut self,
        problem: &Problem,
        ranks: &[u32],
        (allowed, fleet): (&[u32], Fleet),
    ) -> Plan {
        let all = problem.choices.iter().zip(ranks).enumerate();
        let kept = all.filter(|(_, (choice, rank))| **rank <= allowed[choice.need as usize]);
        let kept: Vec<usize> = kept.map(|(at, _)| at).collect();
        let reduced = Problem {
            choices: kept.iter().map(|at| problem.choices[*at]).collect(),
            ..problem.clone()
        };
        let plan = self.answer(&reduced, fleet);
        let mut whole = Plan {
            served_rps: vec![0.0; problem.choices.len()],
            instances: vec![0; problem.choices.len()],
            ..plan
        };
        for (at, (served_rps, instances)) in kept
            .into_iter()
            .zip(plan.served_rps.iter().zip(&plan.instances))
        {
            whole.served_rps[at] = *served_rps;
            whole.instances[at] = *instances;
        }
        whole
    }
}
