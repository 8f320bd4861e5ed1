//! Faults by the clock: each begins when its time has come and ends when its time is over.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sextant_test_servers::s3;
use tokio::{sync::Mutex, task::JoinSet, time::sleep_until};

use super::{Stage, artefacts, blocking};
use crate::{
    Fleet,
    chaos::{history::Event, plan::Kind},
};

/// How late S3 answers while it is slow.
const SLOW: Duration = Duration::from_millis(700);

/// Carries out all of them; returns when the last is over and every killed process is up again.
pub async fn carry_out(stage: &Arc<Stage>, begun: Instant) {
    let mut faults = JoinSet::new();
    let mut turns: BTreeMap<String, Arc<Mutex<()>>> = BTreeMap::new();
    for (number, fault) in stage.plan.faults.iter().enumerate() {
        let stage = Arc::clone(stage);
        let turn = turns.entry(fault.kind.target().to_owned()).or_default();
        let turn = Arc::clone(turn);
        faults.spawn(async move {
            sleep_until((begun + Duration::from_millis(stage.plan.faults[number].at_ms)).into())
                .await;
            // A process may start so slowly that its next fault would come before.
            let _turn = turn.lock().await;
            one(&stage, number).await
        });
    }
    sleep_until((begun + Duration::from_millis(stage.plan.length_ms)).into()).await;
    while let Some(ended) = faults.join_next().await {
        let cause = match ended {
            Ok(result) => result.err(),
            Err(error) => Some(super::said(error)),
        };
        if let Some(cause) = cause {
            stage.history.note(Event::Trouble { cause });
        }
    }
}

async fn one(stage: &Arc<Stage>, number: usize) -> Result<(), String> {
    let fault = stage.plan.faults[number].clone();
    stage.history.note(Event::FaultBegan { fault: number });
    let over = Instant::now() + Duration::from_millis(fault.for_ms);
    if fault.kind == Kind::DiskFull {
        artefacts::fill(stage).await;
    } else {
        let (stage, kind) = (Arc::clone(stage), fault.kind.clone());
        blocking(move || begin(&stage, &kind)).await?;
    }
    sleep_until(over.into()).await;
    if fault.kind == Kind::DiskFull {
        artefacts::clear(stage).await;
    } else {
        let (stage, kind) = (Arc::clone(stage), fault.kind.clone());
        blocking(move || end(&stage, &kind)).await?;
    }
    stage.history.note(Event::FaultEnded { fault: number });
    Ok(())
}

fn begin(stage: &Stage, kind: &Kind) {
    match kind {
        Kind::Kill { process } => stage.kill(process),
        Kind::Freeze { process } => {
            stage.with(|service| service.signal(process, Signal::STOP));
        }
        kind => on_stores(stage, |fleet| break_store(fleet, kind)),
    }
}

fn end(stage: &Stage, kind: &Kind) {
    match kind {
        Kind::Kill { process } => stage.revive(process),
        Kind::Freeze { process } => {
            stage.with(|service| service.signal(process, Signal::CONT));
        }
        kind => on_stores(stage, |fleet| mend_store(fleet, kind)),
    }
}

fn on_stores(stage: &Stage, action: impl FnOnce(&mut Fleet)) {
    stage.with(|service| service.stores().map(action));
}

fn break_store(fleet: &mut Fleet, kind: &Kind) {
    match kind {
        Kind::RedisSilent => fleet.redis.stop(),
        Kind::RedisEmptied => fleet.redis.flush(),
        Kind::RedisKilled => fleet.redis.kill(),
        Kind::PostgresSilent => fleet.postgres.stop(),
        Kind::PostgresKilled => fleet.postgres.kill(),
        Kind::S3Slow => fleet.s3.faults().set(|_| Some(s3::Fault::Delay(SLOW))),
        Kind::S3Silent => fleet.s3.stop(),
        Kind::S3Refuses => fleet
            .s3
            .faults()
            .set(|request| (request.number % 2 == 0).then_some(s3::Fault::SlowDown)),
        Kind::Kill { .. } | Kind::Freeze { .. } | Kind::DiskFull => {}
    }
}

fn mend_store(fleet: &mut Fleet, kind: &Kind) {
    match kind {
        Kind::RedisSilent => fleet.redis.cont(),
        Kind::RedisKilled => fleet.redis.restart(),
        Kind::PostgresSilent => fleet.postgres.cont(),
        Kind::PostgresKilled => fleet.postgres.start_again(),
        Kind::S3Slow | Kind::S3Refuses => fleet.s3.faults().clear(),
        Kind::S3Silent => fleet.s3.cont(),
        Kind::RedisEmptied | Kind::Kill { .. } | Kind::Freeze { .. } | Kind::DiskFull => {}
    }
}
