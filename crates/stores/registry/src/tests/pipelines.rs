//! Pipelines and their versions.

use serde_json::json;
use sextant_types::{Code, Digest};

use super::*;
use crate::{BlobRole, JobState, NewPipeline, PipelineMeasure};

on_both! {
    a_pipeline_is_an_application_with_a_definition,
    each_change_makes_a_version_and_the_latest_answers,
    its_files_are_kept,
    models_and_pipelines_exclude_each_other,
    what_was_measured_last_is_kept,
    one_that_goes_takes_its_measurement_along,
}

fn digest(digit: &str) -> Digest {
    digit.repeat(64).parse().unwrap()
}

fn first() -> NewPipeline {
    NewPipeline {
        definition: json!({"name": "digits", "steps": [{"name": "a", "softmax": {}}]}),
        files: [("tokens.json".to_owned(), digest("a"))].into(),
    }
}

/// Removes the pipeline without a check.
async fn delete(registry: &Registry, now_ms: u64) -> Result<(), Error> {
    let app = app();
    let deleted = registry.delete_pipeline(&app, |_| Ok::<_, ()>(()), now_ms);
    deleted.await.map(Result::unwrap)
}

async fn a_pipeline_is_an_application_with_a_definition(place: Place) {
    let registry = place.open().await;
    let (made, created) = registry
        .create_pipeline(&application(), &first(), 5)
        .await
        .unwrap();
    assert!(created);
    assert_eq!(
        (made.version, made.created_ms, &made.definition),
        (1, 5, &first().definition)
    );
    let (again, created) = registry
        .create_pipeline(&application(), &first(), 9)
        .await
        .unwrap();
    assert!(!created);
    assert_eq!(again, made);
    let other = NewPipeline {
        definition: json!({"name": "digits"}),
        ..first()
    };
    let refused = registry
        .create_pipeline(&application(), &other, 9)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PipelineExists);
    registry.close().await;
    let registry = place.open().await;
    assert_eq!(
        registry.pipelines().await.unwrap(),
        std::slice::from_ref(&made)
    );
    assert_eq!(registry.pipeline(&app()).await.unwrap(), made);
    assert_eq!(registry.applications().await.unwrap(), [application()]);
    let named = app();
    let refused = registry.delete_pipeline(&named, |known| Err::<(), _>(known.version), 9);
    assert_eq!(refused.await.unwrap(), Err(1));
    delete(&registry, 9).await.unwrap();
    let gone = registry.pipeline(&app()).await.unwrap_err();
    assert_eq!(gone.code(), Code::PipelineNotFound);
    assert!(registry.applications().await.unwrap().is_empty());
}

async fn each_change_makes_a_version_and_the_latest_answers(place: Place) {
    let registry = place.open().await;
    registry
        .create_pipeline(&application(), &first(), 5)
        .await
        .unwrap();
    let second = NewPipeline {
        definition: json!({"name": "digits", "steps": []}),
        ..first()
    };
    let change = async |new: NewPipeline| {
        let id = app();
        let changed = registry.change_pipeline(&id, move |_| Ok::<_, ()>(new), 7);
        changed.await.unwrap().unwrap()
    };
    let made = change(second.clone()).await;
    assert_eq!((made.version, &made.definition), (2, &second.definition));
    assert_eq!(change(second).await, made);
    assert_eq!(registry.pipelines().await.unwrap(), [made]);
    let refused = registry
        .change_pipeline(&app(), |_| Err::<NewPipeline, _>("no"), 7)
        .await
        .unwrap();
    assert_eq!(refused.unwrap_err(), "no");
    let versions = registry.pipeline_versions(&app()).await.unwrap();
    assert_eq!(
        versions.iter().map(|it| it.version).collect::<Vec<_>>(),
        [2, 1]
    );
}

async fn its_files_are_kept(place: Place) {
    let registry = place.open().await;
    registry
        .create_pipeline(&application(), &first(), 5)
        .await
        .unwrap();
    assert!(
        registry
            .condemn(&[digest("a")], 9)
            .await
            .unwrap()
            .is_empty()
    );
    let uses = registry.blob_uses().await.unwrap();
    assert_eq!(
        (uses[0].digest, uses[0].role),
        (digest("a"), BlobRole::Pipeline)
    );
    assert_eq!(
        registry.condemn(&[digest("b")], 9).await.unwrap(),
        [digest("b")]
    );
    let condemned = NewPipeline {
        files: [("other".to_owned(), digest("b"))].into(),
        ..first()
    };
    let refused = registry
        .change_pipeline(&app(), |_| Ok::<_, ()>(condemned), 9)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    delete(&registry, 9).await.unwrap();
    assert_eq!(
        registry.condemn(&[digest("a")], 9).await.unwrap(),
        [digest("a")]
    );
}

async fn models_and_pipelines_exclude_each_other(place: Place) {
    let registry = place.open().await;
    registry
        .create_pipeline(&application(), &first(), 5)
        .await
        .unwrap();
    let refused = create_model(&registry, &new_model("m"), 1)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InUse);
    delete(&registry, 9).await.unwrap();
    registry.create_application(&application()).await.unwrap();
    let refused = registry
        .create_pipeline(&application(), &first(), 5)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ApplicationExists);
}

async fn what_was_measured_last_is_kept(place: Place) {
    let registry = place.open().await;
    let measure = |value: f64| PipelineMeasure {
        version: 1,
        followed: "m@1".to_owned(),
        figures: json!({"value": value}),
        measured_ms: 7,
    };
    let missing = registry
        .put_pipeline_measure(&app(), &measure(0.5))
        .await
        .unwrap_err();
    assert_eq!(missing.code(), Code::PipelineNotFound);
    registry
        .create_pipeline(&application(), &first(), 5)
        .await
        .unwrap();
    for value in [0.5, 0.75] {
        registry
            .put_pipeline_measure(&app(), &measure(value))
            .await
            .unwrap();
    }
    let measured = registry.pipeline_measures().await.unwrap();
    assert_eq!(measured, [(app(), measure(0.75))].into());
    delete(&registry, 9).await.unwrap();
    assert!(registry.pipeline_measures().await.unwrap().is_empty());
}

async fn one_that_goes_takes_its_measurement_along(place: Place) {
    let registry = place.open().await;
    let create = async || {
        let (application, first) = (application(), first());
        let made = registry.create_pipeline(&application, &first, 5);
        made.await.unwrap()
    };
    let job = async |kind: JobKind| {
        let job = NewJob::new(kind, app(), json!({}));
        registry.create_job(&job, 6).await.unwrap().id
    };
    let state = async |id: &JobId| registry.job(id).await.unwrap().state;
    create().await;
    let (measure, offline) = (job(JobKind::Measure).await, job(JobKind::Offline).await);
    let refused = delete(&registry, 7).await.unwrap_err();
    assert_eq!(refused.code(), Code::InUse);
    assert_eq!(state(&measure).await, JobState::Queued);
    registry.cancel(&offline, 8).await.unwrap();
    delete(&registry, 9).await.unwrap();
    assert_eq!(state(&measure).await, JobState::Cancelled);
    assert_eq!(registry.job(&measure).await.unwrap().updated_ms, 9);
}
