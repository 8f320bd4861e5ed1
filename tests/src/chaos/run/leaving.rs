//! The end of front ends that have begun queries.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::Method;
use rustix::process::Signal;
use tokio::{task::JoinSet, time::sleep};

use super::{Stage, blocking, client};
use crate::chaos::{history::Event, plan::Application};

/// Number of begun queries: more than three devices answer while the front end still accepts connections.
const BEGUN: u64 = 160;
/// First number of these queries; no load reaches it.
const NUMBERS: u64 = 1 << 30;
/// Time from the first query to the signal.
const HEAD_START: Duration = Duration::from_millis(250);
/// Time after the signal within which a front end reports that it is not ready. It answers for longer.
const NOTICE: Duration = Duration::from_millis(900);
/// Time between two looks at its readiness.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// Asks each front end to end while it has queries, and records how it behaves.
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

/// Whether it reports that it is ready during the whole time in which it must report that it is not.
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
