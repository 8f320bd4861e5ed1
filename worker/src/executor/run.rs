//! What the EXEC and IO threads do.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sextant_engine::{Error, Interrupt};
use sextant_rpc::{BatchResult, BatchTimings, InferError};

use super::{
    Core,
    batch::{ExecutedBatch, PreparedBatch},
    open::{Open, RunningBatch, WatchSlot, refusal},
    queue::{After, Batch, Finished, Input, IoTask, Key, Task},
};
use sextant_types::NamedTensor;

use crate::{
    busy::{Amount, SlotGuard},
    instance::{Instance, panic_text},
    pin::ThreadPin,
};

/// A batch's turn on the device.
#[derive(Clone, Copy)]
struct Turn {
    begun: Instant,
    latest: Option<Instant>,
    offline_rows: u32,
}

/// The thread was given up while it was in the engine, and must end.
struct Abandonment;

/// Runs an EXEC thread until the shutdown.
pub(super) fn exec(core: &Core, watched: &WatchSlot, mut pinned: ThreadPin) {
    pinned.apply(&core.pins);
    while let Some(task) = core.queue.next() {
        pinned.apply(&core.pins);
        let work = || match task {
            Task::Exec(batch, now) => execute(core, watched, batch, now),
            Task::Stage(key, batch) => stage(core, watched, key, batch),
        };
        if guard(core, watched, work).is_err() {
            return;
        }
    }
}

/// Runs the IO thread until the shutdown.
pub(super) fn io(core: &Core, watched: &WatchSlot) {
    while let Some(task) = core.queue.next_io() {
        let work = || match task {
            IoTask::Stage(key, batch) => stage(core, watched, key, batch),
            IoTask::Output(finished) => output(core, watched, finished),
        };
        if guard(core, watched, work).is_err() {
            return;
        }
    }
}

/// Catches panics of the worker's own code; those of engines are caught at the call. The batch is
/// answered as failed when it is dropped, and the thread goes on.
fn guard(
    core: &Core,
    watched: &WatchSlot,
    work: impl FnOnce() -> Result<(), Abandonment>,
) -> Result<(), Abandonment> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        tracing::error!("the worker panicked: {}", panic_text(&*panic));
        let key = watched.end().and_then(|running| running.place);
        key.into_iter().for_each(|key| core.queue.give_up(&key));
        Ok(())
    })
}

/// INPUT of a batch ahead of its turn.
fn stage(core: &Core, watched: &WatchSlot, key: Key, batch: Batch) -> Result<(), Abandonment> {
    let Batch { open, input } = batch;
    let Input::Parts { parts, .. } = input else {
        put_back(core, &key, Batch { open, input });
        return Ok(());
    };
    let begun = Instant::now();
    if open.is_late(begun) {
        core.queue.give_up(&key);
        open.refuse(InferError::TooLate);
        return Ok(());
    }
    let Some(instance) = core.shared.instance(&open.variant) else {
        // The variant may be loaded when the batch's turn comes.
        let input = Input::Parts { parts, tried: true };
        put_back(core, &key, Batch { open, input });
        return Ok(());
    };
    watched.begin(running(core, open, &instance, begun, Some(key)));
    let prepared = PreparedBatch::new(Arc::clone(&instance), parts);
    let open = watched.end().ok_or(Abandonment)?.open;
    match prepared {
        Ok(mut prepared) => {
            prepared.took = begun.elapsed();
            let input = Input::Ready(Box::new(prepared));
            put_back(core, &key, Batch { open, input });
        }
        Err(error) => {
            core.queue.give_up(&key);
            fail(core, open, &instance, error);
        }
    }
    Ok(())
}

fn put_back(core: &Core, key: &Key, batch: Batch) {
    if let Err(batch) = core.queue.put_back(key, batch) {
        batch.open.refuse(InferError::ShuttingDown);
    }
}

/// Runs a batch whose turn has come.
fn execute(
    core: &Core,
    watched: &WatchSlot,
    batch: Batch,
    begun: Instant,
) -> Result<(), Abandonment> {
    let Batch { open, input } = batch;
    if open.is_late(begun) {
        open.refuse(InferError::TooLate);
        return Ok(());
    }
    let (ready, parts) = match input {
        Input::Ready(prepared) if prepared.instance.is_live() => (Some(*prepared), Vec::new()),
        Input::Ready(prepared) => (None, prepared.into_parts()),
        Input::Parts { parts, .. } => (None, parts),
    };
    let instance = match &ready {
        Some(prepared) => Some(Arc::clone(&prepared.instance)),
        None => core.shared.instance(&open.variant),
    };
    let Some(instance) = instance else {
        let variant = open.variant.clone();
        open.refuse(InferError::NotLoaded(variant));
        return Ok(());
    };
    let turn = Turn {
        begun,
        latest: open.latest,
        offline_rows: open.offline_rows,
    };
    watched.begin(running(core, open, &instance, begun, None));
    let ran = input_and_exec(core, watched, &instance, (ready.ok_or(parts), turn));
    let open = watched.end().ok_or(Abandonment)?.open;
    // The version of the weights is compared again: outputs of an instance that was unloaded
    // meanwhile are not returned.
    let ran = match ran {
        _ if instance.is_void() => Err(InferError::WeightsChanged(open.variant.clone())),
        Err(error) => {
            fail(core, open, &instance, error);
            return Ok(());
        }
        Ok(None) => Err(InferError::TooLate),
        Ok(Some(ran)) => Ok(ran),
    };
    match ran {
        Err(error) => open.refuse(error),
        Ok(after) => {
            if let Some(finished) = core.queue.hand_over(Finished { open, after }) {
                return output(core, watched, finished);
            }
        }
    }
    Ok(())
}

/// INPUT, unless it is done already, and EXEC, unless INPUT ended after `latest`.
fn input_and_exec(
    core: &Core,
    watched: &WatchSlot,
    instance: &Arc<Instance>,
    (ready, turn): (Result<PreparedBatch, Vec<Vec<NamedTensor>>>, Turn),
) -> Result<Option<After>, Error> {
    let begun = turn.begun;
    let (mut prepared, started) = match ready {
        Ok(prepared) => (prepared, begun),
        Err(parts) => {
            let mut prepared = PreparedBatch::new(Arc::clone(instance), parts)?;
            let started = Instant::now();
            prepared.took = started - begun;
            (prepared, started)
        }
    };
    if turn.latest.is_some_and(|latest| started > latest) {
        return Ok(None);
    }
    let held = core.hold(&prepared, started, turn.offline_rows);
    let ran = prepared.exec(watched);
    drop(held);
    let ended = Instant::now();
    let last_used = core.shared.nanos_at(ended);
    instance.last_used.store(last_used, Ordering::Relaxed);
    let ran = ran?;
    let expected = instance.count(prepared.rows(), ended - started);
    core.meter(&prepared, expected);
    let rows = prepared.rows() as u64;
    core.shared.rows.fetch_add(rows, Ordering::Relaxed);
    Ok(Some(After {
        prepared,
        ran,
        started,
        ended,
    }))
}

/// OUTPUT, and the answer.
fn output(core: &Core, watched: &WatchSlot, finished: Finished) -> Result<(), Abandonment> {
    let Finished { mut open, after } = finished;
    let After {
        prepared,
        ran,
        started,
        ended,
    } = after;
    let (input, queued) = (
        prepared.took,
        started.saturating_duration_since(open.arrived),
    );
    let device = match &ran {
        ExecutedBatch::Staged(_, device) => *device,
        ExecutedBatch::Joined(_) | ExecutedBatch::Apart(_) => None,
    };
    let instance = Arc::clone(&prepared.instance);
    // Only outputs that are still on the device need a call of the engine.
    let (begun, outputs) = if let ExecutedBatch::Staged(..) = ran {
        let begun = Instant::now();
        watched.begin(running(core, open, &instance, begun, None));
        let outputs = prepared.output(ran);
        open = watched.end().ok_or(Abandonment)?.open;
        (begun, outputs)
    } else {
        (ended, prepared.output(ran))
    };
    let answered = Instant::now();
    let outputs = match outputs {
        Ok(outputs) => outputs,
        Err(error) => {
            fail(core, open, &instance, error);
            return Ok(());
        }
    };
    let timings = BatchTimings {
        started,
        queue_us: us(queued.saturating_sub(input)),
        input_us: us(input),
        exec_us: us(ended - started),
        output_us: us(answered - begun),
        device_us: device.map(us),
    };
    open.fulfil(BatchResult { outputs, timings }, answered);
    Ok(())
}

/// Answers with an engine's error. If the engine is lost, its instance is given up.
fn fail(core: &Core, open: Open, instance: &Arc<Instance>, error: Error) {
    if let Error::Lost(reason) | Error::Gone(reason) = &error {
        core.shared.give_up(instance, reason);
        core.queue.unstage(instance);
    }
    let refusal = refusal(&open.variant, error);
    open.refuse(refusal);
}

/// What the watchdog needs for calls of the engine that are about to begin.
fn running(
    core: &Core,
    open: Open,
    instance: &Arc<Instance>,
    since: Instant,
    place: Option<Key>,
) -> RunningBatch {
    // The duration of the largest batch in the profile, if nothing is expected of this batch.
    let (spec, profile) = (&instance.variant.spec, &instance.variant.profile);
    let profiled_ms = profile.latency_ms(u32::from(spec.max_batch));
    let profiled = Duration::try_from_secs_f64(profiled_ms / 1e3);
    let expected = open.expected.max(profiled.unwrap_or_default());
    let watchdog = &core.config.watchdog;
    RunningBatch {
        limit: watchdog.batch_limit(expected),
        grace: match instance.is_isolated {
            true => watchdog.kill_grace(),
            false => watchdog.end_grace,
        },
        interrupt: Interrupt::default(),
        asked: None,
        instance: Arc::clone(instance),
        since,
        place,
        open,
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

// === impl Core ===

impl Core {
    /// Adds a batch to the counts of the process. `expected` is the expected duration of EXEC, ns.
    fn meter(&self, prepared: &PreparedBatch, expected: u64) {
        let variant = &prepared.instance.variant;
        let is_elsewhere = prepared.instance.is_isolated || self.queue.dedicated();
        let threads = u64::from(variant.spec.threads.max(1));
        let engine_nanos = if is_elsewhere {
            0
        } else {
            expected.saturating_mul(threads)
        };
        self.config.process.add(prepared.amounts(), engine_nanos);
    }

    /// Holds the batch's slots for its EXEC.
    fn hold(&self, prepared: &PreparedBatch, started: Instant, offline_rows: u32) -> SlotGuard {
        let instance = &prepared.instance;
        let (slots, from) = if self.queue.dedicated() {
            (1, started)
        } else {
            // INPUT has occupied the same cores.
            let from = started.checked_sub(prepared.took).unwrap_or(started);
            (instance.variant.spec.threads.max(1), from)
        };
        let slots = Amount::of_batch(slots, prepared.rows(), offline_rows);
        instance.busy.hold(slots, from)
    }
}
