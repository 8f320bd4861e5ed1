//! Variants move to another worker: from one that something else slows down, or from one that is to
//! leave.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sextant_dispatcher::Config;
use sextant_metadata::{
    Command, Count, DesiredState, DesiredVariant, InProcessStore, InstanceKey, InstanceState, Pool,
    Transition,
};
use sextant_rpc::{Load, WorkerClient};
use sextant_types::{DeviceType, DeviceTypeName, EngineName, Variant};
use sextant_worker::End;

use crate::{
    severable::{Post, Severable},
    world::{Kind, PATIENCE, World, query, variant_route, wait_until},
};

/// Workers that are bound to no cores. The first of them has a variant.
async fn world(count: usize) -> (World, Arc<Variant>) {
    let post = Arc::<Post>::default();
    let store = Arc::new(InProcessStore::new());
    let reach = |worker: WorkerClient| -> WorkerClient { Severable::new(worker, &post) };
    let world = World::over(store, Config::default(), (count, 1), reach).await;
    let variant = world.publish(Kind::default()).await;
    let load = Load::at_once(Arc::clone(&variant));
    world.worker.load(load).await.unwrap();
    wait_until(|| world.dispatcher.is_loaded(&variant_route("m-a"))).await;
    (world, variant)
}

async fn interfere(world: &World, variant: &Variant, at: usize) {
    let transition = Transition {
        key: key(world, variant, at),
        application: variant.application.clone(),
        expected_version: None,
        command: Command::Interfere,
    };
    world.metadata.transition(&transition, 0).await.unwrap();
}

fn key(world: &World, variant: &Variant, at: usize) -> InstanceKey {
    InstanceKey {
        variant: variant.id.clone(),
        worker: world.workers[at].info().worker,
    }
}

async fn state(world: &World, variant: &Variant, at: usize) -> InstanceState {
    let key = key(world, variant, at);
    let of = world.metadata.instance(&key).await.unwrap();
    of.map_or(InstanceState::Inactive, |instance| instance.state)
}

/// Queries one after another, each of which must be answered.
struct QueryLoop {
    stop: Arc<AtomicBool>,
    answered: tokio::task::JoinHandle<u32>,
}

// === impl QueryLoop ===

impl QueryLoop {
    fn begin(world: &Arc<World>) -> Self {
        let (world, stop) = (Arc::clone(world), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let answered = tokio::spawn(async move {
            let mut answered = 0;
            while !stopped.load(Ordering::Relaxed) {
                world.ask(query(&[1.0, 0.0])).await.unwrap();
                answered += 1;
            }
            answered
        });
        Self { stop, answered }
    }

    /// The number of queries that were answered.
    async fn end(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.answered.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_moves_to_a_quiet_worker_and_every_query_is_answered() {
    let (world, variant) = world(2).await;
    let world = Arc::new(world);
    interfere(&world, &variant, 0).await;
    let asking = QueryLoop::begin(&world);
    let moved = async {
        loop {
            let states = [0, 1].map(|at| state(&world, &variant, at));
            let [from, to] = states;
            if to.await == InstanceState::Active && from.await == InstanceState::Inactive {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let moved = tokio::time::timeout(PATIENCE, moved).await;
    moved.expect("the variant has moved");
    assert!(asking.end().await > 0);
    world.ask(query(&[1.0, 0.0])).await.unwrap();
}

/// Loads the variant on worker 1, too.
async fn give_to_second(world: &World, variant: &Arc<Variant>) {
    let load = Load::at_once(Arc::clone(variant));
    world.workers[1].load(load).await.unwrap();
    let active = async {
        while state(world, variant, 1).await != InstanceState::Active {
            tokio::task::yield_now().await;
        }
    };
    let active = tokio::time::timeout(PATIENCE, active).await;
    active.expect("both have it");
}

/// A variant that is desired everywhere has no worker to move to.
#[tokio::test(flavor = "multi_thread")]
async fn a_variant_that_a_quiet_worker_has_leaves_the_one_that_is_slowed_down() {
    let (world, variant) = world(2).await;
    let world = Arc::new(world);
    give_to_second(&world, &variant).await;
    interfere(&world, &variant, 0).await;
    let asking = QueryLoop::begin(&world);
    let left = async {
        while state(&world, &variant, 0).await != InstanceState::Inactive {
            tokio::task::yield_now().await;
        }
    };
    let left = tokio::time::timeout(PATIENCE, left).await;
    left.expect("the variant has left the worker");
    assert_eq!(state(&world, &variant, 1).await, InstanceState::Active);
    assert!(asking.end().await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_stays_where_no_other_worker_is_quiet() {
    let (world, variant) = world(1).await;
    interfere(&world, &variant, 0).await;
    stays(&world, &variant).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_stays_where_the_other_worker_that_has_it_is_to_leave() {
    let (world, variant) = world(2).await;
    give_to_second(&world, &variant).await;
    take_out(&world, 1).await;
    interfere(&world, &variant, 0).await;
    stays(&world, &variant).await;
}

/// Waits for two looks, one for the cores and one for the move: worker 0 keeps the variant.
async fn stays(world: &World, variant: &Variant) {
    let metrics = || {
        let mut registry = prometheus_client::registry::Registry::default();
        world.dispatcher.register_metrics(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    wait_until(|| metrics().contains("dispatcher_repins_total 1")).await;
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    assert_eq!(state(world, variant, 0).await, InstanceState::Interfered);
    assert!(metrics().contains("dispatcher_relocations_total 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_that_is_to_leave_has_alone_moves_to_one_that_stays() {
    let (world, variant) = world(3).await;
    let desired = |emptying: &[usize]| {
        let of = DesiredVariant {
            variant: variant.id.clone(),
            workers: Count::Workers(1),
            pinned: false,
            needed: 1,
        };
        let emptying = emptying.iter().map(|at| world.workers[*at].info().worker);
        DesiredState::new(1, vec![of], 600_000).with_emptying(emptying.collect())
    };
    world.metadata.set_desired(desired(&[0, 1])).await.unwrap();
    let moved = async {
        while state(&world, &variant, 2).await != InstanceState::Active
            || state(&world, &variant, 0).await != InstanceState::Inactive
        {
            tokio::task::yield_now().await;
        }
    };
    let moved = tokio::time::timeout(PATIENCE, moved).await;
    moved.expect("the variant has moved to the worker that stays");
    assert_eq!(state(&world, &variant, 1).await, InstanceState::Inactive);
    world.ask(query(&[1.0, 0.0])).await.unwrap();
}

async fn take_out(world: &World, at: usize) {
    let worker = world.workers[at].info().worker;
    world.metadata.mark_leaving(&worker).await.unwrap();
}

/// Waits until a worker has left, and is gone from the store.
async fn has_left(world: &World, running: tokio::task::JoinHandle<End>, at: usize) {
    let ended = tokio::time::timeout(PATIENCE, running).await;
    assert_eq!(ended.expect("it leaves").unwrap(), End::Left);
    let worker = world.workers[at].info().worker;
    let left = world.metadata.workers(0).await.unwrap();
    assert!(left.iter().all(|it| it.id != worker), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_taken_out_leaves_once_what_it_has_serves_elsewhere() {
    let (world, variant) = world(2).await;
    let world = Arc::new(world);
    let running = world.run_worker(0);
    let asking = QueryLoop::begin(&world);
    take_out(&world, 0).await;
    // No autoscaler has said what is desired, so everything that serves is.
    has_left(&world, running, 0).await;
    assert_eq!(state(&world, &variant, 1).await, InstanceState::Active);
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    assert!(asking.end().await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_everything_alone_leaves_after_a_time() {
    let config = Config {
        longest_stay: Duration::from_millis(1),
        ..Config::default()
    };
    let world = World::with(config, 1).await;
    world.serve(Kind::default()).await;
    let running = world.run_worker(0);
    take_out(&world, 0).await;
    has_left(&world, running, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stays_until_the_one_in_its_place_is_there_and_the_next_leader_tells_it() {
    let of = |name: &str| DeviceType {
        name: DeviceTypeName::new(name).unwrap(),
        engines: vec![EngineName("doubling".to_owned())],
        slots: 1,
        memory_bytes: 1000,
        price_per_hour_usd: 1.0,
        start_ms: 1000,
    };
    let types = vec![of("small"), of("small"), of("other")];
    let world = World::with_types(Config::default(), types).await;
    let desired = |workers| {
        let pool = Pool {
            device_type: of("small").name,
            desired: workers,
            least: 0,
            most: 9,
            provider: Some("process".into()),
            facts: None,
            trouble: None,
        };
        DesiredState::new(1, Vec::new(), 600_000).with_scaling(vec![pool], Vec::new())
    };
    world.metadata.set_desired(desired(2)).await.unwrap();
    let running = world.run_worker(0);
    let of_no_pool = world.run_worker(2);
    take_out(&world, 0).await;
    take_out(&world, 2).await;
    has_left(&world, of_no_pool, 2).await;
    // The same look handled this worker first.
    let stays = !world.workers[0].is_draining();
    assert!(stays, "without it there is one less than is desired");
    world.dispatcher.set_leading(false);
    world.metadata.set_desired(desired(1)).await.unwrap();
    let next = world.another(world.workers.clone());
    assert!(next.is_leading());
    has_left(&world, running, 0).await;
    assert!(!world.workers[1].is_draining());
}
