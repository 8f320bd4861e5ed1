//! Periodic sweeps.

use std::{sync::Arc, time::Duration};

use sextant_storage::Config;
use tokio::sync::{oneshot, watch};

use crate::support::{Bench, CONFIG};

/// Only a failing test waits for this long.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until_gone(bench: &Bench, digest: &sextant_types::Digest) {
    let gone = async {
        while bench.has(digest).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = tokio::time::timeout(PATIENCE, gone).await;
    gone.expect("it is swept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leads_sweeps_and_who_does_not_lets_be() {
    let bench = Arc::new(Bench::folder().await);
    let often = Config {
        every: Some(Duration::from_millis(10)),
        ..CONFIG
    };
    let (leading, (stop, stopped)) = (watch::Sender::new(false), oneshot::channel::<()>());
    let service = bench.storage(often);
    let follows = leading.subscribe();
    let service = tokio::spawn(service.run_while(follows, async {
        drop(stopped.await);
    }));
    let first = bench.put("first").await;
    tokio::task::yield_now().await;
    assert!(bench.has(&first).await, "it does not lead");
    leading.send_replace(true);
    until_gone(&bench, &first).await;
    let second = bench.put("second").await;
    until_gone(&bench, &second).await;
    drop(stop);
    let ended = tokio::time::timeout(PATIENCE, service).await;
    ended.expect("in time").expect("without a panic");
    assert_eq!(bench.registry.condemned().await.expect("an answer"), []);
}
