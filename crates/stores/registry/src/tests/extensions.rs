//! Jobs that extend ready models by an engine: who gets them, and that there is only one.

use std::collections::BTreeSet;

use serde_json::json;
use sextant_types::{Code, EngineName};

use super::*;
use crate::{Failure, Job, JobState, Model, ModelStatus, Plan, PlannedExtension};

on_both! {
    a_job_for_an_engine_goes_to_who_names_it,
    one_of_many_creates_the_job,
    what_was_decided_on_older_jobs_is_not_done,
    a_later_model_of_the_name_is_not_taken_for_the_earlier_one,
    what_is_planned_for_many_models_is_stored_at_once,
    models_are_extendable_until_a_step_or_a_job_says_otherwise,
    the_end_of_an_extension_leaves_its_model_as_it_is,
    a_model_is_deleted_beside_its_extension,
    a_registration_that_is_done_wakes_whoever_extends,
}

fn engine(name: &str) -> EngineName {
    EngineName(name.to_owned())
}

fn extension(model: &str, of: &str) -> NewJob {
    let job = NewJob::new(JobKind::Extend, app(), json!({ "engine": of }));
    job.for_model(model_id(model)).for_engine(engine(of))
}

async fn claim(registry: &Registry, of: &str, now_ms: u64) -> Option<Job> {
    let what = (JobKind::Extend, &engine(of));
    registry.claim_for(what, "me", 100, now_ms).await.unwrap()
}

/// A registry with a ready model.
async fn with_ready(place: &Place, name: &str) -> (Registry, Model) {
    let registry = place.open().await;
    if registry.application(&app()).await.is_err() {
        registry.create_application(&application()).await.unwrap();
    }
    let model = ready(&registry, name).await;
    (registry, model)
}

async fn ready(registry: &Registry, name: &str) -> Model {
    registry
        .register_model(&new_model(name), &register_job(name), 1)
        .await
        .unwrap();
    let job = registry.claim(JobKind::Register, "me", 100, 2).await;
    let job = job.unwrap().unwrap();
    registry.finish(&job.id, "me", &json!({}), 3).await.unwrap();
    registry.model(&model_id(name)).await.unwrap()
}

async fn extend(registry: &Registry, model: &Model, of: &str, known: usize) -> Option<Job> {
    let job = extension(model.id.as_str(), of);
    let id = job.id.clone();
    match store(registry, model, PlannedExtension::Job { job, known }).await {
        true => Some(registry.job(&id).await.unwrap()),
        false => None,
    }
}

async fn store(registry: &Registry, model: &Model, planned: PlannedExtension) -> bool {
    let stored = registry.store_plans(&[Plan { model, planned }], 10).await;
    stored.unwrap() == [true]
}

fn step() -> PlannedExtension {
    PlannedExtension::Step {
        name: "extend:gpu".to_owned(),
        result: json!(1),
    }
}

async fn a_job_for_an_engine_goes_to_who_names_it(place: Place) {
    let (registry, model) = with_ready(&place, "m").await;
    let created = extend(&registry, &model, "gpu", 0).await.unwrap();
    assert_eq!(created.engine, Some(engine("gpu")));
    let anyone = registry.claim(JobKind::Extend, "me", 100, 11).await;
    assert_eq!(anyone.unwrap(), None);
    for other in ["cpu", "g", "gpu2", "GPU", "%", ""] {
        assert_eq!(claim(&registry, other, 11).await, None, "{other}");
    }
    let what = (JobKind::Offline, &engine("gpu"));
    let of_another_kind = registry.claim_for(what, "me", 100, 11).await;
    assert_eq!(of_another_kind.unwrap(), None);
    assert_eq!(claim(&registry, "gpu", 11).await.unwrap().id, created.id);
    // A claim that has lapsed does not continue.
    assert_eq!(claim(&registry, "cpu", 200).await, None);
    assert_eq!(claim(&registry, "gpu", 200).await.unwrap().attempts, 2);
}

async fn one_of_many_creates_the_job(place: Place) {
    let (registry, model) = with_ready(&place, "m").await;
    // Two of the three have connections of their own, as other processes have.
    let handles = [registry.clone(), place.open().await, place.open().await];
    let creators: Vec<_> = (0..9)
        .map(|index| {
            let (registry, model) = (handles[index % 3].clone(), model.clone());
            tokio::spawn(async move { extend(&registry, &model, "gpu", 0).await })
        })
        .collect();
    let mut created = Vec::new();
    for creator in creators {
        created.extend(creator.await.unwrap());
    }
    assert_eq!(created.len(), 1);
    let all = registry.extensions(&model.id, &engine("gpu")).await;
    assert_eq!(all.unwrap(), created);
    let other = extend(&registry, &model, "cpu", 0).await;
    assert!(other.is_some(), "another engine is another matter");
}

async fn what_was_decided_on_older_jobs_is_not_done(place: Place) {
    let (registry, model) = with_ready(&place, "m").await;
    let first = extend(&registry, &model, "gpu", 0).await.unwrap();
    claim(&registry, "gpu", 11).await.unwrap();
    let failure = Failure::new(Code::Unavailable, "later");
    registry.fail(&first.id, "me", &failure, 12).await.unwrap();
    assert_eq!(extend(&registry, &model, "gpu", 0).await, None);
    let again = extend(&registry, &model, "gpu", 1).await.unwrap();
    let all = registry
        .extensions(&model.id, &engine("gpu"))
        .await
        .unwrap();
    let ids: BTreeSet<_> = all.into_iter().map(|job| job.id).collect();
    assert_eq!(ids, BTreeSet::from([first.id, again.id]));
}

async fn a_later_model_of_the_name_is_not_taken_for_the_earlier_one(place: Place) {
    let (registry, earlier) = with_ready(&place, "m").await;
    registry.delete_model(&earlier.id, 20).await.unwrap();
    assert_eq!(extend(&registry, &earlier, "gpu", 0).await, None);
    let other = NewModel {
        digest: Digest::from_bytes([9; 32]),
        ..new_model("m")
    };
    create_model(&registry, &other, 21).await.unwrap();
    assert_eq!(extend(&registry, &earlier, "gpu", 0).await, None);
    assert!(!store(&registry, &earlier, step()).await);
    assert_eq!(registry.steps(&earlier.id).await.unwrap(), []);
    let later = registry.model(&earlier.id).await.unwrap();
    assert!(store(&registry, &later, step()).await);
    assert_eq!(registry.steps(&earlier.id).await.unwrap().len(), 1);
}

async fn what_is_planned_for_many_models_is_stored_at_once(place: Place) {
    let registry = with_ready(&place, "a").await.0;
    let mut models = vec![registry.model(&model_id("a")).await.unwrap()];
    for name in ["b", "c"] {
        models.push(ready(&registry, name).await);
    }
    registry.delete_model(&models[1].id, 20).await.unwrap();
    let mut woken = registry.jobs_changed();
    woken.mark_unchanged();
    let mut planned = vec![step()];
    for model in &models[1..] {
        let job = extension(model.id.as_str(), "gpu");
        planned.push(PlannedExtension::Job { job, known: 0 });
    }
    let plans = models.iter().zip(planned);
    let plans: Vec<Plan<'_>> = plans
        .map(|(model, planned)| Plan { model, planned })
        .collect();
    let stored = registry.store_plans(&plans, 10).await.unwrap();
    assert_eq!(stored, [true, false, true], "one was deleted meanwhile");
    assert!(woken.has_changed().unwrap(), "whoever takes jobs is told");
    assert_eq!(registry.steps(&models[0].id).await.unwrap().len(), 1);
    let job = claim(&registry, "gpu", 11).await.unwrap();
    assert_eq!(job.model.as_ref(), Some(&models[2].id));
    assert_eq!(claim(&registry, "gpu", 11).await, None);
}

async fn models_are_extendable_until_a_step_or_a_job_says_otherwise(place: Place) {
    let (registry, model) = with_ready(&place, "m").await;
    create_model(&registry, &new_model("unready"), 5)
        .await
        .unwrap();
    let found = async |of: &str| {
        let step = format!("extend:{of}");
        let found = registry.extendable(&engine(of), &step).await;
        let names = found.unwrap().into_iter().map(|it| it.id.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(found("gpu").await, ["m"]);
    let job = extend(&registry, &model, "gpu", 0).await.unwrap();
    assert!(found("gpu").await.is_empty());
    assert_eq!(found("cpu").await, ["m"]);
    claim(&registry, "gpu", 11).await.unwrap();
    let failure = Failure::new(Code::Unavailable, "later");
    registry.fail(&job.id, "me", &failure, 12).await.unwrap();
    assert_eq!(found("gpu").await, ["m"]);
    let name = "extend:gpu";
    registry.put_step(&model.id, name, &json!(1)).await.unwrap();
    assert!(found("gpu").await.is_empty());
}

async fn the_end_of_an_extension_leaves_its_model_as_it_is(place: Place) {
    let (registry, model) = with_ready(&place, "m").await;
    let failed = extend(&registry, &model, "gpu", 0).await.unwrap();
    claim(&registry, "gpu", 11).await.unwrap();
    let failure = Failure::new(Code::EngineFailed, "it broke");
    registry.fail(&failed.id, "me", &failure, 12).await.unwrap();
    assert_eq!(registry.model(&model.id).await.unwrap(), model);
    let cancelled = extend(&registry, &model, "gpu", 1).await.unwrap();
    registry.cancel(&cancelled.id, 13).await.unwrap();
    assert_eq!(registry.model(&model.id).await.unwrap(), model);
    let done = extend(&registry, &model, "gpu", 2).await.unwrap();
    claim(&registry, "gpu", 14).await.unwrap();
    let variants = [variant("m", 4)];
    registry
        .finish_with(&done.id, "me", &variants, &json!({}), 15)
        .await
        .unwrap();
    assert_eq!(registry.model(&model.id).await.unwrap(), model);
    assert_eq!(model.status, ModelStatus::Ready);
    assert_eq!(registry.ready_variants().await.unwrap(), variants);
}

async fn a_model_is_deleted_beside_its_extension(place: Place) {
    let (registry, model) = with_ready(&place, "m").await;
    let queued = extend(&registry, &model, "gone", 0).await.unwrap();
    let running = extend(&registry, &model, "gpu", 0).await.unwrap();
    claim(&registry, "gpu", 11).await.unwrap();
    registry.delete_model(&model.id, 12).await.unwrap();
    for job in [&queued, &running] {
        let job = registry.job(&job.id).await.unwrap();
        assert_eq!((job.state, job.updated_ms), (JobState::Cancelled, 12));
    }
    assert_eq!(
        told(
            registry
                .put_step_held(&running.id, "me", "x", &json!(1))
                .await
        ),
        "Cancelled"
    );
}

async fn a_registration_that_is_done_wakes_whoever_extends(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    let other = place.open().await;
    let mut changed = match &place {
        // Only one process uses the file.
        Place::File(_) => registry.jobs_changed(),
        #[cfg(feature = "postgres")]
        Place::Server { .. } => other.jobs_changed(),
    };
    registry
        .register_model(&new_model("m"), &register_job("m"), 1)
        .await
        .unwrap();
    let job = registry.claim(JobKind::Register, "me", 100, 2).await;
    let job = job.unwrap().unwrap();
    let woken = async {
        while other
            .extendable(&engine("gpu"), "x")
            .await
            .unwrap()
            .is_empty()
        {
            changed.changed().await.unwrap();
        }
    };
    let result = json!({});
    let finishing = registry.finish(&job.id, "me", &result, 3);
    let patience = std::time::Duration::from_secs(20);
    let (woken, finished) = tokio::join!(tokio::time::timeout(patience, woken), finishing);
    finished.unwrap();
    woken.expect("woke in time");
}
