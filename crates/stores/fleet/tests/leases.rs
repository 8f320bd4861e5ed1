//! Workers whose lease has lapsed are removed, unless they could not renew it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use sextant_fleet::{Leases, unsteady::UnsteadyStore};
use sextant_metadata::{MetadataStore, WorkerRecord};
use sextant_types::WorkerId;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(10);

/// A worker whose lease has ended.
async fn worker(store: &UnsteadyStore) {
    let record = WorkerRecord {
        endpoint: None,
        device: "cpu".into(),
        engines: Vec::new(),
        draining: false,
        cores: 1,
        memory_bytes: 0,
        memory_used_bytes: 0,
        utilization: 0.0,
        ..WorkerRecord::default()
    };
    let worker = WorkerId::new("w").unwrap();
    store.heartbeat(&worker, record, 1, 0).await.unwrap();
}

async fn is_known(store: &UnsteadyStore) -> bool {
    !store.snapshot().await.unwrap().workers.is_empty()
}

#[tokio::test(start_paused = true)]
async fn who_could_not_renew_a_lease_has_time_to_do_so() {
    let store = Arc::new(UnsteadyStore::new(64));
    worker(&store).await;
    let mut leases = Leases::new(Arc::clone(&store) as _, PATIENCE, PATIENCE);
    let away = async |leases: &mut Leases| {
        store.set_away(true);
        leases.look().await;
        store.set_away(false);
    };
    // The store may have been away before. It is away once, and once more before the time is over.
    leases.look().await;
    sleep(PATIENCE).await;
    away(&mut leases).await;
    leases.look().await;
    sleep(PATIENCE / 2).await;
    away(&mut leases).await;
    sleep(PATIENCE / 2).await;
    leases.look().await;
    assert!(is_known(&store).await);
    sleep(PATIENCE / 2).await;
    leases.look().await;
    assert!(!is_known(&store).await);
    // From then on expiry is immediate.
    worker(&store).await;
    leases.look().await;
    assert!(!is_known(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_reader_costs_no_worker_its_lease() {
    const PERIOD: Duration = Duration::from_millis(500);
    let store = Arc::new(UnsteadyStore::new(64));
    let mut leases = Leases::new(Arc::clone(&store) as _, PERIOD, PATIENCE);
    // Looks come in time, until no worker is excused any more.
    let mut ran = Duration::ZERO;
    while ran <= PATIENCE {
        leases.look().await;
        sleep(PERIOD).await;
        ran += PERIOD;
    }
    worker(&store).await;
    // The machine stood still, and the worker's lease ended meanwhile.
    sleep(PERIOD * 4).await;
    leases.look().await;
    assert!(is_known(&store).await);
    let mut ran = Duration::ZERO;
    while ran <= PATIENCE {
        sleep(PERIOD).await;
        leases.look().await;
        ran += PERIOD;
    }
    assert!(!is_known(&store).await);
}
