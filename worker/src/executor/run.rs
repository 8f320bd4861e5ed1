//! What the EXEC and IO threads do.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sextant_engine::Error;
use sextant_rpc::{BatchResult, BatchTimings, InferError};

use super::{
    Core,
    batch::{Prepared, Ran},
    open::{Open, Post, Running, refusal},
    queue::{Batch, Finished, Input, IoTask, Key, Task},
};
use crate::instance::{Instance, panic_text};

/// The thread has been given up while it was in the engine, and must end.
struct Replaced;

/// An EXEC thread, until the shutdown.
pub(super) fn exec(core: &Core, post: &Post) {
    while let Some(task) = core.queue.next() {
        let work = || match task {
            Task::Exec(batch) => execute(core, post, batch),
            Task::Stage(key, batch) => stage(core, post, key, batch),
        };
        if guard(core, post, work).is_err() {
            return;
        }
    }
}

/// The IO thread, until the shutdown.
pub(super) fn io(core: &Core, post: &Post) {
    while let Some(task) = core.queue.next_io() {
        let work = || match task {
            IoTask::Stage(key, batch) => stage(core, post, key, batch),
            IoTask::Output(finished) => output(core, post, finished),
        };
        if guard(core, post, work).is_err() {
            return;
        }
    }
}

/// Panics of engines end where they are called. This one is for what should not be: the batch is
/// answered as failed when it is dropped, and the thread goes on.
fn guard(
    core: &Core,
    post: &Post,
    work: impl FnOnce() -> Result<(), Replaced>,
) -> Result<(), Replaced> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        tracing::error!("the worker panicked: {}", panic_text(&*panic));
        let key = post.end().and_then(|running| running.place);
        key.into_iter().for_each(|key| core.queue.give_up(&key));
        Ok(())
    })
}

/// INPUT of a batch ahead of its turn.
fn stage(core: &Core, post: &Post, key: Key, batch: Batch) -> Result<(), Replaced> {
    let Batch { open, input } = batch;
    let Input::Parts { parts, .. } = input else {
        return put_back(core, &key, Batch { open, input });
    };
    if open.is_late(Instant::now()) {
        core.queue.give_up(&key);
        open.refuse(InferError::TooLate);
        return Ok(());
    }
    let Some(instance) = core.shared.instance(&open.variant) else {
        // It may be loaded when its turn comes.
        let input = Input::Parts { parts, tried: true };
        return put_back(core, &key, Batch { open, input });
    };
    post.begin(running(core, open, &instance, Some(key)));
    let prepared = Prepared::new(Arc::clone(&instance), parts);
    let open = post.end().ok_or(Replaced)?.open;
    match prepared {
        Ok(prepared) => {
            let input = Input::Ready(Box::new(prepared));
            put_back(core, &key, Batch { open, input })
        }
        Err(error) => {
            core.queue.give_up(&key);
            fail(core, open, &instance, error);
            Ok(())
        }
    }
}

fn put_back(core: &Core, key: &Key, batch: Batch) -> Result<(), Replaced> {
    if let Err(batch) = core.queue.put_back(key, batch) {
        batch.open.refuse(InferError::ShuttingDown);
    }
    Ok(())
}

/// A batch whose turn has come.
fn execute(core: &Core, post: &Post, batch: Batch) -> Result<(), Replaced> {
    let Batch { open, input } = batch;
    let begun = Instant::now();
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
    let (arrived, latest) = (open.arrived, open.latest);
    post.begin(running(core, open, &instance, None));
    let prepared = match ready {
        Some(prepared) => Ok(prepared),
        None => Prepared::new(Arc::clone(&instance), parts),
    };
    let started = Instant::now();
    let ran = prepared.and_then(|prepared| {
        if latest.is_some_and(|latest| started > latest) {
            return Ok((prepared, None));
        }
        run(core, prepared, started)
    });
    let open = post.end().ok_or(Replaced)?.open;
    match ran {
        _ if instance.is_void() => {
            let variant = open.variant.clone();
            open.refuse(InferError::WeightsChanged(variant));
            Ok(())
        }
        Ok((_, None)) => {
            open.refuse(InferError::TooLate);
            Ok(())
        }
        Ok((prepared, Some((ran, mut timings)))) => {
            timings.queue_us =
                (us(started.saturating_duration_since(arrived)) - timings.input_us).max(0.0);
            let finished = Finished {
                open,
                prepared,
                ran,
                timings,
            };
            match core.queue.hand_over(finished) {
                Some(finished) => output(core, post, finished),
                None => Ok(()),
            }
        }
        Err(error) => {
            fail(core, open, &instance, error);
            Ok(())
        }
    }
}

type Exec = (Prepared, Option<(Ran, BatchTimings)>);

/// EXEC.
fn run(core: &Core, mut prepared: Prepared, started: Instant) -> Result<Exec, Error> {
    let ran = prepared.exec();
    let took = started.elapsed();
    let (shared, instance) = (&core.shared, &prepared.instance);
    let busy = if core.queue.dedicated() {
        took
    } else {
        // INPUT has kept the same cores busy.
        (took + prepared.took) * u32::from(instance.variant.spec.threads)
    };
    let spent = busy.as_nanos() as u64;
    shared.busy_nanos.fetch_add(spent, Ordering::Relaxed);
    instance.last_used.store(shared.nanos(), Ordering::Relaxed);
    let ran = ran?;
    instance.count(prepared.rows(), took);
    let device = match &ran {
        Ran::Staged(_, device) => *device,
        Ran::Joined(_) | Ran::Apart(_) => None,
    };
    let timings = BatchTimings {
        started,
        queue_us: 0.0,
        input_us: us(prepared.took),
        exec_us: us(took),
        output_us: 0.0,
        device_us: device.map(us),
    };
    Ok((prepared, Some((ran, timings))))
}

/// OUTPUT, and the answer.
fn output(core: &Core, post: &Post, finished: Finished) -> Result<(), Replaced> {
    let Finished {
        mut open,
        prepared,
        ran,
        mut timings,
    } = finished;
    let begun = Instant::now();
    let instance = Arc::clone(&prepared.instance);
    // Only what is still on the device takes a call of the engine.
    let outputs = if let Ran::Staged(..) = ran {
        post.begin(running(core, open, &instance, None));
        let outputs = prepared.output(ran);
        open = post.end().ok_or(Replaced)?.open;
        outputs
    } else {
        prepared.output(ran)
    };
    timings.output_us = us(begun.elapsed());
    match outputs {
        Ok(outputs) => open.fulfil(BatchResult { outputs, timings }),
        Err(error) => fail(core, open, &instance, error),
    }
    Ok(())
}

/// Answers with an engine's error; a lost engine takes its instance with it.
fn fail(core: &Core, open: Open, instance: &Arc<Instance>, error: Error) {
    if let Error::Lost(reason) = &error {
        core.shared.give_up(instance, reason);
        core.queue.unstage(instance);
    }
    let refusal = refusal(&open.variant, error);
    open.refuse(refusal);
}

/// What the watchdog must know of a call of the engine that is about to begin.
fn running(core: &Core, open: Open, instance: &Arc<Instance>, place: Option<Key>) -> Running {
    // The profile's largest batch, where nothing is known of this one.
    let (spec, profile) = (&instance.variant.spec, &instance.variant.profile);
    let profiled_ms = profile.latency_ms(u32::from(spec.max_batch));
    let profiled = Duration::try_from_secs_f64(profiled_ms / 1e3);
    let expected = open.expected.max(profiled.unwrap_or_default());
    Running {
        limit: core.config.watchdog.batch_limit(expected),
        instance: Arc::clone(instance),
        since: Instant::now(),
        place,
        open,
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
