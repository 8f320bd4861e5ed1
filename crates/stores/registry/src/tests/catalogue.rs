//! Applications, models, steps, variants.

use serde_json::json;
use sextant_types::{Code, ErrorKind, InvalidResources, Resources};

use super::*;
use crate::{Failure, JobState, ModelStatus};

on_both! {
    an_application_is_created_once_and_kept,
    resources_are_changed_kept_and_taken_back,
    a_metric_changes_until_a_model_is_measured_by_it,
    a_model_is_created_once_unless_it_failed,
    a_registration_is_a_model_and_its_job,
    a_finished_registration_makes_its_variants_ready_at_once,
    a_cancelled_registration_leaves_a_failed_model,
    the_first_model_fixes_the_signature,
    the_last_model_takes_the_signature_along,
    steps_are_stored_once_per_name,
    variants_come_back_bit_for_bit,
    variants_are_stored_all_or_none,
    what_leaves_batches_stays_out_of_them_though_marks_are_renewed,
}

async fn an_application_is_created_once_and_kept(place: Place) {
    let registry = place.open().await;
    assert!(registry.create_application(&application()).await.unwrap());
    assert!(!registry.create_application(&application()).await.unwrap());
    let other = Application {
        metric: Metric::Exact,
        ..application()
    };
    let refused = registry.create_application(&other).await.unwrap_err();
    assert_eq!(refused.code(), Code::ApplicationExists);
    assert_eq!(registry.application(&app()).await.unwrap(), application());
    registry.close().await;
    let registry = place.open().await;
    assert_eq!(registry.applications().await.unwrap(), [application()]);
    delete_application(&registry).await.unwrap();
    let gone = registry.application(&app()).await.unwrap_err();
    assert_eq!(
        (gone.code(), gone.kind()),
        (Code::ApplicationNotFound, ErrorKind::NotFound)
    );
    assert_eq!(told(delete_application(&registry).await), "NotFound");
}

/// Changes the application's resources, unless they are invalid.
async fn change_resources(
    registry: &Registry,
    change: impl FnOnce(Resources) -> Resources + Send,
) -> Result<Result<Application, InvalidResources>, Error> {
    let change = |known: Application| {
        let resources = change(known.resources);
        resources.validate()?;
        Ok(Application { resources, ..known })
    };
    registry.change_application(&app(), change).await
}

async fn resources_are_changed_kept_and_taken_back(place: Place) {
    let registry = place.open().await;
    let missing = change_resources(&registry, |it| it).await;
    assert_eq!(missing.unwrap_err().code(), Code::ApplicationNotFound);
    registry.create_application(&application()).await.unwrap();
    let set = Resources {
        budget_per_hour_usd: Some(0.1 + 0.2),
        least_workers: 1,
        most_workers: Some(3),
        priority: Some(0),
        weight: None,
        cache_bytes: 1 << 20,
        cache_ttl_s: Some(60),
        isolation: None,
    };
    let changed = change_resources(&registry, |_| set).await.unwrap();
    assert_eq!(changed.unwrap().resources, set);
    // Each member alone.
    let further = |it: Resources| Resources {
        weight: Some(2.5),
        ..it
    };
    change_resources(&registry, further).await.unwrap().unwrap();
    let wrong = |it: Resources| Resources {
        most_workers: Some(0),
        ..it
    };
    let refused = change_resources(&registry, wrong).await.unwrap();
    assert_eq!(refused.unwrap_err().name, "most_workers");
    // The same settings again, with or without the resources.
    let same = Application {
        resources: further(set),
        ..application()
    };
    for again in [&application(), &same] {
        assert!(!registry.create_application(again).await.unwrap());
    }
    let other = Application {
        resources: set,
        ..application()
    };
    let refused = registry.create_application(&other).await.unwrap_err();
    assert_eq!(refused.code(), Code::ApplicationExists);
    registry.close().await;
    let registry = place.open().await;
    assert_eq!(registry.application(&app()).await.unwrap(), same);
    let nothing = |_| Resources::default();
    change_resources(&registry, nothing).await.unwrap().unwrap();
    assert_eq!(registry.applications().await.unwrap(), [application()]);
    delete_application(&registry).await.unwrap();
    assert!(registry.create_application(&same).await.unwrap());
    assert_eq!(registry.application(&app()).await.unwrap(), same);
}

async fn a_metric_changes_until_a_model_is_measured_by_it(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    let change = async |metric| {
        let change = |known| Ok::<_, ()>(Application { metric, ..known });
        registry.change_application(&app(), change).await
    };
    let changed = change(Metric::MeanAbsoluteError).await.unwrap().unwrap();
    assert_eq!(changed.metric, Metric::MeanAbsoluteError);
    assert_eq!(registry.application(&app()).await.unwrap(), changed);
    registry
        .register_model(&new_model("m"), &register_job("m"), 1)
        .await
        .unwrap();
    assert_eq!(told(change(Metric::R2).await), "InUse");
    // The same request again changes nothing.
    assert_eq!(
        change(Metric::MeanAbsoluteError).await.unwrap().unwrap(),
        changed
    );
    let claimed = registry.claim(JobKind::Register, "me", 100, 3).await;
    let claimed = claimed.unwrap().unwrap();
    let failure = Failure::new(Code::InvalidModel, "truncated at byte `17`");
    registry.fail(&claimed.id, "me", &failure, 4).await.unwrap();
    assert_eq!(
        change(Metric::R2).await.unwrap().unwrap().metric,
        Metric::R2
    );
}

async fn a_model_is_created_once_unless_it_failed(place: Place) {
    let registry = place.open().await;
    let orphan = create_model(&registry, &new_model("m"), 7)
        .await
        .unwrap_err();
    assert_eq!(orphan.code(), Code::ApplicationNotFound);
    registry.create_application(&application()).await.unwrap();
    let first = create_model(&registry, &new_model("m"), 7).await.unwrap();
    assert!(first.created);
    assert_eq!(
        (first.model.status, first.model.created_ms),
        (ModelStatus::Registering, 7)
    );
    let again = create_model(&registry, &new_model("m"), 8).await.unwrap();
    assert_eq!((again.created, &again.model), (false, &first.model));
    let other = NewModel {
        validation: Digest::from_bytes([9; 32]),
        version: Some(1),
        ..new_model("m")
    };
    let refused = create_model(&registry, &other, 9).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.kind()),
        (Code::ModelExists, ErrorKind::Conflict)
    );
    let text = refused.to_string();
    assert!(
        text.contains("digits:m") && text.contains("another validation set"),
        "{text}"
    );
}

async fn a_registration_is_a_model_and_its_job(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    let first = registry
        .register_model(&new_model("m"), &register_job("m"), 1)
        .await
        .unwrap();
    assert!(first.created);
    assert_eq!(registry.job(&first.job.id).await.unwrap(), first.job);
    let again = registry
        .register_model(&new_model("m"), &register_job("m"), 2)
        .await
        .unwrap();
    assert_eq!((again.created, again.job.id), (false, first.job.id.clone()));
    assert_eq!(
        told(registry.delete_model(&model_id("m"), 50).await),
        "InUse"
    );
    let claimed = registry
        .claim(JobKind::Register, "me", 100, 3)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(claimed.model, Some(model_id("m")));
    let failure = Failure::new(Code::InvalidModel, "truncated at byte `17`");
    registry
        .put_step(&model_id("m"), "inspect", &json!(1))
        .await
        .unwrap();
    registry.fail(&claimed.id, "me", &failure, 4).await.unwrap();
    let failed = registry.model(&model_id("m")).await.unwrap();
    assert_eq!(
        (failed.status, failed.error),
        (ModelStatus::Failed, Some(failure.clone()))
    );
    assert_eq!(
        registry.job(&claimed.id).await.unwrap().error,
        Some(failure)
    );
    // A failed model frees its name and its steps.
    let other = NewModel {
        digest: Digest::from_bytes([8; 32]),
        ..new_model("m")
    };
    let second = registry
        .register_model(&other, &register_job("m"), 5)
        .await
        .unwrap();
    assert!(second.created && second.job.id != first.job.id);
    assert_eq!(second.model.error, None);
    assert_eq!(registry.steps(&model_id("m")).await.unwrap(), []);
}

async fn a_finished_registration_makes_its_variants_ready_at_once(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    registry
        .register_model(&new_model("m"), &register_job("m"), 1)
        .await
        .unwrap();
    let job = registry
        .claim(JobKind::Register, "me", 100, 2)
        .await
        .unwrap()
        .unwrap();
    registry.put_variants(&[variant("m", 1)]).await.unwrap();
    assert_eq!(registry.ready_variants().await.unwrap(), []);
    let variants = [variant("m", 1), variant("m", 8)];
    let result = json!({ "variants": 2 });
    registry
        .finish_with(&job.id, "me", &variants, &result, 3)
        .await
        .unwrap();
    assert_eq!(registry.ready_variants().await.unwrap(), variants);
    assert_eq!(
        registry.model(&model_id("m")).await.unwrap().status,
        ModelStatus::Ready
    );
    let job = registry.job(&job.id).await.unwrap();
    assert_eq!((job.state, job.result), (JobState::Succeeded, Some(result)));
    assert_eq!(told(delete_application(&registry).await), "InUse");
    let names: Vec<_> = variants.iter().map(|variant| variant.id.clone()).collect();
    assert_eq!(
        registry.delete_model(&model_id("m"), 50).await.unwrap(),
        names
    );
    assert_eq!(registry.ready_variants().await.unwrap(), []);
    let gone = registry.variant(&names[0]).await.unwrap_err();
    assert_eq!(gone.code(), Code::VariantNotFound);
    delete_application(&registry).await.unwrap();
}

async fn a_cancelled_registration_leaves_a_failed_model(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    registry
        .register_model(&new_model("m"), &register_job("m"), 1)
        .await
        .unwrap();
    let job = registry
        .claim(JobKind::Register, "me", 100, 2)
        .await
        .unwrap()
        .unwrap();
    registry.cancel(&job.id, 3).await.unwrap();
    assert_eq!(
        registry.model(&model_id("m")).await.unwrap().status,
        ModelStatus::Failed
    );
    let second = registry
        .register_model(&new_model("m"), &register_job("m"), 4)
        .await
        .unwrap();
    assert!(second.created);
    // The first runner is too late to change the second registration.
    let late = registry
        .put_step_held(&job.id, "me", "inspect", &json!(1))
        .await;
    assert_eq!(told(late), "Cancelled");
    let late = registry
        .finish_with(&job.id, "me", &[variant("m", 1)], &json!(null), 5)
        .await;
    assert_eq!(told(late), "Cancelled");
    assert_eq!(registry.steps(&model_id("m")).await.unwrap(), []);
    assert_eq!(registry.variants_of(&model_id("m")).await.unwrap(), []);
    assert_eq!(
        registry.model(&model_id("m")).await.unwrap().status,
        ModelStatus::Registering
    );
}

async fn the_first_model_fixes_the_signature(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    for name in ["a", "b"] {
        registry
            .register_model(&new_model(name), &register_job(name), 1)
            .await
            .unwrap();
    }
    registry
        .fix_signature(&model_id("a"), &signature(64))
        .await
        .unwrap();
    registry
        .fix_signature(&model_id("a"), &signature(64))
        .await
        .unwrap();
    registry
        .fix_signature(&model_id("b"), &signature(64))
        .await
        .unwrap();
    let other = registry
        .fix_signature(&model_id("b"), &signature(65))
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::SignatureMismatch);
    let stored = registry.application(&app()).await.unwrap();
    assert_eq!(stored.signature, Some(signature(64)));
    assert!(
        !registry.create_application(&application()).await.unwrap(),
        "still the same"
    );
    // No other model has the signature: it is replaced.
    let job = registry
        .claim(JobKind::Register, "me", 100, 2)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(job.model, Some(model_id("a")));
    let failure = Failure::new(Code::InvalidModel, "no");
    registry.fail(&job.id, "me", &failure, 3).await.unwrap();
    registry
        .fix_signature(&model_id("b"), &signature(65))
        .await
        .unwrap();
    let stored = registry.application(&app()).await.unwrap();
    assert_eq!(stored.signature, Some(signature(65)));
}

async fn the_last_model_takes_the_signature_along(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    for name in ["a", "b"] {
        create_model(&registry, &new_model(name), 1).await.unwrap();
        registry
            .fix_signature(&model_id(name), &signature(64))
            .await
            .unwrap();
    }
    finish_registrations(&registry).await;
    registry.delete_model(&model_id("a"), 50).await.unwrap();
    assert!(
        registry
            .application(&app())
            .await
            .unwrap()
            .signature
            .is_some()
    );
    registry.delete_model(&model_id("b"), 50).await.unwrap();
    assert_eq!(registry.application(&app()).await.unwrap().signature, None);
    assert_eq!(
        told(registry.delete_model(&model_id("b"), 50).await),
        "NotFound"
    );
}

async fn steps_are_stored_once_per_name(place: Place) {
    let registry = place.open().await;
    let orphan = registry
        .put_step(&model_id("m"), "inspect", &json!(1))
        .await;
    assert_eq!(told(orphan), "NotFound");
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    for (name, value) in [
        ("b", json!(1)),
        ("a", json!({"x": [0.1, null]})),
        ("b", json!("2")),
    ] {
        registry
            .put_step(&model_id("m"), name, &value)
            .await
            .unwrap();
    }
    let steps = registry.steps(&model_id("m")).await.unwrap();
    let steps: Vec<_> = steps
        .into_iter()
        .map(|step| (step.name, step.result))
        .collect();
    let wanted = [
        ("a".to_owned(), json!({"x": [0.1, null]})),
        ("b".to_owned(), json!("2")),
    ];
    assert_eq!(steps, wanted);
}

async fn variants_come_back_bit_for_bit(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let mut first = variant("m", 1);
    registry
        .put_variants(std::slice::from_ref(&first))
        .await
        .unwrap();
    first.dominated_by = Some(variant("m", 8).id);
    registry
        .put_variants(&[first.clone(), variant("m", 8)])
        .await
        .unwrap();
    registry.close().await;
    let registry = place.open().await;
    let release = registry.model(&model_id("m")).await.unwrap().release;
    let wanted = [first, variant("m", 8)].map(|variant| Variant {
        release: release.clone(),
        ..variant
    });
    let read = registry.variant(&wanted[0].id).await.unwrap();
    assert_eq!(read, wanted[0]);
    let both = registry.variants_of(&model_id("m")).await.unwrap();
    assert_eq!(both, wanted);
    finish_registrations(&registry).await;
    registry.delete_model(&model_id("m"), 50).await.unwrap();
    assert_eq!(registry.variants_of(&model_id("m")).await.unwrap(), []);
}

async fn variants_are_stored_all_or_none(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let stranger = registry
        .put_variants(&[variant("m", 1), variant("gone", 1)])
        .await;
    assert_eq!(told(stranger), "NotFound");
    let mut broken = variant("m", 2);
    broken.accuracy.value = f64::NAN;
    let refused = registry.put_variants(&[variant("m", 1), broken]).await;
    assert_eq!(told(refused), "Unstorable");
    assert_eq!(registry.variants_of(&model_id("m")).await.unwrap(), []);
}

async fn what_leaves_batches_stays_out_of_them_though_marks_are_renewed(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let mut first = variant("m", 1);
    first.profile.batches[0].p50_ms = 1.0;
    registry
        .put_variants(&[first.clone(), variant("m", 8)])
        .await
        .unwrap();
    let mut marked = registry.variants_of(&model_id("m")).await.unwrap();
    registry.keep_apart(&first.id, "it mixes").await.unwrap();
    let apart = registry.variant(&first.id).await.unwrap();
    assert_eq!(apart.apart.as_deref(), Some("it mixes"));
    // The variants are read before and written after the change.
    for variant in &mut marked {
        variant.dominated_by = Some(variant.id.clone());
    }
    registry.renew_variants(&marked).await.unwrap();
    let wanted = Variant {
        dominated_by: Some(first.id.clone()),
        ..apart
    };
    assert_eq!(registry.variant(&first.id).await.unwrap(), wanted);
    let other = registry.variant(&marked[1].id).await.unwrap();
    assert_eq!((&other, &other.apart), (&marked[1], &None));
    finish_registrations(&registry).await;
    registry.delete_model(&model_id("m"), 50).await.unwrap();
    registry.renew_variants(&marked).await.unwrap();
    assert_eq!(registry.variants_of(&model_id("m")).await.unwrap(), []);
    let gone = registry.keep_apart(&first.id, "it mixes").await;
    assert_eq!(gone.unwrap_err().code(), Code::VariantNotFound);
}
