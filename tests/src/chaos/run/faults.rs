//! Timed faults: each starts and ends at its time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sextant_test_servers::s3;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{sleep, sleep_until},
};

use super::{Stage, artefacts, blocking, service::Service};
use crate::{
    Disk, Fleet, Flow, Wire,
    chaos::{
        history::Event,
        plan::{Cut, Kind},
    },
    fleet::End,
};

/// Delay of S3's answers while it is slow.
const SLOW: Duration = Duration::from_millis(700);
/// Time between two resets of a wire, and between two fillings of a disk.
const AGAIN: Duration = Duration::from_millis(200);

/// Carries out all faults. Returns when the last one is over and every killed process is up again.
pub async fn carry_out(stage: &Arc<Stage>, begun: Instant) {
    let mut faults = JoinSet::new();
    let mut turns: BTreeMap<String, Arc<Mutex<()>>> = BTreeMap::new();
    for (number, fault) in stage.plan.faults.iter().enumerate() {
        let stage = Arc::clone(stage);
        let turn = turns.entry(fault.kind.target()).or_default();
        let turn = Arc::clone(turn);
        faults.spawn(async move {
            sleep_until((begun + Duration::from_millis(stage.plan.faults[number].at_ms)).into())
                .await;
            // A process may start so slowly that its next fault would come before it is up.
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
    if let Some(reason) = left_out(stage, &fault.kind) {
        stage.history.note(Event::FaultLeftOut {
            fault: number,
            reason,
        });
        return Ok(());
    }
    stage.history.note(Event::FaultBegan { fault: number });
    let over = Instant::now() + Duration::from_millis(fault.for_ms);
    if fault.kind == Kind::DiskFull {
        artefacts::fill(stage).await;
    } else {
        let (stage, kind) = (Arc::clone(stage), fault.kind.clone());
        blocking(move || begin(&stage, &kind)).await??;
    }
    while Instant::now() < over {
        sleep_until(over.min(Instant::now() + AGAIN).into()).await;
        let (stage, kind) = (Arc::clone(stage), fault.kind.clone());
        blocking(move || go_on(&stage, &kind)).await??;
    }
    if fault.kind == Kind::DiskFull {
        artefacts::clear(stage).await;
    } else {
        let (stage, kind) = (Arc::clone(stage), fault.kind.clone());
        blocking(move || end(&stage, &kind)).await?;
    }
    stage.history.note(Event::FaultEnded { fault: number });
    Ok(())
}

/// Causes a fault for a time that is not one of the plan's.
pub async fn once(stage: &Arc<Stage>, kind: Kind, time: Duration) -> Result<(), String> {
    let (at, of) = (Arc::clone(stage), kind.clone());
    blocking(move || begin(&at, &of)).await??;
    sleep(time).await;
    let at = Arc::clone(stage);
    blocking(move || end(&at, &kind)).await
}

/// The reason why this machine does not permit a fault, if it does not.
fn left_out(stage: &Stage, kind: &Kind) -> Option<String> {
    if *kind != Kind::DiskFilled {
        return None;
    }
    let reason = |service: &mut Service| service.disk().err().map(str::to_owned);
    stage.with(reason).flatten()
}

fn begin(stage: &Stage, kind: &Kind) -> Result<(), String> {
    match kind {
        Kind::Kill { process } => stage.kill(process),
        Kind::Freeze { process } => {
            stage.with(|service| service.signal(process, Signal::STOP));
        }
        Kind::DiskFilled => return fill(stage),
        Kind::Wire { process, end, cut } => on_wire(stage, process, *end, |wire| match cut {
            Cut::Resets => wire.reset(),
            Cut::Held => wire.set(Flow::Held),
            Cut::Lost => wire.set(Flow::Lost),
            Cut::AnswersLost => wire.set(Flow::AnswersLost),
        }),
        kind => on_stores(stage, |fleet| break_store(fleet, kind)),
    }
    Ok(())
}

/// Repeats what a fault does while it lasts.
fn go_on(stage: &Stage, kind: &Kind) -> Result<(), String> {
    match kind {
        // Room that the service frees meanwhile is taken as well.
        Kind::DiskFilled => fill(stage),
        Kind::Wire {
            process,
            end,
            cut: Cut::Resets,
        } => {
            on_wire(stage, process, *end, Wire::reset);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn end(stage: &Stage, kind: &Kind) {
    match kind {
        Kind::Kill { process } => stage.revive(process),
        Kind::Freeze { process } => {
            stage.with(|service| service.signal(process, Signal::CONT));
        }
        Kind::DiskFilled => {
            stage.with(|service| service.disk().map(Disk::empty).ok());
        }
        Kind::Wire { process, end, .. } => {
            on_wire(stage, process, *end, |wire| wire.set(Flow::Free));
        }
        kind => on_stores(stage, |fleet| mend_store(fleet, kind)),
    }
}

fn fill(stage: &Stage) -> Result<(), String> {
    let filled = stage.with(|service| service.disk().map(Disk::fill).unwrap_or(Ok(())));
    let filled = filled.unwrap_or(Ok(()));
    filled.map_err(|error| format!("the disk cannot be filled: {error}"))
}

fn on_wire(stage: &Stage, process: &str, end: End, action: impl FnOnce(&Wire)) {
    stage.with(|service| service.wire(process, end).map(action));
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
        // These affect one process, or the disk.
        _ => {}
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
        _ => {}
    }
}
