//! What a registration reads of the registry beside others, however many there are.

use std::{sync::Arc, time::Duration};

use sextant_registry::{Job, JobKind, JobState, Reads};
use sextant_types::{EngineName, Metric, ModelId, Variant, VariantId};
use sextant_variant_gen::{Claim, Generator};

use crate::{
    bed::{Bed, model, quick, validation},
    extensions::{RenamedEngine, extending},
};

const SEED: u64 = 5;

const OWNER: &str = "test";

/// Longest time for anything; only a failing test takes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Others that are registered, each with an application of its own.
const FEW: usize = 3;
const MANY: usize = 100;

/// A bed with so many ready models of one variant each that were measured by the first engine, and one that was
/// registered.
async fn beside(others: usize) -> Bed {
    let bed = Bed::new().await;
    bed.register_well("m", &model(SEED), &validation(SEED))
        .await;
    let like = bed.variants("m").await.remove(0);
    for other in 0..others {
        add(&bed, &format!("other-{other}"), &like).await;
    }
    bed
}

/// A ready model of one variant in an application of its own, as a registration leaves it.
async fn add(bed: &Bed, name: &str, like: &Variant) {
    bed.application(name, Metric::Top1).await;
    let files = (&model(SEED), &validation(SEED));
    bed.submit_to(name, name, files.0, files.1).await;
    let job = claim(bed).await.job;
    let variant = Variant {
        id: VariantId::new(format!("{name}-ort")).expect("valid"),
        model: ModelId::new(name).expect("valid"),
        application: job.application.clone(),
        dominated_by: None,
        ..like.clone()
    };
    let result = serde_json::json!({});
    let variants = [variant];
    let finished = bed
        .registry
        .finish_with(&job.id, OWNER, &variants, &result, 3);
    finished.await.expect("is ready");
}

async fn claim(bed: &Bed) -> Claim {
    let claimed = bed.registry.claim(JobKind::Register, OWNER, 60_000, 2);
    held(claimed.await.expect("claims"))
}

fn held(job: Option<Job>) -> Claim {
    Claim {
        job: job.expect("there is one"),
        owner: OWNER.to_owned(),
    }
}

fn between(before: Reads, after: Reads) -> Reads {
    Reads {
        queries: after.queries - before.queries,
        rows: after.rows - before.rows,
    }
}

/// What is read may depend on what was measured, and not on how many others there are.
fn similar(few: Reads, many: Reads) {
    let most = few.rows + MANY as u64 / 4;
    assert!(
        many.rows <= most,
        "beside {FEW} {few:?}, beside {MANY} {many:?}"
    );
    let most = few.queries + MANY as u64 / 4;
    assert!(
        many.queries <= most,
        "beside {FEW} {few:?}, beside {MANY} {many:?}"
    );
}

/// What the registration of one model more reads beside so many others, from its job up to the last mark.
async fn registration(others: usize) -> Reads {
    let bed = beside(others).await;
    let generator = bed.generator(quick());
    generator
        .publisher()
        .publish_all()
        .await
        .expect("publishes");
    generator.plan().await.expect("plans");
    let before = bed.registry.reads();
    let job = bed
        .submit("next", &model(SEED + 1), &validation(SEED))
        .await;
    generator.run(&claim(&bed).await).await.expect("registers");
    let state = bed.registry.job(&job.job.id).await.expect("exists").state;
    assert_eq!(state, JobState::Succeeded);
    between(before, bed.registry.reads())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_reads_nothing_of_other_applications() {
    let few = registration(FEW).await;
    let many = registration(MANY).await;
    similar(few, many);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_and_a_change_of_resources_read_nothing_of_other_applications() {
    let mut reads = Vec::new();
    for others in [FEW, MANY] {
        let bed = beside(others).await;
        let publisher = bed.generator(quick()).publisher().clone();
        publisher.publish_all().await.expect("publishes");
        let before = bed.registry.reads();
        let application = bed.model("other-1").await.application;
        publisher
            .show_application(&application)
            .await
            .expect("shows");
        let model = ModelId::new("other-2").expect("valid");
        publisher.retire_model(&model).await.expect("retires");
        reads.push(between(before, bed.registry.reads()));
        assert_eq!(bed.visible().await.len(), 9 + others - 1);
    }
    assert_eq!(reads[0], reads[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_reads_each_variant_once() {
    let mut rows = Vec::new();
    for others in [FEW, MANY] {
        let bed = beside(others).await;
        let generator = bed.generator(quick());
        let published = generator.publisher().publish_all().await;
        assert_eq!(published.expect("publishes"), 9 + others);
        let before = bed.registry.reads();
        // A retirement that is followed says that whatever keeps it published has begun.
        let id = VariantId::new("other-1-ort").expect("valid");
        let followed = async {
            bed.metadata.retire_variant(&id).await.expect("retires");
            let mut looks = tokio::time::interval(Duration::from_millis(2));
            while !bed.visible().await.contains(&id.to_string()) {
                looks.tick().await;
            }
        };
        tokio::select! {
            kept = generator.publisher().keep_published() => panic!("it ended: {kept:?}"),
            followed = tokio::time::timeout(PATIENCE, followed) => followed.expect("it is followed"),
        }
        rows.push(between(before, bed.registry.reads()).rows);
    }
    // The variant, its application before and after it is shown, and the names of what is ready.
    assert!(rows.iter().all(|rows| *rows <= 4), "{rows:?}");
}

/// What the plan for an engine that comes later reads, and one of the extensions.
async fn extension(others: usize) -> (u64, Reads) {
    let bed = beside(others).await;
    let generator = Generator::new(
        bed.stores(),
        vec![Arc::new(RenamedEngine::second())],
        extending(),
    );
    generator
        .publisher()
        .publish_all()
        .await
        .expect("publishes");
    let before = bed.registry.reads();
    generator.plan().await.expect("plans");
    let planned = between(before, bed.registry.reads());
    let engine = EngineName("later-gpu".to_owned());
    // The models differ in what was measured of them: always the same one.
    let job = loop {
        let what = (JobKind::Extend, &engine);
        let claimed = bed.registry.claim_for(what, OWNER, 60_000, 5).await;
        let job = claimed.expect("claims").expect("there is one");
        if job
            .model
            .as_ref()
            .is_some_and(|model| model.as_str() == "m")
        {
            break Some(job);
        }
    };
    let before = bed.registry.reads();
    let extended = generator.run(&held(job)).await;
    extended.expect("extends");
    (planned.queries, between(before, bed.registry.reads()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_reads_nothing_of_other_models_and_a_plan_each_once() {
    let (few_planned, few) = extension(FEW).await;
    let (many_planned, many) = extension(MANY).await;
    similar(few, many);
    let (few, many) = (FEW as u64 + 1, MANY as u64 + 1);
    // What is read for a model, to decide and to store what was decided.
    let each = (many_planned - few_planned) / (many - few);
    assert!(each <= 10, "{each} queries for a model");
    assert!(many_planned <= each * many + 10, "{many_planned}");
}
