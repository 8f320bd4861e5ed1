//! The end of front ends, with queries that they have begun.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::Method;
use rustix::process::Signal;
use tokio::{task::JoinSet, time::sleep};

use super::{Stage, blocking, client};
use crate::chaos::{history::Event, plan::Application};

/// Queries that are begun: more than three devices answer while the front end still takes connections.
const BEGUN: u64 = 160;
/// Numbers of queries that no load reaches.
const NUMBERS: u64 = 1 << 30;
/// From the first query to the signal.
const HEAD_START: Duration = Duration::from_millis(250);
/// A front end says within this time of the signal that it is not ready; it answers for longer.
const NOTICE: Duration = Duration::from_millis(900);
/// Time between two looks at its readiness.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// Asks each front end to end while it has queries, and notes how it does.
pub async fn leave(stage: &Arc<Stage>) {
    for front_end in stage.plan.front_ends() {
        let mut queries = JoinSet::new();
        for number in 0..BEGUN {
            let (stage, front_end) = (Arc::clone(stage), front_end.clone());
            queries.spawn(async move { is_broken(&stage, &front_end, number).await });
        }
        sleep(HEAD_START).await;
        let (at, name) = (Arc::clone(stage), front_end.clone());
        let told = blocking(move || at.with(|service| service.signal(&name, Signal::TERM))).await;
        if let Err(cause) = told {
            stage.history.note(Event::Trouble { cause });
        }
        let is_ready = is_ready_for(stage, &front_end).await;
        let broken = queries.join_all().await.into_iter().filter(|it| *it);
        stage.history.note(Event::Parted {
            process: front_end,
            is_ready,
            broken: broken.count(),
        });
    }
}

/// Whether it says that it is ready for all of the time in which it is to say that it is not.
async fn is_ready_for(stage: &Stage, front_end: &str) -> bool {
    let until = Instant::now() + NOTICE;
    while Instant::now() < until {
        let look = (Method::GET, "/health/ready");
        let ready = client::send(stage, front_end, look, None).await;
        if !ready.is_ok_and(|reply| reply.is_success()) {
            return false;
        }
        sleep(LOOK_EVERY).await;
    }
    true
}

async fn is_broken(stage: &Stage, front_end: &str, number: u64) -> bool {
    let applications = stage.plan.applications.iter();
    let Some(slowest) = applications.max_by_key(|it| it.alpha_ms) else {
        return false;
    };
    let patient = Application {
        latency_ms: None,
        ..slowest.clone()
    };
    let body = client::query(stage, &patient, NUMBERS + number);
    let to = (Method::POST, "/v1/queries");
    client::send(stage, front_end, to, Some(body))
        .await
        .is_err()
}
