//! The queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::json;
use sextant_types::Code;

use super::*;
use crate::{AnsweredBy, Failure, Job, JobFilter, JobQueueKey, JobState, NewPipeline, Registrant};

on_both! {
    a_lapsed_job_goes_to_one_of_many_claimers,
    a_job_goes_from_the_queue_to_its_result,
    the_oldest_comes_first_and_kinds_do_not_mix,
    a_lapsed_claim_goes_to_another_who_alone_holds_it,
    cancelling_stops_the_runner,
    a_finished_job_is_not_cancelled,
    a_job_fails_whatever_its_error_quotes,
    released_and_orphaned_jobs_go_back_into_the_queue,
    lists_are_filtered_and_paged_newest_first,
    a_list_goes_on_behind_a_job_that_was_forgotten,
    a_new_job_wakes_a_waiting_runner,
    no_job_goes_to_two_claimers,
    jobs_are_handed_out_by_application,
    offline_jobs_go_to_whoever_can_answer_them,
    registrations_are_handed_out_by_who_registers,
    offline_jobs_are_listed_in_the_order_in_which_they_ended,
}

/// Long enough for a wake-up on any machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

async fn with_application(place: &Place) -> Registry {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    registry
}

async fn claim(registry: &Registry, owner: &str, now_ms: u64) -> Option<Job> {
    registry
        .claim(JobKind::Offline, owner, 100, now_ms)
        .await
        .unwrap()
}

async fn offline_jobs_go_to_whoever_can_answer_them(place: Place) {
    let registry = with_application(&place).await;
    let pipeline = Application {
        id: ApplicationId::new("photos").unwrap(),
        ..application()
    };
    let definition = NewPipeline {
        definition: json!({"name": "photos"}),
        files: BTreeMap::new(),
    };
    registry
        .create_pipeline(&pipeline, &definition, 1)
        .await
        .unwrap();
    let of_variants = registry.create_job(&offline_job(), 2).await.unwrap();
    let of_pipeline = NewJob::new(JobKind::Offline, pipeline.id, json!({}));
    let of_pipeline = registry.create_job(&of_pipeline, 3).await.unwrap();
    for (answered_by, job) in [
        (AnsweredBy::Pipelines, of_pipeline),
        (AnsweredBy::Variants, of_variants),
    ] {
        let claim = async || {
            let claimed = registry.claim_offline(answered_by, "me", 100, 10).await;
            claimed.unwrap().map(|it| it.id)
        };
        assert_eq!(claim().await, Some(job.id));
        assert_eq!(claim().await, None);
    }
}

async fn a_job_goes_from_the_queue_to_its_result(place: Place) {
    let registry = with_application(&place).await;
    let new = offline_job();
    let job = registry.create_job(&new, 10).await.unwrap();
    assert_eq!(
        (job.state, job.attempts, job.lease_until_ms),
        (JobState::Queued, 0, 0)
    );
    assert_eq!(
        registry.create_job(&new, 11).await.unwrap(),
        job,
        "created once"
    );
    let other = NewJob {
        spec: json!(0),
        ..new
    };
    assert_eq!(told(registry.create_job(&other, 11).await), "Exists");
    let held = claim(&registry, "me", 20).await.unwrap();
    assert_eq!(
        (held.state, held.attempts, held.lease_until_ms),
        (JobState::Running, 1, 120)
    );
    assert_eq!(claim(&registry, "you", 21).await, None);
    registry
        .advance(&job.id, "me", "chunk 3", (3, 40), 30)
        .await
        .unwrap();
    registry.renew(&job.id, "me", 100, 31).await.unwrap();
    registry.set_paused(&job.id, "me", true, 32).await.unwrap();
    let seen = registry.job(&job.id).await.unwrap();
    assert_eq!(
        (seen.state, seen.lease_until_ms, seen.updated_ms),
        (JobState::Paused, 131, 32)
    );
    assert_eq!(
        (seen.step.as_str(), seen.progress_done, seen.progress_total),
        ("chunk 3", 3, 40)
    );
    registry.set_paused(&job.id, "me", false, 33).await.unwrap();
    registry
        .finish(&job.id, "me", &json!({ "records": 40 }), 40)
        .await
        .unwrap();
    let done = registry.job(&job.id).await.unwrap();
    assert_eq!(
        (done.state, done.owner, done.lease_until_ms),
        (JobState::Succeeded, None, 0)
    );
    assert_eq!(done.result, Some(json!({ "records": 40 })));
    assert_eq!(
        told(registry.renew(&job.id, "me", 1, 41).await),
        "LeaseLost"
    );
    assert_eq!(claim(&registry, "you", 1_000_000).await, None);
}

async fn the_oldest_comes_first_and_kinds_do_not_mix(place: Place) {
    let registry = with_application(&place).await;
    let late = queued(&registry, 30).await;
    let early = queued(&registry, 10).await;
    registry.create_job(&register_job("m"), 1).await.unwrap();
    assert_eq!(claim(&registry, "me", 40).await.unwrap().id, early);
    assert_eq!(claim(&registry, "me", 40).await.unwrap().id, late);
    assert_eq!(claim(&registry, "me", 40).await, None);
}

async fn a_lapsed_claim_goes_to_another_who_alone_holds_it(place: Place) {
    let registry = with_application(&place).await;
    let id = queued(&registry, 0).await;
    claim(&registry, "dead", 0).await.unwrap();
    registry
        .advance(&id, "dead", "chunk 2", (2, 9), 50)
        .await
        .unwrap();
    assert_eq!(
        claim(&registry, "heir", 99).await,
        None,
        "one millisecond early"
    );
    // The renewal is late, but nobody has taken the job: the holder keeps it.
    registry.renew(&id, "dead", 0, 100).await.unwrap();
    let heir = claim(&registry, "heir", 101).await.unwrap();
    assert_eq!((heir.attempts, heir.progress_done), (2, 2));
    let failure = Failure::new(Code::Internal, "late");
    for refused in [
        told(registry.advance(&id, "dead", "chunk 3", (3, 9), 102).await),
        told(registry.renew(&id, "dead", 100, 102).await),
        told(registry.set_paused(&id, "dead", true, 102).await),
        told(registry.release(&id, "dead", 102).await),
        told(registry.finish(&id, "dead", &json!(1), 102).await),
        told(registry.fail(&id, "dead", &failure, 102).await),
    ] {
        assert_eq!(refused, "LeaseLost");
    }
    assert_eq!(registry.job(&id).await.unwrap(), heir);
}

async fn cancelling_stops_the_runner(place: Place) {
    let registry = with_application(&place).await;
    let id = queued(&registry, 0).await;
    claim(&registry, "me", 0).await.unwrap();
    let mut changed = registry.jobs_changed();
    changed.mark_unchanged();
    assert_eq!(
        registry.cancel(&id, 5).await.unwrap().state,
        JobState::Cancelled
    );
    assert!(changed.has_changed().unwrap());
    assert_eq!(
        told(registry.advance(&id, "me", "x", (1, 2), 6).await),
        "Cancelled"
    );
    let again = registry.cancel(&id, 7).await.unwrap();
    assert_eq!((again.state, again.updated_ms), (JobState::Cancelled, 5));
    assert_eq!(claim(&registry, "you", 1_000).await, None);
    let gone = JobId::new("gone").unwrap();
    let error = registry.cancel(&gone, 8).await.unwrap_err();
    assert_eq!(error.code(), Code::JobNotFound);
}

async fn a_job_fails_whatever_its_error_quotes(place: Place) {
    let registry = with_application(&place).await;
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let failure = Failure::new(Code::InvalidModel, "there is no input `a\0b`");
    let stored = Failure::new(Code::InvalidModel, "there is no input `a\u{fffd}b`");
    let claimed = registry.claim(JobKind::Register, "me", 100, 2).await;
    let id = claimed.unwrap().unwrap().id;
    registry.fail(&id, "me", &failure, 3).await.unwrap();
    let job = registry.job(&id).await.unwrap();
    assert_eq!(
        (job.state, job.error),
        (JobState::Failed, Some(stored.clone()))
    );
    let model = registry.model(&model_id("m")).await.unwrap();
    assert_eq!(model.error, Some(stored));
}

async fn a_finished_job_is_not_cancelled(place: Place) {
    let registry = with_application(&place).await;
    let id = queued(&registry, 0).await;
    claim(&registry, "me", 0).await.unwrap();
    registry.finish(&id, "me", &json!(1), 1).await.unwrap();
    assert_eq!(
        registry.cancel(&id, 2).await.unwrap().state,
        JobState::Succeeded
    );
}

async fn released_and_orphaned_jobs_go_back_into_the_queue(place: Place) {
    let registry = with_application(&place).await;
    let id = queued(&registry, 0).await;
    claim(&registry, "me", 0).await.unwrap();
    registry.release(&id, "me", 1).await.unwrap();
    let back = registry.job(&id).await.unwrap();
    assert_eq!((back.state, back.owner), (JobState::Queued, None));
    claim(&registry, "me", 2).await.unwrap();
    assert_eq!(registry.requeue_orphans(101).await.unwrap(), 0);
    assert_eq!(registry.requeue_orphans(102).await.unwrap(), 1);
    claim(&registry, "me", 103).await.unwrap();
    registry.set_paused(&id, "me", true, 104).await.unwrap();
    assert_eq!(registry.void_leases(105).await.unwrap(), 1);
    let back = registry.job(&id).await.unwrap();
    assert_eq!((back.state, back.attempts), (JobState::Queued, 3));
}

async fn lists_are_filtered_and_paged_newest_first(place: Place) {
    let registry = with_application(&place).await;
    let mut ids = Vec::new();
    for index in 0..7 {
        // Pairs have the same time, so that the id decides.
        ids.push(queued(&registry, index / 2).await);
    }
    registry.create_job(&register_job("m"), 99).await.unwrap();
    let newest_first: Vec<_> = {
        let mut keyed: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| (at / 2, id))
            .collect();
        keyed.sort();
        keyed.into_iter().rev().map(|(_, id)| id.clone()).collect()
    };
    let mut filter = JobFilter {
        kind: Some(JobKind::Offline),
        limit: Some(3),
        ..JobFilter::default()
    };
    let mut joined = Vec::new();
    loop {
        let page = registry.jobs(&filter).await.unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else {
            break;
        };
        filter.before = Some(last.id.clone());
        joined.extend(page.into_iter().map(|job| job.id));
    }
    assert_eq!(joined, newest_first);
    let of_model = JobFilter {
        model: Some(model_id("m")),
        ..JobFilter::default()
    };
    assert_eq!(registry.jobs(&of_model).await.unwrap().len(), 1);
    assert_eq!(registry.jobs(&JobFilter::default()).await.unwrap().len(), 8);
    let running = JobFilter {
        state: Some(JobState::Running),
        application: Some(app()),
        ..JobFilter::default()
    };
    assert_eq!(registry.jobs(&running).await.unwrap(), []);
    claim(&registry, "me", 0).await.unwrap();
    assert_eq!(registry.jobs(&running).await.unwrap().len(), 1);
}

async fn a_list_goes_on_behind_a_job_that_was_forgotten(place: Place) {
    let registry = with_application(&place).await;
    let mut ids = Vec::new();
    for at in 0..4 {
        ids.push(queued(&registry, at).await);
    }
    let page = |before| JobFilter {
        before,
        limit: Some(2),
        ..JobFilter::default()
    };
    let first = registry.jobs(&page(None)).await.unwrap();
    let last = first[1].id.clone();
    assert_eq!(last, ids[2]);
    registry.cancel(&last, 5).await.unwrap();
    assert!(registry.forget_job(&last).await.unwrap());
    let next = registry.jobs(&page(Some(last))).await.unwrap();
    let next: Vec<_> = next.iter().map(|job| &job.id).collect();
    assert_eq!(next, [&ids[1], &ids[0]]);
}

async fn a_new_job_wakes_a_waiting_runner(place: Place) {
    let registry = with_application(&place).await;
    let mut changed = registry.jobs_changed();
    changed.mark_unchanged();
    let runner = tokio::spawn({
        let registry = registry.clone();
        async move {
            loop {
                if let Some(job) = claim(&registry, "me", 1).await {
                    return job.id;
                }
                changed.changed().await.unwrap();
            }
        }
    });
    let id = queued(&registry, 0).await;
    let claimed = tokio::time::timeout(PATIENCE, runner).await;
    assert_eq!(claimed.expect("woke in time").unwrap(), id);
}

async fn a_lapsed_job_goes_to_one_of_many_claimers(place: Place) {
    let registry = with_application(&place).await;
    let id = queued(&registry, 0).await;
    claim(&registry, "dead", 0).await.unwrap();
    let claimers: Vec<_> = (0..8)
        .map(|index| {
            let registry = registry.clone();
            tokio::spawn(async move { claim(&registry, &format!("{index}"), 100).await })
        })
        .collect();
    let mut heirs = Vec::new();
    for claimer in claimers {
        heirs.extend(claimer.await.unwrap());
    }
    assert_eq!(heirs.len(), 1);
    assert_eq!((heirs[0].attempts, &heirs[0].id), (2, &id));
    assert_eq!(registry.job(&id).await.unwrap(), heirs[0]);
}

async fn no_job_goes_to_two_claimers(place: Place) {
    const JOBS: usize = 40;
    let registry = with_application(&place).await;
    for index in 0..JOBS {
        queued(&registry, index as u64).await;
    }
    // Two of the three have connections of their own, as other processes have.
    let handles = [registry, place.open().await, place.open().await];
    let claimers: Vec<_> = (0..8)
        .map(|index| {
            let registry = handles[index % handles.len()].clone();
            tokio::spawn(async move {
                let owner = format!("claimer {index}");
                let mut mine = Vec::new();
                while let Some(job) = claim(&registry, &owner, 1_000).await {
                    assert_eq!(
                        (job.attempts, job.owner.as_deref()),
                        (1, Some(owner.as_str()))
                    );
                    mine.push(job.id);
                }
                mine
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    assert_eq!(all.len(), JOBS);
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        JOBS,
        "one went to two"
    );
}

async fn jobs_are_handed_out_by_application(place: Place) {
    let registry = with_application(&place).await;
    let other = Application {
        id: ApplicationId::new("other").unwrap(),
        ..application()
    };
    registry.create_application(&other).await.unwrap();
    let job = |of: &Application| NewJob::new(JobKind::Offline, of.id.clone(), json!({}));
    let mine = registry.create_job(&job(&application()), 10).await.unwrap();
    registry.create_job(&job(&application()), 11).await.unwrap();
    let theirs = registry.create_job(&job(&other), 12).await.unwrap();
    let waiting = async |now_ms| registry.waiting(JobKind::Offline, now_ms).await.unwrap();
    let of = |application: &ApplicationId| JobQueueKey {
        registrant: String::new(),
        application: application.clone(),
    };
    let names = [of(&application().id), of(&other.id)];
    assert_eq!(waiting(20).await, names);
    assert_eq!(
        registry.waiting(JobKind::Register, 20).await.unwrap(),
        Vec::new()
    );
    let claim = async |of: &JobQueueKey, now_ms| {
        let what = (JobKind::Offline, of);
        registry.claim_of(what, "me", 100, now_ms).await.unwrap()
    };
    let claimed = claim(&names[1], 20).await.expect("one waits");
    assert_eq!(claimed.id, theirs.id);
    assert_eq!(claim(&names[1], 20).await, None);
    assert_eq!(waiting(20).await, names[..1]);
    let claimed = claim(&names[0], 20).await.expect("two wait");
    assert_eq!(claimed.id, mine.id);
    assert_eq!(waiting(20).await, names[..1]);
    // Claims that have lapsed are free for others.
    assert_eq!(waiting(120).await, names);
}

async fn registrations_are_handed_out_by_who_registers(place: Place) {
    let registry = with_application(&place).await;
    let mut names = Vec::new();
    for (at, by) in [Some("first"), None, Some("second")]
        .into_iter()
        .enumerate()
    {
        let model = NewModel {
            registered_by: by.map(|name| Registrant {
                name: name.to_owned(),
                is_administrator: false,
            }),
            ..new_model(&format!("m{at}"))
        };
        let at_ms = 10 + at as u64;
        let made = create_model(&registry, &model, at_ms).await.unwrap();
        assert_eq!(made.model.registered_by, model.registered_by);
        assert_eq!(made.model.is_foreign(), by.is_some());
        names.push(by.unwrap_or_default().to_owned());
    }
    let waiting = registry.waiting(JobKind::Register, 20).await.unwrap();
    let found = waiting.iter().map(|it| it.registrant.clone());
    assert_eq!(found.collect::<Vec<_>>(), names);
    for at in [1, 2, 0] {
        let what = (JobKind::Register, &waiting[at]);
        let claimed = registry.claim_of(what, "me", 100, 20).await.unwrap();
        let model = claimed.expect("one waits").model;
        assert_eq!(model, Some(model_id(&format!("m{at}"))));
        assert_eq!(registry.claim_of(what, "me", 100, 20).await.unwrap(), None);
    }
}

async fn offline_jobs_are_listed_in_the_order_in_which_they_ended(place: Place) {
    let registry = with_application(&place).await;
    let mut jobs = Vec::new();
    for now_ms in 1..=4 {
        jobs.push(queued(&registry, now_ms).await);
    }
    // The oldest job ends last; the last job goes on.
    for (at, ended_ms) in [(1, 20), (2, 20), (0, 30)] {
        registry.cancel(&jobs[at], ended_ms).await.unwrap();
    }
    let page = async |after: (u64, &str)| {
        let page = registry.ended_offline_jobs(after, 2).await.unwrap();
        page.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    let (mut first, last) = (vec![jobs[1].clone(), jobs[2].clone()], jobs[0].clone());
    first.sort();
    assert_eq!(page((0, "")).await, first);
    let rest = [first[1].clone(), last.clone()];
    assert_eq!(page((20, first[0].as_str())).await, rest);
    assert_eq!(page((20, first[1].as_str())).await, [last]);
    assert!(page((30, jobs[0].as_str())).await.is_empty());
}
