//! A loaded variant moves to another process when its application's policy changes.

use sextant_metadata::{Command, Transition};
use sextant_types::Isolation;

use super::*;
use crate::double::ISOLATED;

/// The same variant with the policy that it runs in a process of its own.
fn isolated(variant: &Variant) -> Arc<Variant> {
    let mut variant = variant.clone();
    variant.resources.isolation = Some(Isolation::Process);
    Arc::new(variant)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_answers_while_it_changes_its_process() {
    let world = World::new().await;
    let here = world.loaded("m-1").await;
    // The condition of the first instance does not apply to the second one.
    let overload = Transition {
        key: InstanceKey::new(here.id.clone(), WorkerId::new("w").unwrap()),
        application: here.application.clone(),
        expected_version: None,
        command: Command::Overload,
    };
    world.metadata.transition(&overload, 1).await.unwrap();
    world.record.hold(Step::Load, None);
    let elsewhere = isolated(&here);
    let loading = world.loading(Load::at_once(Arc::clone(&elsewhere)));
    world.record.begun(Step::Load, ISOLATED + 1).await;
    assert_eq!(world.used(), 400, "both are there");
    world.infer("m-1", 1, now()).ok();
    assert_eq!(world.state(&here).await, Some(InstanceState::Overloaded));
    world.record.release(Step::Load);
    loading.await.unwrap().unwrap();
    assert_eq!(world.used(), 200);
    assert_eq!(world.state(&here).await, Some(InstanceState::Active));
    world.infer("m-1", 2, now()).ok();
    world.load(&elsewhere).await.unwrap();
    assert_eq!(world.record.keys(Step::Load), [1, ISOLATED + 1]);
    world.load(&here).await.unwrap();
    assert_eq!(world.record.keys(Step::Load), [1, ISOLATED + 1, 1]);
    world.infer("m-1", 3, now()).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_run_end_where_they_began() {
    let mut config = config();
    config.cores = 2;
    let world = World::with(Kind::Cpu, config).await;
    let here = world.loaded("m-1").await;
    world.record.hold(Step::Exec, Some(1));
    let running = world.infer("m-1", 1, now());
    world.record.begun(Step::Exec, 1).await;
    let loading = world.loading(Load::at_once(isolated(&here)));
    world.record.count(Step::Load, 2).await;
    world.infer("m-1", 2, now()).ok();
    assert!(running.is_pending() && !loading.is_finished());
    world.record.release(Step::Exec);
    running.ok();
    loading.await.unwrap().unwrap();
    assert_eq!(world.used(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_room_beside_itself_is_unloaded_first() {
    let world = World::new().await;
    let here = world.variant("m-1", "m-1", 600).await;
    world.load(&here).await.unwrap();
    world.record.hold(Step::Load, None);
    let loading = world.loading(Load::at_once(isolated(&here)));
    world.record.begun(Step::Load, ISOLATED + 1).await;
    assert_eq!(world.state(&here).await, Some(InstanceState::Loading));
    assert_eq!(world.infer("m-1", 1, now()).error().code(), "not_loaded");
    world.record.release(Step::Load);
    loading.await.unwrap().unwrap();
    assert_eq!(world.used(), 600);
    world.infer("m-1", 2, now()).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_elsewhere_does_not_go_on_where_it_is() {
    let world = World::new().await;
    let here = world.variant("m-1", "only here 1", 200).await;
    world.load(&here).await.unwrap();
    let failed = world.load(&isolated(&here)).await.unwrap_err();
    assert_eq!(failed.code(), "failed");
    assert_eq!(world.state(&here).await, Some(InstanceState::Inactive));
    assert_eq!(world.used(), 0);
    assert_eq!(world.infer("m-1", 1, now()).error().code(), "not_loaded");
}

/// The sender does not know that the variant was unloaded meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_window_brings_nothing_back() {
    let world = World::new().await;
    let here = world.loaded("m-1").await;
    let renew = |variant: Arc<Variant>| Load {
        latest: Some(Instant::now()),
        ..Load::at_once(variant)
    };
    let elsewhere = isolated(&here);
    world
        .worker
        .load(renew(Arc::clone(&elsewhere)))
        .await
        .unwrap();
    assert_eq!(world.record.keys(Step::Load), [1, ISOLATED + 1]);
    world.worker.unload(&here.id).await.unwrap();
    let late = world.worker.load(renew(elsewhere)).await.unwrap_err();
    assert_eq!(late.code(), "too_late");
    assert_eq!(world.used(), 0);
}

/// Neither file is an ONNX file. The process that reads a file notices that.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_reads_nothing_of_a_large_file_that_another_process_loads() {
    let mut config = config();
    config.map_from_bytes = 1;
    let world = World::with(Kind::Cpu, config).await;
    let variant = world.variant("m-1", "m-1", 200).await;
    let elsewhere = isolated(&variant);
    world.load(&elsewhere).await.unwrap();
    assert_eq!(world.record.keys(Step::Load), [ISOLATED + 1]);
    world.infer("m-1", 1, now()).ok();
    let here = world.variant("m-2", "m-2", 200).await;
    let failed = world.load(&here).await.unwrap_err();
    assert_eq!(failed.code(), "failed");
    assert_eq!(world.record.keys(Step::Load), [ISOLATED + 1]);
}
