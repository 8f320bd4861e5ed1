//! Workers that come, go, drain and are lost.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use sextant_dispatcher::Config;
use sextant_fleet::unsteady::UnsteadyStore;
use sextant_metadata::{InProcessStore, MetadataStore, WorkerRecord};
use sextant_rpc::{Ask, Dispatch, Ticket, Work, WorkerClient};
use sextant_schedule::Delay;
use sextant_types::{ApplicationId, Code, Route, Targets, WorkerId};

use crate::{
    severable::{HoldingFrontEnd, Post, Severable},
    world::{Kind, PATIENCE, World, output, query, row, targets, variant_route, wait_until},
};

/// A world whose dispatcher reaches its workers through connections that can break.
pub struct Fleet {
    pub world: World,
    pub post: Arc<Post>,
    pub links: Vec<Arc<Severable>>,
}

impl Fleet {
    /// `count` workers that all serve one variant.
    pub async fn new(count: usize) -> Self {
        Self::over(Arc::new(InProcessStore::new()), count).await
    }

    /// The same over another metadata store.
    pub async fn over(store: Arc<dyn MetadataStore>, count: usize) -> Self {
        let (post, links) = (Arc::<Post>::default(), Mutex::new(Vec::new()));
        let world = World::over(store, Config::default(), (count, 1), |worker| {
            let link = Severable::new(worker, &post);
            links.lock().unwrap().push(Arc::clone(&link));
            link
        })
        .await;
        world.serve(Kind::default()).await;
        let links = links.into_inner().unwrap();
        Self { world, post, links }
    }

    /// Places one held query. Returns the worker that ran it.
    async fn place(&self, number: u64) -> WorkerId {
        let holding = HoldingFrontEnd::new(&self.post, row(&[1.0, 0.0]));
        let holder = Arc::clone(&holding) as _;
        let dispatcher = &self.world.dispatcher;
        dispatcher.place(ask(number), holder).await.unwrap();
        let assignments = holding.assignments.lock().unwrap();
        assert_eq!(assignments.len(), 1);
        assignments[0].worker.clone()
    }

    /// Breaks a worker's connection. The dispatcher is told afterwards.
    pub fn lose(&self, at: usize) {
        self.links[at].cut();
        self.world
            .dispatcher
            .remove_worker(&self.links[at].info().worker);
    }

    /// Connects a worker again.
    pub fn rejoin(&mut self, at: usize) {
        self.links[at] = self.links[at].again();
        let link = Arc::clone(&self.links[at]) as WorkerClient;
        self.world.dispatcher.add_worker(link);
    }

    pub async fn set_draining(&self, at: usize, draining: bool) {
        let info = self.links[at].info();
        let record = WorkerRecord {
            endpoint: None,
            device: "cpu".into(),
            engines: info.engines.clone(),
            draining,
            cores: info.cores,
            memory_bytes: info.pages.bytes(),
            memory_used_bytes: info.pages.used_bytes(),
            utilization: 0.0,
            ..WorkerRecord::default()
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let beat =
            self.world
                .metadata
                .heartbeat(&info.worker, record, 60_000, since.as_millis() as u64);
        assert!(!beat.await.unwrap().fresh);
    }
}

/// An ask for one row, held by a front end.
pub fn ask(query: u64) -> Ask {
    Ask {
        ticket: Ticket {
            holder: 7,
            query,
            attempt: 3,
        },
        route: Route::Application(ApplicationId::new("app").unwrap()),
        dims: Vec::new(),
        rows: 1,
        targets: Targets::default(),
        best_effort: false,
        explain: false,
        sticky: None,
        kept: Vec::new(),
        composites: Vec::new(),
        offline: false,
        step: None,
        arrived: std::time::Instant::now(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_worker_had_is_run_by_another() {
    let mut fleet = Fleet::new(2).await;
    let world = &fleet.world;
    world.gate.close();
    let running = [1.0, 2.0].map(|number| world.send(query(&[number, 0.0])));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 2).await;
    fleet.lose(0);
    // Its query waits for the other worker, together with one that comes now.
    let late = world.send(query(&[3.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 2).await;
    world.gate.open();
    for (number, handle) in (1u8..).zip(running.into_iter().chain([late])) {
        let answer = handle.await.unwrap().unwrap();
        assert_eq!(output(&answer), [2.0 * f32::from(number), 0.0]);
    }
    // Back at its old position, it serves again, alone.
    fleet.rejoin(0);
    fleet.lose(1);
    let answer = fleet.world.ask(query(&[4.0, 0.0])).await.unwrap();
    assert_eq!(output(&answer), [8.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hands_back_is_followed_by_another_until_none_is_left() {
    let fleet = Fleet::new(3).await;
    for at in 0..2 {
        fleet.links[at].refuse();
        for number in [1.0, 2.0, 3.0] {
            let answer = fleet.world.ask(query(&[number, 0.0])).await.unwrap();
            assert_eq!(output(&answer), [2.0 * number, 0.0]);
        }
    }
    for at in 0..3 {
        fleet.lose(at);
    }
    let error = fleet.world.ask(query(&[1.0, 0.0])).await.unwrap_err();
    assert!(error.code.kind().is_retryable(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_goes_to_a_worker_that_drains() {
    let fleet = Fleet::new(2).await;
    let world = &fleet.world;
    let named = variant_route("m-a");
    let first = fleet.place(0).await;
    let position = |id: &WorkerId| {
        let is = |link: &Arc<Severable>| link.info().worker == *id;
        fleet.links.iter().position(is).unwrap()
    };
    let (drained, other) = (position(&first), 1 - position(&first));
    fleet.set_draining(drained, true).await;
    let begun = std::time::Instant::now();
    while fleet.place(1).await == first {
        assert!(
            begun.elapsed() < PATIENCE,
            "a draining worker is still used"
        );
    }
    for number in 2..50 {
        assert_eq!(position(&fleet.place(number).await), other);
    }
    fleet.set_draining(other, true).await;
    let refused = || async {
        let answer = world.ask(query(&[1.0, 0.0])).await;
        answer.is_err_and(|error| error.code.kind().is_retryable())
    };
    let begun = std::time::Instant::now();
    while !refused().await {
        assert!(
            begun.elapsed() < PATIENCE,
            "a draining worker is still used"
        );
    }
    fleet.set_draining(other, false).await;
    wait_until(|| world.dispatcher.is_loaded(&named)).await;
    assert!(world.ask(query(&[1.0, 0.0])).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_never_come_are_no_fault_of_the_engine() {
    let fleet = Fleet::new(2).await;
    let holding = HoldingFrontEnd::new(&fleet.post, Vec::new());
    let holder = Arc::clone(&holding);
    let placed = fleet.world.dispatcher.place(ask(1), holder).await;
    assert_eq!(placed.unwrap_err().code, Code::Unavailable);
    assert!(
        holding.assignments.lock().unwrap().len() > 1,
        "it was tried"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_inputs_is_told_each_placement_once() {
    let fleet = Fleet::new(2).await;
    let world = &fleet.world;
    world.gate.close();
    let holding = HoldingFrontEnd::new(&fleet.post, row(&[5.5, 1.0]));
    let (dispatcher, holder) = (Arc::clone(&world.dispatcher), Arc::clone(&holding));
    let mut asked = ask(1);
    asked.explain = true;
    asked.targets = targets(Some(60_000.0), Some(0.5));
    let placed = tokio::spawn(async move { dispatcher.place(asked, holder).await });
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let first = holding.assignments.lock().unwrap()[0].clone();
    let at = fleet
        .links
        .iter()
        .position(|link| link.info().worker == first.worker);
    fleet.lose(at.unwrap());
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 2).await;
    world.gate.open();
    placed.await.unwrap().unwrap();
    assert_eq!(holding.outputs().unwrap(), [11.0, 2.0]);
    let assignments = holding.assignments.lock().unwrap().clone();
    let attempts: Vec<u32> = assignments.iter().map(|one| one.ticket.attempt).collect();
    assert_eq!(attempts, [3, 4]);
    assert_ne!(assignments[0].worker, assignments[1].worker);
    for one in assignments {
        assert!(one.suits && one.explanation.is_some());
        assert_eq!((one.variant.as_str(), one.model.as_str()), ("m-a", "m"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_nobody_waits_for_takes_no_place_in_a_batch() {
    let fleet = Fleet::new(1).await;
    let world = &fleet.world;
    world.gate.close();
    let first = world.send(query(&[1.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let holding = HoldingFrontEnd::new(&fleet.post, row(&[2.0, 0.0]));
    let (dispatcher, holder) = (Arc::clone(&world.dispatcher), Arc::clone(&holding));
    let placed = tokio::spawn(async move { dispatcher.place(ask(1), holder).await });
    let third = world.send(query(&[3.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 2).await;
    placed.abort();
    assert!(placed.await.unwrap_err().is_cancelled());
    world.gate.open();
    assert!(first.await.unwrap().is_ok());
    assert_eq!(third.await.unwrap().unwrap().timings.batch_rows, 1);
    assert!(holding.assignments.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_or_empty_stops_no_query() {
    let store = Arc::new(UnsteadyStore::new(64));
    let world = World::over(
        Arc::clone(&store) as _,
        Config::default(),
        (2, 1),
        |worker| worker,
    )
    .await;
    let variant = world.serve(Kind::default()).await;
    let answers = || async { world.ask(query(&[1.0, 0.0])).await.is_ok() };
    store.set_away(true);
    assert!(answers().await);
    store.set_away(false);
    for life in 1..4 {
        store.lose_everything();
        for _ in 0..20 {
            assert!(answers().await, "in life {life}");
        }
        // A variant that is published again in the new life is known beside those that were kept.
        world
            .metadata
            .publish_variant(Arc::clone(&variant))
            .await
            .unwrap();
        assert!(answers().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_messages_take_counts_against_the_target() {
    let config = Config {
        network: Delay {
            control: 20_000_000,
            response: 20_000_000,
            ..Delay::default()
        },
        ..Config::default()
    };
    let world = World::with(config, 1).await;
    world.serve(Kind::default()).await;
    let mut hurried = query(&[1.0, 0.0]);
    hurried.targets = targets(Some(35.0), None);
    let error = world.ask(hurried).await.unwrap_err();
    assert_eq!(error.code, Code::TargetInfeasible, "{error}");
    let mut patient = query(&[1.0, 0.0]);
    patient.targets = targets(Some(5_000.0), None);
    assert!(world.ask(patient).await.is_ok());
}
