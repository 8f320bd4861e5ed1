//! A fault is reported once, with a code, and disturbs nothing else.

use std::collections::HashSet;

use sextant_rpc::InferError;
use sextant_types::{Code, Isolation};

use super::{
    double::{FAILS, LOSES, PANICS, REFUSED, SPLITS, VANISHES},
    *,
};

const KINDS: [Kind; 3] = [Kind::Cpu, Kind::Dedicated, Kind::Staged];

/// Outputs of each part, or its error.
fn answers(result: BatchResult) -> Vec<Result<Vec<f32>, InferError>> {
    let values = |outputs: Vec<Tensor>| outputs[0].to_vec::<f32>().unwrap();
    let outputs = result.outputs.into_iter();
    outputs.map(|part| part.map(values)).collect()
}

/// The code that a client receives.
fn client_code(error: &InferError) -> Code {
    match error {
        InferError::Failed { code, .. } => *code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_has_its_outputs() {
    for kind in KINDS {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        let sent = world.send("m-a", vec![row(3, 2), row(4, 2)], now());
        assert_eq!(answers(sent.ok()), [Ok(vec![6.0; 2]), Ok(vec![8.0; 2])]);
        assert_eq!(world.record.keys(Step::Exec), [3], "together");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_cannot_share_a_run_run_one_by_one() {
    for kind in KINDS {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        let sent = world.send("m-a", vec![row(3, 2), row(4, 5)], now());
        assert_eq!(answers(sent.ok()), [Ok(vec![6.0; 2]), Ok(vec![8.0; 5])]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_which_nobody_knows_whose_they_are_are_run_again_one_by_one() {
    for odd in [SPLITS, VANISHES] {
        let world = World::with(Kind::Cpu, config()).await;
        world.loaded("m-a").await;
        let own = match odd {
            SPLITS => vec![2.0 * odd as f32; 4],
            _ => Vec::new(),
        };
        let sent = world.send("m-a", vec![row(3, 2), row(odd, 2), row(4, 2)], now());
        let wanted = [Ok(vec![6.0; 2]), Ok(own), Ok(vec![8.0; 2])];
        assert_eq!(answers(sent.ok()), wanted);
        // Later parts run one by one: an equal number of rows by chance would give one query's rows to another.
        let sent = world.send("m-a", vec![row(SPLITS, 2), row(VANISHES, 2)], now());
        let wanted = [Ok(vec![2.0 * SPLITS as f32; 4]), Ok(Vec::new())];
        assert_eq!(answers(sent.ok()), wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_on_a_device_of_which_nobody_knows_whose_they_are_answer_nobody() {
    let world = World::with(Kind::Staged, config()).await;
    world.loaded("m-a").await;
    let parts = vec![row(3, 2), row(SPLITS, 2)];
    let error = world.send("m-a", parts.clone(), now()).error();
    assert_eq!(client_code(&error), Code::EngineFailed);
    let wanted = [Ok(vec![6.0; 2]), Ok(vec![2.0 * SPLITS as f32; 4])];
    assert_eq!(answers(world.send("m-a", parts, now()).ok()), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_a_variant_that_keeps_them_apart_have_runs_of_their_own() {
    for kind in KINDS {
        let world = World::with(kind, config()).await;
        let mut variant = (*world.variant("m-a", "1", 100).await).clone();
        variant.keep_apart("its scales are those of a batch".to_owned());
        world.load(&Arc::new(variant)).await.unwrap();
        let sent = world.send("m-a", vec![row(3, 2), row(4, 2)], now());
        assert_eq!(answers(sent.ok()), [Ok(vec![6.0; 2]), Ok(vec![8.0; 2])]);
        assert_eq!(world.record.keys(Step::Exec), [3, 4], "one by one");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_spoils_no_other() {
    for (kind, bad) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, FAILS), (kind, PANICS)])
    {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        let parts = vec![row(3, 2), row(bad, 2), row(4, 2)];
        let answers = answers(world.send("m-a", parts, now()).ok());
        assert_eq!(answers[0], Ok(vec![6.0; 2]));
        assert!(
            answers[1]
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("on purpose")
        );
        assert_eq!(answers[2], Ok(vec![8.0; 2]));
        let alone = world.infer("m-a", bad, now()).error();
        assert_eq!(alone.code(), "failed", "{alone}");
        world.infer("m-a", 5, now()).ok();
    }
}

/// A query that is itself wrong is refused alike alone and in a shared batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_query_is_refused_alike_alone_and_in_company() {
    for kind in KINDS {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        let alone = world.infer("m-a", REFUSED, now()).error();
        assert_eq!(alone.code(), "bad_shape", "{alone}");
        let parts = vec![row(3, 2), row(REFUSED, 2), row(4, 2)];
        let answers = answers(world.send("m-a", parts, now()).ok());
        assert_eq!(answers, [Ok(vec![6.0; 2]), Err(alone), Ok(vec![8.0; 2])]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_the_model_does_not_take_never_reach_it() {
    for kind in KINDS {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        let misnamed = || {
            let mut part = row(1, 2);
            part[0].name = "z".to_owned();
            part
        };
        for parts in [vec![], vec![misnamed()], vec![vec![], misnamed()]] {
            assert_eq!(world.send("m-a", parts, now()).error().code(), "bad_shape");
        }
        assert_eq!(world.record.calls(Step::Exec).len(), 0);
        let parts = vec![row(3, 2), misnamed(), row(4, 2)];
        let answers = answers(world.send("m-a", parts, now()).ok());
        assert_eq!(answers[0], Ok(vec![6.0; 2]));
        assert!(answers[1].as_ref().unwrap_err().to_string().contains("`z`"));
        assert_eq!(answers[2], Ok(vec![8.0; 2]));
        assert_eq!(world.record.calls(Step::Exec).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_come_back_is_given_up_alone() {
    for kind in KINDS {
        let mut world = World::with(kind, impatient()).await;
        let (_stop, _service) = world.serve();
        let stuck = world.loaded("m-1").await;
        world.loaded("m-2").await;
        world.record.hold(Step::Exec, Some(1));
        let hanging = world.infer("m-1", 1, now());
        world.record.begun(Step::Exec, 1).await;
        let behind = world.infer("m-2", 2, now());
        assert_eq!(hanging.error().code(), "lost");
        behind.ok();
        world.reaches(&stuck, InstanceState::Failed).await;
        assert_eq!(world.infer("m-1", 3, now()).error().code(), "not_loaded");
        assert_eq!(world.used(), 400, "the engine still has its memory");
        world.record.release(Step::Exec);
        until(|| world.used() == 200).await;
        world.load(&stuck).await.unwrap();
        world.infer("m-1", 4, now()).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_can_be_ended_costs_its_query_alone() {
    for kind in [Kind::Cpu, Kind::Dedicated] {
        let mut world = World::with(kind, impatient()).await;
        let (_stop, _service) = world.serve();
        world.record.heed();
        let variant = world.loaded("m-1").await;
        let threads = || {
            let calls = world.record.calls(Step::Exec).into_iter();
            calls.map(|call| call.thread).collect::<HashSet<_>>().len()
        };
        world.record.hold(Step::Exec, Some(1));
        for _ in 0..5 {
            let error = world.infer("m-1", 1, now()).error();
            assert_eq!(client_code(&error), Code::TimeExceeded, "{error}");
            world.infer("m-1", 2, now()).ok();
        }
        // Other parts of the same batch are answered: their runs have time limits of their own.
        let parts = vec![row(1, 2), row(2, 2), row(3, 2)];
        let answers = answers(world.send("m-1", parts, now()).ok());
        let fault = answers[0].as_ref().unwrap_err();
        assert_eq!(client_code(fault), Code::TimeExceeded, "{fault}");
        assert_eq!(answers[1..], [Ok(vec![4.0; 2]), Ok(vec![6.0; 2])]);
        assert_eq!(threads(), 1, "no thread was given up");
        assert_ne!(world.state(&variant).await, Some(InstanceState::Failed));
    }
}

/// On a busy machine even a killed process takes a while to end.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_engines_own_process_may_take_long() {
    // A killed process has twelve times as long.
    let end_grace = Duration::from_millis(500);
    let mut config = impatient();
    config.isolated = IsolationPolicy::Everything;
    config.watchdog.end_grace = end_grace;
    let mut world = World::with(Kind::Cpu, config).await;
    let (_stop, _service) = world.serve();
    world.record.heed();
    world.record.dally();
    let variant = world.loaded("m-1").await;
    world.record.hold(Step::Exec, Some(1));
    let killed = world.infer("m-1", 1, now());
    until(|| world.record.is_asked(1)).await;
    let asked = Instant::now();
    until(|| asked.elapsed() > 3 * end_grace).await;
    assert!(killed.is_pending());
    world.record.release(Step::Exec);
    assert_eq!(client_code(&killed.error()), Code::TimeExceeded);
    assert_ne!(world.state(&variant).await, Some(InstanceState::Failed));
    world.infer("m-1", 2, now()).ok();
}

/// The engines of a GPU have no process that can be killed, whatever the application's policy says. So the watchdog
/// waits for its run no longer than for others, and the batches behind it go on.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_isolated_and_cannot_be_has_no_more_grace() {
    let mut config = impatient();
    // The grace of a killed process, twelve times as long, would exceed this test's wait.
    config.watchdog.end_grace = Duration::from_secs(2);
    let mut world = World::with(Kind::Dedicated, config).await;
    let (_stop, _service) = world.serve();
    world.record.heed();
    world.record.dally();
    let mut variant = world.variant("m-1", "m-1", 200).await;
    Arc::make_mut(&mut variant).resources.isolation = Some(Isolation::Process);
    world.load(&variant).await.unwrap();
    world.loaded("m-2").await;
    world.record.hold(Step::Exec, Some(1));
    let hanging = world.infer("m-1", 1, now());
    world.record.begun(Step::Exec, 1).await;
    let behind = world.infer("m-2", 2, now());
    assert_eq!(hanging.error().code(), "lost");
    behind.ok();
    world.record.release(Step::Exec);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_and_outputs_that_do_not_come_back_are_given_up() {
    for step in [Step::Input, Step::Output] {
        let world = World::with(Kind::Staged, impatient()).await;
        world.loaded("m-1").await;
        world.loaded("m-2").await;
        // First on the EXEC thread of an idle device, then on the IO thread during a run.
        world.record.hold(step, Some(1));
        assert_eq!(world.infer("m-1", 1, now()).error().code(), "lost");
        world.infer("m-2", 2, now()).ok();
        world.record.release(step);
        until(|| world.used() == 200).await;
        world.loaded("m-3").await;
        world.record.hold(step, Some(3));
        let sent: Vec<_> = [4, 5, 3, 6, 7]
            .map(|key| world.infer(if key == 3 { "m-3" } else { "m-2" }, key, now()))
            .into_iter()
            .collect();
        for (number, outcome) in sent.into_iter().enumerate() {
            let outcome = outcome.get().map(drop).map_err(|error| error.code());
            assert_eq!(outcome, if number == 2 { Err("lost") } else { Ok(()) });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_engine_takes_its_instance_with_it() {
    for kind in KINDS {
        let mut world = World::with(kind, config()).await;
        let (_stop, _service) = world.serve();
        let lost = world.loaded("m-1").await;
        world.loaded("m-2").await;
        let sent = world.send("m-1", vec![row(LOSES, 2), row(1, 2)], now());
        let error = sent.error();
        assert_eq!(error.code(), "lost");
        assert!(error.to_string().contains("on purpose"), "{error}");
        world.reaches(&lost, InstanceState::Failed).await;
        until(|| world.used() == 200).await;
        world.infer("m-2", 2, now()).ok();
        world.load(&lost).await.unwrap();
        assert_eq!(world.state(&lost).await, Some(InstanceState::Active));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_only_panics_is_given_up() {
    let mut world = World::new().await;
    let (_stop, _service) = world.serve();
    let variant = world.loaded("m-a").await;
    let panics = |runs: usize| {
        let codes = (0..runs).map(|_| world.infer("m-a", PANICS, now()).error().code());
        codes.collect::<Vec<_>>()
    };
    assert_eq!(panics(19), ["failed"; 19]);
    world.infer("m-a", 1, now()).ok();
    assert_eq!(panics(19), ["failed"; 19], "a success forgives");
    assert_eq!(panics(2), ["lost", "not_loaded"]);
    world.reaches(&variant, InstanceState::Failed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_load_is_a_state_with_a_reason_and_can_be_tried_again() {
    let world = World::new().await;
    let missing = variant("m-a", Digest::from_bytes([7; 32]), 200);
    assert_eq!(world.load(&missing).await.unwrap_err().code(), "unknown");
    assert_eq!(world.state(&missing).await, Some(InstanceState::Failed));
    for file in ["broken", "panics"] {
        let bad = world.variant("m-a", file, 200).await;
        let error = world.load(&bad).await.unwrap_err();
        assert_eq!(error.code(), "failed");
        assert!(error.to_string().contains("on purpose"), "{error}");
        assert_eq!(world.state(&bad).await, Some(InstanceState::Failed));
        assert_eq!(world.used(), 0);
    }
    let mut foreign = Variant::clone(&*world.variant("m-b", "b", 200).await);
    foreign.spec.engine = EngineName("other".to_owned());
    let error = world.load(&Arc::new(foreign)).await.unwrap_err();
    assert_eq!(error.code(), "unknown");
    assert!(error.to_string().contains("`other`"), "{error}");
    let found = world.variant("m-a", "a", 200).await;
    world.load(&found).await.unwrap();
    assert_eq!(world.state(&found).await, Some(InstanceState::Active));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artefact_that_is_not_what_its_digest_says_is_not_loaded() {
    let world = World::new().await;
    let variant = world.variant("m-a", "the right bytes", 200).await;
    let name = variant.artefact.to_string();
    let mut folders = vec![world.folder.path().to_path_buf()];
    let mut spoilt = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|it| *it == *name) {
                std::fs::remove_file(&path).unwrap();
                std::fs::write(&path, "the wrong bytes").unwrap();
                spoilt += 1;
            }
        }
    }
    assert_eq!(spoilt, 1);
    let error = world.load(&variant).await.unwrap_err();
    assert_eq!(error.code(), "failed");
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(world.record.calls(Step::Load).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_does_not_come_back_is_given_up_alone() {
    let world = World::with(Kind::Cpu, impatient()).await;
    world.record.hold(Step::Load, Some(1));
    let stuck = world.variant("m-1", "m-1", 200).await;
    let hanging = world.loading(Load::at_once(Arc::clone(&stuck)));
    world.record.begun(Step::Load, 1).await;
    let other = world.variant("m-2", "m-2", 200).await;
    let behind = world.loading(Load::at_once(other));
    assert_eq!(hanging.await.unwrap().unwrap_err().code(), "failed");
    behind.await.unwrap().unwrap();
    assert_eq!(world.state(&stuck).await, Some(InstanceState::Failed));
    assert_eq!(world.used(), 400, "the engine still has its memory");
    world.record.release(Step::Load);
    until(|| world.used() == 200).await;
    world.load(&stuck).await.unwrap();
}
