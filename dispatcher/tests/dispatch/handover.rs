//! Two dispatchers over the same workers and store, of which one leads.

use std::{sync::Arc, time::Duration};

use sextant_dispatcher::{Config, Dispatcher};
use sextant_fleet::{Leadership, unsteady::UnsteadyStore};
use sextant_metadata::Candidate;
use sextant_rpc::{Answer, Dispatch, QueryError, WorkerClient};
use sextant_types::Code;
use tokio::sync::oneshot;

use crate::{
    fleet::{Fleet, ask},
    severable::HoldingFrontEnd,
    world::{Kind, PATIENCE, World, output, query, row, targets, variant_route, wait_until},
};

/// Asks the leader, as a front end does.
async fn ask_leader(dispatchers: &[Arc<Dispatcher>], number: f32) -> Result<Answer, QueryError> {
    let search = async {
        loop {
            for dispatcher in dispatchers {
                match dispatcher.query(query(&[number, 0.0])).await {
                    Err(error) if error.code == Code::Unavailable => {}
                    ended => return ended,
                }
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, search)
        .await
        .expect("a leader")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_by_knows_everything_and_gives_nothing_out() {
    let fleet = Fleet::new(2).await;
    let workers: Vec<WorkerClient> = fleet
        .links
        .iter()
        .map(|link| Arc::clone(link) as _)
        .collect();
    let standby = fleet.world.another(workers);
    standby.set_leading(false);
    wait_until(|| standby.is_loaded(&variant_route("m-a"))).await;
    let error = standby.query(query(&[1.0, 0.0])).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.retry_after_ms.is_some());
    let holding = HoldingFrontEnd::new(&fleet.post, row(&[1.0, 0.0]));
    let placed = standby.place(ask(1), Arc::clone(&holding) as _).await;
    assert_eq!(placed.unwrap_err().code, Code::Unavailable);
    assert!(holding.assignments.lock().unwrap().is_empty());
    // Queries that wait when the lead is lost are refused, and those that run are answered.
    let world = &fleet.world;
    world.gate.close();
    let running = [1.0, 2.0].map(|number| world.send(query(&[number, 0.0])));
    let entered = || world.gate.entered.load(std::sync::atomic::Ordering::SeqCst);
    wait_until(|| entered() == 2).await;
    let waiting = world.send(query(&[3.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 1).await;
    world.dispatcher.set_leading(false);
    assert_eq!(waiting.await.unwrap().unwrap_err().code, Code::Unavailable);
    standby.set_leading(true);
    world.gate.open();
    for handle in running {
        assert!(handle.await.unwrap().is_ok());
    }
    let answer = ask_leader(&[standby], 4.0).await.unwrap();
    assert_eq!(output(&answer), [8.0, 0.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_down_waits_for_what_runs() {
    let world = Fleet::new(1).await.world;
    world.gate.close();
    let running = world.send(query(&[1.0, 0.0]));
    let entered = || world.gate.entered.load(std::sync::atomic::Ordering::SeqCst);
    wait_until(|| entered() == 1).await;
    let waiting = world.send(query(&[2.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 1).await;
    let dispatcher = Arc::clone(&world.dispatcher);
    let standing_down = tokio::spawn(async move { dispatcher.stand_down().await });
    assert_eq!(waiting.await.unwrap().unwrap_err().code, Code::Unavailable);
    assert!(!world.dispatcher.is_leading() && !standing_down.is_finished());
    world.gate.open();
    tokio::time::timeout(PATIENCE, standing_down)
        .await
        .expect("nothing runs any more")
        .unwrap();
    assert!(running.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_changes_hands_under_load_and_no_query_is_lost() {
    let fleet = Fleet::new(2).await;
    let workers: Vec<WorkerClient> = fleet
        .links
        .iter()
        .map(|link| Arc::clone(link) as _)
        .collect();
    let other = fleet.world.another(workers);
    other.set_leading(false);
    wait_until(|| other.is_loaded(&variant_route("m-a"))).await;
    let both = [Arc::clone(&fleet.world.dispatcher), other];
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let both = both.clone();
            tokio::spawn(async move {
                for round in 0..40 {
                    let value = (number * 40 + round) as f32;
                    let answer = ask_leader(&both, value).await.unwrap();
                    assert_eq!(output(&answer), [2.0 * value, 0.0]);
                }
            })
        })
        .collect();
    let mut leader = 0;
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        both[leader].set_leading(false);
        leader = 1 - leader;
        both[leader].set_leading(true);
        let answer = ask_leader(&both, 0.5).await.unwrap();
        assert_eq!(output(&answer), [1.0, 0.0]);
    }
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_when_the_lease_of_the_leader_lapses() {
    let store = Arc::new(UnsteadyStore::new(1024));
    let world = World::over(
        Arc::clone(&store) as _,
        Config::default(),
        (1, 1),
        |worker| worker,
    )
    .await;
    world.serve(Kind::default()).await;
    let other = world.another(world.workers.clone());
    let both = [Arc::clone(&world.dispatcher), other];
    let mut stops = Vec::new();
    let mut campaigns = Vec::new();
    for (number, dispatcher) in both.iter().enumerate() {
        let candidate = Candidate {
            role: "dispatcher".into(),
            holder: format!("life-{number}").into(),
            endpoint: format!("host-{number}:1").into(),
        };
        // A lease that is renewed must not lapse on a busy machine.
        let ttl = Duration::from_secs(2);
        let leadership = Leadership::new(Arc::clone(&store) as _, candidate, ttl);
        let (token, dispatcher) = (leadership.token(), Arc::clone(dispatcher));
        dispatcher.set_leading(false);
        tokio::spawn(async move { dispatcher.lead_with(token).await });
        let (stop, stopped) = oneshot::channel::<()>();
        let run = leadership.run(async move { drop(stopped.await) });
        campaigns.push(tokio::spawn(run));
        stops.push(stop);
        // The first one leads before there is a second.
        wait_until(|| both[0].is_leading()).await;
    }
    assert!(!both[1].is_leading());
    assert!(ask_leader(&both, 1.0).await.is_ok());
    // The process is killed: it no longer renews its lease and does not give it up.
    campaigns.remove(0).abort();
    wait_until(|| both[1].is_leading()).await;
    let answer = ask_leader(&both[1..], 2.0).await.unwrap();
    assert_eq!(output(&answer), [4.0, 0.0]);
    // Without the store no dispatcher may rely on the lease for longer than it lasts.
    store.set_away(true);
    wait_until(|| !both[1].is_leading()).await;
    store.set_away(false);
    wait_until(|| both[1].is_leading()).await;
    drop(stops);
    campaigns.remove(0).await.unwrap();
    wait_until(|| !both[1].is_leading()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_begins_to_lead_keeps_queries_until_it_has_reached_the_workers() {
    let world = World::new().await;
    let successor = world.another(Vec::new());
    successor.set_leading(false);
    let variant = world.serve(Kind::default()).await;
    wait_until(|| {
        successor
            .signature(&variant_route(variant.id.as_str()))
            .is_ok()
    })
    .await;
    world.dispatcher.set_leading(false);
    successor.set_leading(true);
    let asked = Arc::clone(&successor);
    let answer = tokio::spawn(async move { asked.query(query(&[1.0, 0.0])).await });
    // A query with a latency target is answered or refused in time.
    let mut urgent = query(&[2.0, 0.0]);
    urgent.targets = targets(Some(50.0), None);
    let refused = successor.query(urgent).await;
    assert!(refused.is_err() && !answer.is_finished());
    successor.add_worker(Arc::clone(&world.worker));
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(output(&answer), [2.0, 0.0]);
}
