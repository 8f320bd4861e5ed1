//! Explains decisions in words and numbers that people can check.

use std::{collections::BTreeMap, sync::Arc};

use sextant_metadata::{Action, Alternative, Decision, Input, MOST_DECISION_ROWS, Pool, Subject};
use sextant_scaling::{
    DeviceTarget, Plan, ScalingDecision,
    fleet::{MOST_BAD, Trigger},
    shared,
    shared::Effort,
    tenants::Cut,
};
use sextant_types::{ApplicationId, Prefer, VariantId, index::KindIx};

use sextant_picture::Picture;

use crate::Config;

mod figures;
mod pipelines;

use figures::{rate, usd};

/// A decision that has no number yet.
pub(crate) struct Change {
    pub(crate) subject: Subject,
    pub(crate) action: Action,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) reason: Arc<str>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) alternatives: Vec<Alternative>,
}

impl Change {
    pub(crate) fn decide(self, number: u64, at_ms: u64) -> Decision {
        Decision {
            number,
            at_ms,
            subject: self.subject,
            action: self.action,
            from: self.from,
            to: self.to,
            reason: self.reason,
            inputs: self.inputs,
            alternatives: self.alternatives,
        }
    }
}

/// Loads, the largest first: those that a type of device can answer, or those of an application.
pub(crate) fn inputs(
    picture: &Picture,
    kind: Option<usize>,
    application: Option<&ApplicationId>,
) -> Vec<Input> {
    let meant = |at: &usize| {
        let forecast = &picture.outlooks[*at];
        let mut choices = picture.problem.choices_of(*at);
        kind.is_none_or(|kind| choices.any(|(_, choice)| choice.kind() == kind))
            && application.is_none_or(|application| forecast.need.application == *application)
    };
    let mut needs: Vec<usize> = (0..picture.outlooks.len()).filter(meant).collect();
    let rps = |at: usize| picture.outlooks[at].of.rps;
    needs.sort_by(|a, b| rps(*b).total_cmp(&rps(*a)));
    let inputs = needs.into_iter().map(|at| {
        let forecast = &picture.outlooks[at];
        Input {
            application: forecast.need.application.clone(),
            class: forecast.need.class,
            offered_rps: rounded(forecast.of.expected.mean_rps),
            planned_rps: rounded(forecast.of.rps),
        }
    });
    inputs.take(MOST_DECISION_ROWS).collect()
}

/// Why a type should have its number of workers, and for what those workers are not planned.
pub(crate) fn of_pool(
    picture: &Picture,
    decided: &ScalingDecision,
    at: usize,
    of: (&Pool, DeviceTarget),
    config: &Config,
) -> Arc<str> {
    let mut reason = of_number(picture, decided, at, of, config);
    reason.push_str(&pipelines::of_pool(picture, decided, at));
    let could_answer = |cut: &&Cut| {
        let mut choices = picture.problem.choices_of(cut.need as usize);
        choices.any(|(_, choice)| choice.kind() == at)
    };
    let cuts: Vec<Cut> = decided.cuts.iter().filter(could_answer).copied().collect();
    for held_back in picture.set.held_back(&picture.outlooks, &cuts) {
        reason.push_str("; not for all: ");
        reason.push_str(&held_back.reason);
    }
    let kept = picture.set.kept(&picture.outlooks, &decided.problem.needs);
    for (application, least) in kept {
        reason.push_str(&format!(
            "; {least} workers' worth is kept for `{application}` whatever is asked"
        ));
    }
    reason.into()
}

fn of_number(
    picture: &Picture,
    decided: &ScalingDecision,
    at: usize,
    (pool, desired): (&Pool, DeviceTarget),
    config: &Config,
) -> String {
    let hold_s = config.hold_ms / 1000;
    let (kind, name) = (&picture.kinds[at], &pool.device_type);
    let problem = &picture.problem;
    let free = &decided.free;
    let served = problem.choices.iter().zip(&free.served_rps);
    let on = served.filter(|(choice, _)| choice.kind() == at);
    let (rps, busy) = on.fold((0.0, 0.0), |(rps, busy), (choice, served)| {
        (rps + served, busy + served / choice.rps)
    });
    if let Some(trigger) = desired.trigger {
        return match trigger {
            Trigger::BadRate => format!(
                "{:.1} % of the queries for `{name}` were late or refused for want of time: \
                 N r / (1 - r) workers more than the {} that are up, where r is at most {MOST_BAD}",
                desired.bad_share * 100.0,
                kind.up
            ),
            Trigger::Interfered => format!(
                "something else slows down variants on {} of {} workers, which count as half",
                kind.measured.interfered, kind.up
            ),
            Trigger::Busy => format!("{:.0} % busy", kind.measured.busy_share * 100.0),
            Trigger::Overloaded => format!(
                "instances are overloaded on {} of {} workers",
                kind.measured.overloaded, kind.up
            ),
        };
    }
    if busy <= 0.0 && decided.reserved[at] > 0 {
        return format!(
            "{} workers of `{name}` run steps of pipelines",
            decided.reserved[at]
        );
    }
    if busy <= 0.0 && pool.desired > pool.least {
        return format!("workers that were planned within the last {hold_s} s stay");
    }
    if busy <= 0.0 {
        return format!(
            "nothing was planned for `{name}` in the last {hold_s} s: the least that there must be"
        );
    }
    if let (Some(cold_start_s), true) = (config.cold_start_s, rps < 0.01) {
        return format!(
            "nobody asks now; another start would take longer than the {cold_start_s} s that the first \
             query may wait"
        );
    }
    let enough = free.devices[at].max(1);
    let mut reason = format!(
        "{} rows a second are planned for `{name}`: they keep {busy:.2} workers busy, and \
         with a margin for chance {enough} have time for them",
        rate(rps),
    );
    let planned = enough.saturating_add(decided.reserved[at]);
    let more = pool.desired.saturating_sub(planned);
    if more > 0 {
        reason.push_str(&format!(
            "; {more} more stay that were planned within the last {hold_s} s, or that late queries at such a load \
             asked for"
        ));
    }
    reason
}

/// Workers of other types of which one plan has more than another, in words.
fn beside(picture: &Picture, at: usize, planned: &Plan, other: &Plan) -> Option<String> {
    let each = planned.devices.iter().zip(&other.devices).enumerate();
    let differs = each.filter(|(kind, (planned, other))| *kind != at && planned != other);
    let named = differs.map(|(kind, (planned, other))| {
        format!("{other} of `{}` for {planned}", picture.kinds[kind].name)
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// What the fleet would cost with other plans, and why they were not chosen.
pub(crate) fn other_pools(
    picture: &Picture,
    decided: &ScalingDecision,
    at: usize,
    from: u32,
) -> Vec<Alternative> {
    let (free, problem) = (&decided.free, &decided.problem);
    let unserved = |plan: &Plan| plan.unserved_rps.iter().sum::<f64>();
    let judged = |what: String, plan: &Plan| {
        let missing = unserved(plan) - unserved(free);
        let why_not = match missing > 1e-3 {
            true => format!(
                "would leave {} more rows a second unanswered",
                rate(missing)
            ),
            false if plan.cost_per_hour_usd > free.cost_per_hour_usd + 1e-9 => {
                "costs more".to_owned()
            }
            false => "is no better, and something else was planned within the hold".to_owned(),
        };
        Alternative {
            what: what.into(),
            cost_per_hour_usd: Some(rounded(plan.cost_per_hour_usd)),
            why_not: why_not.into(),
        }
    };
    let with = |change: &dyn Fn(usize, &mut sextant_scaling::Device)| {
        let mut problem = problem.clone();
        for (kind, device) in problem.devices.iter_mut().enumerate() {
            change(kind, device);
        }
        shared::plan(&problem, Effort::default())
    };
    let name = &picture.kinds[at].name;
    let as_it_was = with(&|kind, device| {
        if kind == at {
            let beside = from.saturating_sub(decided.reserved[at]);
            (device.least, device.most) = (beside, beside);
        }
    });
    let mut before = judged(format!("{from} of `{name}`, as it was"), &as_it_was);
    if let Some(beside) = beside(picture, at, free, &as_it_was) {
        before.what = format!("{}, and {beside}", before.what).into();
    }
    if let (Some(_), true) = (
        decided.devices[at].trigger,
        from < decided.devices[at].devices,
    ) {
        before.why_not = "is too few by what was measured".into();
    }
    let bounds = &problem.devices[at];
    if from < decided.reserved[at] {
        let run = decided.reserved[at];
        before.why_not = format!("is fewer than the {run} that run steps of pipelines").into();
    } else if from < bounds.least {
        before.why_not = format!("is fewer than the {} that there must be", bounds.least).into();
    } else if from > bounds.most {
        before.why_not = format!("is more than the {} that there may be", bounds.most).into();
    }
    let mut all = vec![before];
    let managed = |kind: &usize| problem.devices[*kind].most > problem.devices[*kind].least;
    let kinds = (0..picture.kinds.len()).filter(managed);
    for only in kinds.take(MOST_DECISION_ROWS - 1) {
        if picture.kinds.len() < 2 {
            break;
        }
        let plan = with(&|kind, device| {
            if kind != only {
                device.most = device.least;
            }
        });
        // This is the chosen plan.
        if plan.devices == free.devices {
            continue;
        }
        let name = &picture.kinds[only].name;
        let what = format!("more of `{name}` alone: {} of it", plan.devices[only]);
        all.push(judged(what, &plan));
    }
    all
}

/// The reason and inputs of a decision that still holds, computed from the present load, if the load differs much from
/// that in the reason. A decision about something that is not planned for any more keeps its reason.
pub(crate) fn refreshed(
    (picture, decided): (&Picture, &ScalingDecision),
    decision: &Decision,
    pools: &[Pool],
    config: &Config,
) -> Option<(Arc<str>, Vec<Input>)> {
    let planned = |of: &[Input]| of.iter().map(|it| it.planned_rps).sum::<f64>();
    let (reason, now): (Arc<str>, Vec<Input>) = match &decision.subject {
        Subject::Pool(name) => {
            let at = pools.iter().position(|it| it.device_type == *name)?;
            let served = picture.problem.choices.iter().zip(&decided.free.served_rps);
            let mut served = served.filter(|(choice, _)| choice.kind() == at);
            let is_idle = served.all(|(_, served)| *served <= 0.0) && decided.reserved[at] == 0;
            if pools[at].desired != decision.to || is_idle {
                return None;
            }
            let of = (&pools[at], decided.devices[at]);
            let reason = of_pool(picture, decided, at, of, config);
            (reason, inputs(picture, Some(at), None))
        }
        Subject::Variant(name) => {
            let (rps, _) = served_by(picture, &decided.here, name);
            let variant = picture.variants.values().find(|it| it.id == *name)?;
            let is_idle = rps <= 0.0 && pipelines::of_variant(picture, name).is_none();
            if decision.to == 0 || is_idle {
                return None;
            }
            let reason = reason_of(picture, &decided.here, name, decision.to);
            (reason, inputs(picture, None, Some(&variant.application)))
        }
    };
    let (before_rps, now_rps) = (planned(&decision.inputs), planned(&now));
    figures::is_another(before_rps, now_rps).then_some((reason, now))
}

/// Changes of the needed variants.
pub(crate) fn of_variants(
    picture: &Picture,
    here: &Plan,
    before: &BTreeMap<VariantId, u32>,
    now: &BTreeMap<VariantId, u32>,
) -> Vec<Change> {
    let mut names: Vec<&VariantId> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let count =
        |of: &BTreeMap<VariantId, u32>, name: &VariantId| of.get(name).copied().unwrap_or(0);
    let changed = names
        .into_iter()
        .filter(|name| count(before, name) != count(now, name));
    let changes = changed.map(|name| {
        let (from, to) = (count(before, name), count(now, name));
        let of = picture.variants.values().find(|it| it.id == *name);
        let application = of.map(|variant| &variant.application);
        let others = before.keys().filter(|other| {
            let variant = picture.variants.values().find(|it| it.id == **other);
            **other != *name && variant.map(|it| &it.application) == application
        });
        let fastest = others
            .map(|other| speed(picture, other))
            .fold(None, |most: Option<f64>, rps| {
                Some(most.map_or(rps, |most| most.max(rps)))
            });
        let action = match (from, fastest) {
            _ if to < from => Action::Remove,
            (0, None) => Action::Add,
            (0, Some(other)) if speed(picture, name) > other => Action::Upgrade,
            (0, Some(_)) => Action::Downgrade,
            _ => Action::Replicate,
        };
        Change {
            subject: Subject::Variant(name.clone()),
            action,
            from,
            to,
            reason: reason_of(picture, here, name, to),
            inputs: application.map_or_else(Vec::new, |it| inputs(picture, None, Some(it))),
            alternatives: match to > from {
                true => other_variants(picture, name),
                false => Vec::new(),
            },
        }
    });
    changes.collect()
}

/// The highest rate that a device answers with a variant, 1/s; 0 if the variant meets no need.
fn speed(picture: &Picture, name: &VariantId) -> f64 {
    let choices = picture.problem.choices.iter();
    let of = choices.filter(|choice| picture.variants[&choice.variant].id == *name);
    of.map(|choice| choice.rps).fold(0.0, f64::max)
}

fn reason_of(picture: &Picture, here: &Plan, name: &VariantId, to: u32) -> Arc<str> {
    if let Some(reason) = pipelines::of_variant(picture, name).filter(|_| to > 0) {
        return reason;
    }
    let (rps, most) = served_by(picture, here, name);
    if to == 0 {
        return "nothing that it would answer was planned for it for a while".into();
    }
    if rps <= 0.0 {
        return "it was planned for a moment ago, and stays for a while".into();
    }
    let merit = merit(picture, name);
    format!(
        "of those that meet the targets it {merit}: {} rows a second, of {} that a worker could with \
         what surrounds the engine; it is loaded on all {to} workers that have room and may take each \
         other's queries",
        rate(rps),
        rate(most)
    )
    .into()
}

/// Rows a second that a plan assigns to a variant, and the highest rate of one of its devices.
fn served_by(picture: &Picture, here: &Plan, name: &VariantId) -> (f64, f64) {
    let served = picture.problem.choices.iter().zip(&here.served_rps);
    let own = served.filter(|(choice, _)| picture.variants[&choice.variant].id == *name);
    // The rates of devices that answer nothing with the variant are irrelevant.
    let own = own.filter(|(_, served)| **served > 0.0);
    own.fold((0.0, 0.0f64), |(rps, most), (choice, served)| {
        (rps + served, most.max(choice.rps))
    })
}

/// Why a variant was planned for: the preference of the first need that it may answer.
fn merit(picture: &Picture, name: &VariantId) -> &'static str {
    let mut choices = picture.problem.choices.iter();
    let own = choices.find(|choice| picture.variants[&choice.variant].id == *name);
    let need = own.and_then(|choice| picture.outlooks.get(choice.need as usize));
    match need.map_or(Prefer::Cost, |forecast| forecast.need.class.prefer) {
        Prefer::Cost => "answers for the least",
        Prefer::Accuracy => "is the most accurate that there is room for",
        Prefer::Latency => "is the quickest that there is room for",
    }
}

/// The variants that could answer the same queries and were not chosen.
fn other_variants(picture: &Picture, name: &VariantId) -> Vec<Alternative> {
    let problem = &picture.problem;
    let price = |choice: &sextant_scaling::Choice| {
        let kind = &picture.kinds[choice.kind()];
        kind.facts.price_per_hour_usd / choice.rps / 3.6 * 1e3
    };
    let id = |choice: &sextant_scaling::Choice| &picture.variants[&choice.variant].id;
    let needs: Vec<u32> = problem
        .choices
        .iter()
        .filter(|choice| id(choice) == name)
        .map(|choice| choice.need)
        .collect();
    let mut others: BTreeMap<&VariantId, (f64, KindIx)> = BTreeMap::new();
    for choice in &problem.choices {
        if needs.contains(&choice.need) && id(choice) != name {
            let known = others
                .entry(id(choice))
                .or_insert((f64::INFINITY, choice.device));
            if price(choice) < known.0 {
                *known = (price(choice), choice.device);
            }
        }
    }
    let mut others: Vec<_> = others.into_iter().collect();
    others.sort_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
    let rows = others.into_iter().take(MOST_DECISION_ROWS);
    rows.map(|(other, (price, device))| {
        let kind = &picture.kinds[device.get() as usize];
        Alternative {
            what: format!("`{other}` on `{}`", kind.name).into(),
            cost_per_hour_usd: None,
            why_not: match kind.up {
                0 => format!("no worker of `{}` is up", kind.name),
                _ => format!(
                    "a million queries would cost {} USD in time of a worker",
                    usd(price)
                ),
            }
            .into(),
        }
    })
    .collect()
}

/// Rounds to three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
