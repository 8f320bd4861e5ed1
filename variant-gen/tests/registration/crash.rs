//! Each step interrupted and failed at each of its moments.

use std::{collections::BTreeSet, future::Future, sync::Arc, task::Poll, time::Duration};

use sextant_isolation::Program;
use sextant_registry::{Act, JobState, ModelStatus, VersionChange};
use sextant_types::{Code, ModelId, Stage, Variant};
use sextant_variant_gen::{
    Config, Error, Isolation, Publisher, RegistrationService, checkpoint::Phase, step,
};

use crate::bed::{Action, Bed, STEPS, Trap, model, quick, unmeasured, validation};

const SEED: u64 = 7;

async fn undisturbed() -> Vec<Variant> {
    let bed = Bed::new().await;
    bed.register_well("m", &model(SEED), &validation(SEED))
        .await;
    bed.variants("m")
        .await
        .into_iter()
        .map(unmeasured)
        .collect()
}

fn moments() -> impl Iterator<Item = (&'static str, Phase)> {
    STEPS
        .into_iter()
        .flat_map(|step| Phase::ALL.map(|phase| (step, phase)))
}

/// A crash after the work and before its result is stored makes the step run twice; one after
/// that must not make it run again. Either way nothing differs in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_killed_at_any_moment_is_completed_by_the_next_process() {
    let wanted = undisturbed().await;
    assert_eq!(wanted.len(), 9, "3 configurations, batches of 1, 2 and 4");
    for (step, phase) in moments() {
        let mut bed = Bed::new().await;
        let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
        let trap = Trap::new(step, phase, Action::Hang);
        let service = RegistrationService::new(bed.watched(quick(), trap.clone()), "killed");
        tokio::select! {
            () = service.run(std::future::pending()) => unreachable!("it is never stopped"),
            () = trap.reached.notified() => {}
        }
        let ended = step == "publish" && phase == Phase::Stored;
        if !ended {
            assert!(bed.variants("m").await.is_empty(), "{step} {phase:?}");
        }
        bed.restart().await;
        let generator = bed.generator(quick());
        let published = generator
            .publisher()
            .publish_all()
            .await
            .expect("publishes");
        assert_eq!(published, if ended { 9 } else { 0 }, "{step} {phase:?}");
        let job = bed.run_to_end(generator, &job.id).await;
        assert_eq!(
            job.state,
            JobState::Succeeded,
            "{step} {phase:?}: {:?}",
            job.error
        );
        let variants = bed.variants("m").await;
        let visible = bed.visible().await;
        let names: Vec<String> = variants.iter().map(|it| it.id.to_string()).collect();
        assert_eq!(visible, names, "{step} {phase:?}");
        let variants: Vec<Variant> = variants.into_iter().map(unmeasured).collect();
        assert_eq!(variants, wanted, "{step} {phase:?}");
        assert_eq!(bed.model("m").await.status, ModelStatus::Ready);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_any_moment_leaves_nothing_behind_and_the_name_free() {
    for (step, phase) in moments() {
        let ended = step == "publish" && phase == Phase::Stored;
        if ended {
            continue;
        }
        let bed = Bed::new().await;
        let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
        let fault = || Error::Panicked("injected".to_owned());
        let trap = Trap::new(step, phase, Action::Fail(1, fault));
        let generator = bed.watched(quick(), trap);
        let job = bed.run_to_end(generator, &job.id).await;
        assert_eq!(job.state, JobState::Failed, "{step} {phase:?}");
        let failed = bed.model("m").await;
        assert_eq!(failed.status, ModelStatus::Failed);
        let code = failed.error.map(|failure| failure.code);
        assert_eq!(code, Some(Code::Internal), "{step} {phase:?}");
        assert!(bed.variants("m").await.is_empty(), "{step} {phase:?}");
        assert!(bed.visible().await.is_empty(), "{step} {phase:?}");
        bed.register_well("m", &model(SEED + 1), &validation(SEED))
            .await;
        assert_eq!(bed.visible().await.len(), 9);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_for_a_while_is_tried_again() {
    let fault = || {
        Error::Metadata(sextant_metadata::Error::Unavailable {
            reason: "injected".to_owned(),
        })
    };
    for (step, phase) in moments() {
        let bed = Bed::new().await;
        let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
        let trap = Trap::new(step, phase, Action::Fail(8, fault));
        let job = bed.run_to_end(bed.watched(quick(), trap), &job.id).await;
        assert_eq!(
            job.state,
            JobState::Succeeded,
            "{step} {phase:?}: {:?}",
            job.error
        );
        assert_eq!(bed.visible().await.len(), 9, "{step} {phase:?}");
    }
    let bed = Bed::new().await;
    let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
    let trap = Trap::new("generate:fp32", Phase::Begin, Action::Fail(u32::MAX, fault));
    let config = Config {
        store_patience: Duration::ZERO,
        ..quick()
    };
    let job = bed.run_to_end(bed.watched(config, trap), &job.id).await;
    assert_eq!(
        job.error.map(|failure| failure.code),
        Some(Code::Unavailable)
    );
}

/// An engine that takes the whole process down cannot say so: what was begun too often is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_ends_the_process_again_and_again_is_left_out() {
    let mut bed = Bed::new().await;
    let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
    for _ in 0..quick().starts {
        let trap = Trap::new("measure:ort-int8d-all-t1", Phase::Worked, Action::Hang);
        let service = RegistrationService::new(bed.watched(quick(), trap.clone()), "killed");
        tokio::select! {
            () = service.run(std::future::pending()) => unreachable!("it is never stopped"),
            () = trap.reached.notified() => {}
        }
        bed.restart().await;
    }
    let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded);
    let result = job.result.expect("a summary");
    let reason = result["skipped"]["ort-int8d-all-t1"]
        .as_str()
        .expect("a reason");
    assert!(reason.contains("ended `3` times"), "{reason}");
    assert_eq!(bed.visible().await.len(), 6);
}

/// The same of what comes before: no step takes the process down without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_that_end_the_process_again_and_again_are_not_begun_for_ever() {
    for (step, succeeds) in [("inspect", false), ("generate:int8d", true)] {
        let mut bed = Bed::new().await;
        let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
        for _ in 0..quick().starts {
            let trap = Trap::new(step, Phase::Worked, Action::Hang);
            let service = RegistrationService::new(bed.watched(quick(), trap.clone()), "killed");
            tokio::select! {
                () = service.run(std::future::pending()) => unreachable!("it is never stopped"),
                () = trap.reached.notified() => {}
            }
            bed.restart().await;
        }
        let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
        let state = match succeeds {
            true => JobState::Succeeded,
            false => JobState::Failed,
        };
        assert_eq!(job.state, state, "{step}: {:?}", job.error);
        assert_eq!(bed.visible().await.is_empty(), !succeeds, "{step}");
    }
}

/// Isolation by a program that is not there, for no engine.
fn isolated() -> Config {
    let program = Program {
        program: "/nowhere".into(),
        arguments: Vec::new(),
        memory_bytes: 1 << 30,
    };
    Config {
        isolation: Some(Isolation {
            program,
            engines: Vec::new(),
            longest_step: Duration::from_secs(60),
            longest_configuration: Duration::from_secs(600),
        }),
        ..quick()
    }
}

/// Returns once a step is noted to have been begun so often.
async fn noted(bed: &Bed, step: &str, starts: u32) {
    let (id, mark) = (ModelId::new("m").expect("valid"), step::begun(step));
    loop {
        let steps = bed.registry.steps(&id).await.expect("reads");
        let noted = steps.iter().find(|it| it.name == mark);
        if noted.is_some_and(|it| it.result["starts"] == starts) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Where engines are isolated, the end of the process is held against a step that made it grow by much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_takes_all_memory_is_not_begun_for_ever() {
    const MEMORY_BYTES: usize = 1 << 30;
    let step = "generate:int8d";
    let mut bed = Bed::new().await;
    let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
    let inspected = Trap::new("generate:fp32", Phase::Begin, Action::Hang);
    let service = RegistrationService::new(bed.watched(quick(), inspected.clone()), "killed");
    tokio::select! {
        () = service.run(std::future::pending()) => unreachable!("it is never stopped"),
        () = inspected.reached.notified() => {}
    }
    bed.restart().await;
    for starts in 1..=quick().starts {
        let trap = Trap::new(step, Phase::Worked, Action::Hang);
        let service = RegistrationService::new(bed.watched(isolated(), trap.clone()), "killed");
        let grows = async {
            trap.reached.notified().await;
            let memory = std::hint::black_box(vec![1u8; MEMORY_BYTES]);
            noted(&bed, step, starts).await;
            drop(memory);
        };
        tokio::select! {
            () = service.run(std::future::pending()) => unreachable!("it is never stopped"),
            () = grows => {}
        }
        bed.restart().await;
    }
    let job = bed.run_to_end(bed.generator(isolated()), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let visible = bed.visible().await;
    let are_left = |precision: &str| visible.iter().any(|name| name.contains(precision));
    assert!(are_left("-fp32-") && !are_left("-int8d-"), "{visible:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_cancelled_stops_and_shows_nothing() {
    for (step, phase) in [
        ("measure:ort-fp32-all-t1", Phase::Worked),
        ("publish", Phase::Worked),
    ] {
        let bed = Bed::new().await;
        let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
        let trap = Trap::new(step, phase, Action::Hang);
        let service = RegistrationService::new(bed.watched(quick(), trap.clone()), "held");
        let settled = service.settled();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(service.run(async move {
            stopped.await.ok();
        }));
        trap.reached.notified().await;
        bed.registry.cancel(&job.id, 3).await.expect("cancels");
        // The service goes on with the next job, which passes the trap.
        *trap.action.lock().expect("not poisoned") = Action::Fail(0, || unreachable!());
        let next = bed.submit("n", &model(SEED), &validation(SEED)).await.job;
        assert_eq!(
            bed.ended(&next.id, settled).await.state,
            JobState::Succeeded
        );
        let visible = bed.visible().await;
        assert!(
            visible.iter().all(|name| name.starts_with("n-")),
            "{visible:?}"
        );
        assert_eq!(visible.len(), 9);
        assert_eq!(bed.model("m").await.status, ModelStatus::Failed);
        stop.send(()).expect("runs");
        running.await.expect("ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_given_back_on_shutdown() {
    let bed = Bed::new().await;
    let job = bed.submit("m", &model(SEED), &validation(SEED)).await.job;
    let trap = Trap::new("generate:int8s", Phase::Worked, Action::Hang);
    let watching: Arc<Trap> = trap.clone();
    let service = RegistrationService::new(bed.watched(quick(), trap), "stopped");
    service
        .run(async move { watching.reached.notified().await })
        .await;
    let given_back = bed.registry.job(&job.id).await.expect("exists");
    assert_eq!(given_back.state, JobState::Queued);
    assert_eq!(
        (given_back.progress_done, given_back.progress_total),
        (3, 8)
    );
    assert_eq!(given_back.step, "generate:int8s");
    let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded);
}

/// What `work` comes to within so many polls; it is dropped where it takes more, as by a crash.
async fn within<T>(polls: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Whatever an interrupted deletion has done, the next one does the rest, although the model may be
/// gone for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_stopped_anywhere_is_completed_by_the_next_one() {
    let bed = Bed::new().await;
    bed.register_well("kept", &model(SEED + 1), &validation(SEED))
        .await;
    let kept = bed.visible().await;
    let id = ModelId::new("m").expect("valid");
    // Between the two stores: the rows are gone, and nothing has been withdrawn.
    bed.register_well("m", &model(SEED), &validation(SEED))
        .await;
    bed.registry.delete_model(&id, 5).await.expect("deletes");
    assert!(bed.visible().await.len() > kept.len());
    let publisher = Publisher::new(bed.registry.clone(), Arc::clone(&bed.metadata));
    let again = publisher.retire_model(&id).await.expect_err("it is gone");
    assert_eq!(again.code(), Code::ModelNotFound);
    assert_eq!(bed.visible().await, kept);
    let mut polls = 1;
    loop {
        bed.register_well("m", &model(SEED), &validation(SEED))
            .await;
        let publisher = Publisher::new(bed.registry.clone(), Arc::clone(&bed.metadata));
        let stopped = within(polls, publisher.retire_model(&id)).await;
        let is_registered = bed.registry.model(&id).await.is_ok();
        // Another process: nobody's turn is left over.
        let next = Publisher::new(bed.registry.clone(), Arc::clone(&bed.metadata));
        match next.retire_model(&id).await {
            Ok(retired) => assert!(is_registered && !retired.is_empty(), "{polls}"),
            Err(error) => {
                assert_eq!(error.code(), Code::ModelNotFound, "{polls}: {error}");
                assert!(!is_registered, "{polls}");
            }
        }
        assert_eq!(bed.visible().await, kept, "{polls}");
        assert!(bed.variants("m").await.is_empty(), "{polls}");
        if let Some(done) = stopped {
            assert!(done.is_ok(), "{done:?}");
            break;
        }
        polls += 1;
    }
}

/// Whichever moment of showing the versions another process switches them at, the switch is shown in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_while_another_process_shows_the_versions_is_shown() {
    let bed = Bed::new().await;
    for seed in [SEED, SEED + 1] {
        bed.register_well("m", &model(seed), &validation(SEED))
            .await;
    }
    let application = bed.model("m").await.application;
    let (mut next, mut current) = ("m.v2", "m");
    let mut polls = 1;
    loop {
        let publisher = || Publisher::new(bed.registry.clone(), Arc::clone(&bed.metadata));
        let (here, there) = (publisher(), publisher());
        let mut showing = std::pin::pin!(here.show_application(&application));
        let ended = within(polls, showing.as_mut()).await.is_some();
        let change = VersionChange {
            model: ModelId::new(next).expect("valid"),
            act: Act::To(Stage::Current),
            rules: None,
            seen: None,
            since_ms: None,
        };
        let switched = bed.registry.change_version(&change, 5).await;
        switched.expect("switches");
        there.show_application(&application).await.expect("shows");
        if !ended {
            showing.await.expect("shows");
        }
        let variants = bed.metadata.variants().await.expect("reads");
        let shown = variants
            .iter()
            .filter(|it| it.release.stage == Stage::Current);
        let shown: BTreeSet<&str> = shown.map(|it| it.model.as_str()).collect();
        assert_eq!(shown, BTreeSet::from([next]), "{polls}");
        if ended {
            break;
        }
        std::mem::swap(&mut next, &mut current);
        polls += 1;
    }
}
