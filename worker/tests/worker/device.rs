//! What may overlap on a device, and what may not.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_its_own_runs_one_batch_at_a_time() {
    for kind in [Kind::Dedicated, Kind::Staged] {
        let world = World::with(
            kind,
            Config {
                cores: 4,
                ..config()
            },
        )
        .await;
        assert_eq!(world.worker.info().cores, 1);
        assert_eq!(
            world.worker.info().engines,
            [EngineName("double".to_owned())]
        );
        world.loaded("m-a").await;
        let sent: Vec<_> = (0..200).map(|key| world.infer("m-a", key, now())).collect();
        for (key, outcome) in sent.into_iter().enumerate() {
            let outputs = outcome.ok().outputs.remove(0).unwrap();
            assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [2.0 * key as f32; 2]);
        }
        let calls = world.record.calls(Step::Exec);
        assert_eq!(calls.len(), 200);
        assert!(
            calls
                .windows(2)
                .all(|two| two[0].ended.unwrap() <= two[1].begun)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cpu_runs_as_many_batches_as_it_has_cores() {
    let world = World::with(
        Kind::Cpu,
        Config {
            cores: 2,
            ..config()
        },
    )
    .await;
    world.loaded("m-a").await;
    world.record.hold(Step::Exec, None);
    let sent: Vec<_> = (0..3).map(|key| world.infer("m-a", key, now())).collect();
    world.record.count(Step::Exec, 2).await;
    assert!(sent.iter().all(Outcome::is_pending));
    assert_eq!(world.record.calls(Step::Exec).len(), 2);
    world.record.release(Step::Exec);
    sent.into_iter().for_each(|outcome| drop(outcome.ok()));
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_and_outputs_of_neighbours_move_while_a_batch_runs() {
    let world = World::with(Kind::Staged, config()).await;
    world.loaded("m-a").await;
    world.record.hold(Step::Exec, Some(1));
    let first = world.infer("m-a", 1, now());
    world.record.begun(Step::Exec, 1).await;
    let second = world.infer("m-a", 2, now());
    let third = world.infer("m-a", 3, now());
    // INPUT of the next batches during EXEC of the first.
    world.record.begun(Step::Input, 2).await;
    world.record.begun(Step::Input, 3).await;
    assert_eq!(world.record.keys(Step::Exec), [1]);
    // OUTPUT of the first batch during EXEC of the second.
    world.record.hold(Step::Output, Some(1));
    world.record.release(Step::Exec);
    world.record.begun(Step::Exec, 2).await;
    world.record.begun(Step::Output, 1).await;
    assert!(first.is_pending());
    world.record.release(Step::Output);
    for outcome in [first, second, third] {
        let timings = outcome.ok().timings;
        assert_eq!(timings.device_us, Some(7.0));
        assert!(timings.input_us > 0.0 && timings.output_us > 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_device_hands_nothing_from_thread_to_thread() {
    let world = World::with(Kind::Staged, config()).await;
    world.loaded("m-a").await;
    for key in 0..20 {
        world.infer("m-a", key, now()).ok();
    }
    let steps = [Step::Input, Step::Exec, Step::Output];
    let calls: Vec<_> = steps.map(|step| world.record.calls(step)).concat();
    assert_eq!(calls.len(), 60);
    assert!(calls.iter().all(|call| call.thread == calls[0].thread));
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_taken_to_the_device_ahead_of_their_window() {
    let world = World::with(Kind::Staged, config()).await;
    let variant = world.loaded("m-a").await;
    let waiting = world.infer("m-a", 1, ahead(9));
    world.record.begun(Step::Input, 1).await;
    assert_eq!(world.record.keys(Step::Exec), [0; 0]);
    // Its inputs hold the instance. They are dropped when the instance is unloaded.
    world.worker.unload(&variant.id).await.unwrap();
    assert_eq!(world.used(), 0);
    assert!(waiting.is_pending());
    // A batch that came before the variant was loaded again runs on it.
    let second = world.infer("m-a", 2, ahead(8));
    world.load(&variant).await.unwrap();
    world.record.begun(Step::Input, 2).await;
    assert!(world.infer("m-a", 3, now()).get().is_ok());
    assert!(waiting.is_pending() && second.is_pending());
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_overlap_runs() {
    for kind in [Kind::Cpu, Kind::Staged] {
        let world = World::with(kind, config()).await;
        world.loaded("m-0").await;
        world.record.hold(Step::Exec, Some(7));
        let running = world.infer("m-0", 7, now());
        world.record.begun(Step::Exec, 7).await;
        world.record.hold(Step::Load, Some(1));
        let mut loads = Vec::new();
        for name in ["m-1", "m-2", "m-3"] {
            let variant = world.variant(name, name, 100).await;
            loads.push(world.loading(Load::at_once(variant)));
            world.record.begun(Step::Load, 1).await;
        }
        world.record.release(Step::Load);
        for load in loads {
            load.await.unwrap().unwrap();
        }
        assert!(running.is_pending(), "all loads were done during one run");
        let calls = world.record.calls(Step::Load);
        assert!(
            calls
                .windows(2)
                .all(|two| two[0].ended.unwrap() <= two[1].begun)
        );
        world.record.release(Step::Exec);
        running.ok();
    }
}

#[tokio::test]
async fn a_worker_drives_one_device_on_cores_that_there_are() {
    let start = |config: Config, kinds: &[Kind]| {
        let engine = |kind: &Kind| -> Arc<dyn Engine> {
            Arc::new(Double {
                device: kind.device(),
                staged: false,
                is_isolated: false,
                record: Arc::default(),
            })
        };
        let folder = tempfile::tempdir().unwrap();
        let objects = Arc::new(LocalStore::open(folder.path(), None).unwrap());
        let engines = kinds.iter().map(engine).collect();
        let metadata = Arc::new(InProcessStore::new());
        Worker::start(config, engines, objects, metadata).map(|(worker, _)| worker.info())
    };
    let mixed = start(config(), &[Kind::Cpu, Kind::Dedicated]).unwrap_err();
    assert!(mixed.to_string().contains("different devices"), "{mixed}");
    assert_eq!(start(config(), &[]).unwrap().cores, 1);
    let pinned = |cores: &[usize]| Config {
        pin: Some(cores.to_vec()),
        ..config()
    };
    let absent = start(pinned(&[100_000]), &[Kind::Cpu]).unwrap_err();
    assert!(absent.to_string().contains("`100000`"), "{absent}");
    assert!(start(pinned(&[]), &[Kind::Cpu]).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_keep_to_the_cores_they_are_given() {
    let core = own_cores()[0];
    let pin = Some(vec![core]);
    let world = World::with(Kind::Cpu, Config { pin, ..config() }).await;
    world.loaded("m-a").await;
    assert_eq!(cores_of_a_batch(&world), [core]);
    // There is no other core.
    let error = world.worker.repin().await.unwrap_err();
    assert_eq!(error.code(), "rejected");
    assert_eq!(cores_of_a_batch(&world), [core]);
}

/// Whether other cores are better depends on what else the machine does. Both outcomes are right, and the next batch
/// runs on the cores that the worker names.
#[tokio::test(flavor = "multi_thread")]
async fn threads_keep_to_other_cores_when_they_are_told_to() {
    let all = own_cores();
    let world = World::with(Kind::Cpu, config()).await;
    world.loaded("m-a").await;
    match world.worker.repin().await {
        Ok(cores) => {
            assert_eq!(cores.len(), 1);
            assert_eq!(cores_of_a_batch(&world), [usize::from(cores[0])]);
        }
        Err(error) => {
            assert_eq!(error.code(), "rejected");
            assert_eq!(cores_of_a_batch(&world), all);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_its_own_has_no_cores_to_keep_to() {
    let world = World::with(Kind::Dedicated, config()).await;
    let error = world.worker.repin().await.unwrap_err();
    assert!(error.to_string().contains("not a processor"), "{error}");
}

/// The cores that this process may use.
fn own_cores() -> Vec<usize> {
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    cores_in(&own)
}

fn cores_in(set: &rustix::thread::CpuSet) -> Vec<usize> {
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    all.filter(|core| set.is_set(*core)).collect()
}

/// The cores that may be used by the thread that runs a batch.
fn cores_of_a_batch(world: &World) -> Vec<usize> {
    let (sender, cores) = mpsc::channel();
    world.worker.infer(Infer {
        variant: VariantId::new("m-a").unwrap(),
        parts: vec![sextant_rpc::Part::Inputs(row(1, 2))],
        earliest: Instant::now(),
        latest: None,
        expected: Duration::ZERO,
        offline_rows: 0,
        done: Box::new(move |_| {
            let own = rustix::thread::sched_getaffinity(None);
            sender.send(own).unwrap();
        }),
    });
    cores_in(&cores.recv_timeout(PATIENCE).unwrap().unwrap())
}
