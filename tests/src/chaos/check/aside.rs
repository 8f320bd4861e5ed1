//! What happens beside the load: refusals of queries that no model accepts, jobs that are submitted twice, webhooks,
//! and a model that is registered during the faults.

use super::{EXPLAINED, Violation};
use crate::chaos::{
    Plan,
    history::{Entry, Event},
    plan::Kind,
};

/// Codes for a query that no model accepts.
const MISASKED: [&str; 2] = ["invalid_tensor", "invalid_request"];

/// A query that no model accepts is refused with one of these codes, or because nothing looked at it.
pub fn misasked(_: &Plan, history: &[Entry]) -> Vec<Violation> {
    let wrong = |entry: &Entry| match &entry.event {
        Event::Misasked { status, code }
            if !MISASKED.contains(&&**code) && !EXPLAINED.contains(&&**code) =>
        {
            let what = format!("at {} ms it was told {status} `{code}`", entry.at_ms);
            Some(Violation::new("misasked", what))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

/// A job that is submitted again is accepted unchanged, and one with other content under its name is refused.
pub fn repeated(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let wrong = |entry: &Entry| match entry.event {
        Event::Repeated {
            job,
            is_same,
            status,
        } if (status < 300) != is_same => {
            let (name, how) = (&plan.jobs[job].name, if is_same { "same" } else { "other" });
            let what = format!("`{name}` with the {how} content: {status}");
            Some(Violation::new("repeated", what))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

/// The webhook of a job that has ended was told.
pub fn told(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let is_told = |name: &str| {
        let is_it = |entry: &Entry| matches!(&entry.event, Event::Told { job } if job == name);
        history.iter().any(is_it)
    };
    let wrong = |entry: &Entry| match &entry.event {
        Event::JobOver { job, .. } if !is_told(&plan.jobs[*job].name) => {
            let what = format!("nobody was told of `{}`", plan.jobs[*job].name);
            Some(Violation::new("told", what))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

/// A registered model becomes ready and answers. If a store was away or full for too long, the registration may fail
/// for that reason.
pub fn learnt(plan: &Plan, history: &[Entry]) -> Vec<Violation> {
    let was = |test: &dyn Fn(&Kind) -> bool| plan.faults.iter().any(|fault| test(&fault.kind));
    let is_explained = |code: &str| match code {
        "unavailable" => was(&Kind::is_of_store),
        "storage_full" => was(&|kind| *kind == Kind::DiskFull),
        _ => false,
    };
    let wrong = |entry: &Entry| match &entry.event {
        Event::Learnt { model, state, code }
            if state != "ready" && (state != "failed" || !is_explained(code)) =>
        {
            let what = format!("`{model}` is {state}, `{code}`");
            Some(Violation::new("learnt", what))
        }
        _ => None,
    };
    history.iter().filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::scene::Scene, *};

    #[test]
    fn a_query_that_no_model_takes_is_not_answered_and_breaks_nothing() {
        for (status, code, rules) in [
            (422, "invalid_tensor", &[][..]),
            (503, "overloaded", &[]),
            (200, "", &["misasked"]),
            (500, "internal", &["misasked"]),
        ] {
            let mut scene = Scene::default();
            let code = code.to_owned();
            scene.add(Event::Misasked { status, code });
            scene.breaks(rules);
        }
    }

    #[test]
    fn a_job_that_is_submitted_again() {
        for (is_same, status, rules) in [
            (true, 202, &[][..]),
            (true, 409, &["repeated"]),
            (false, 409, &[]),
            (false, 202, &["repeated"]),
        ] {
            let mut scene = Scene::default();
            let job = 0;
            scene.add(Event::Repeated {
                job,
                is_same,
                status,
            });
            scene.breaks(rules);
        }
    }

    #[test]
    fn a_webhook_that_is_not_told() {
        let mut scene = Scene::default();
        scene.remove(|event| matches!(event, Event::Told { .. }));
        scene.breaks(&["told"]);
    }

    #[test]
    fn a_model_that_is_not_ready_in_the_end() {
        for (state, code, rules) in [
            ("ready", "", &[][..]),
            ("unanswered", "", &["learnt"]),
            ("registering", "", &["learnt"]),
            ("failed", "internal", &["learnt"]),
            ("failed", "storage_full", &[]),
        ] {
            let mut scene = Scene::default();
            scene.add(Event::Learnt {
                model: "late".to_owned(),
                state: state.to_owned(),
                code: code.to_owned(),
            });
            scene.breaks(rules);
        }
    }
}
