//! A batch that is to be answered, and the slot from which the watchdog can give up a running batch.

use std::{
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_engine::{Error, Interrupt};
use sextant_rpc::{ActionKind, BatchResult, Infer, InferError, InferOutcome, Part};
use sextant_types::{Code, NamedTensor, Tensor, VariantId};

use super::queue::Key;
use crate::{instance::Instance, log::Action, shared::Shared};

/// A batch without its inputs: it holds the callback for the answer. Each batch is answered exactly once; a batch that
/// is dropped is answered as failed.
///
/// The fields are in a box because a batch is moved a dozen times.
pub(super) struct Open(Box<Fields>);

/// The fields of [`Open`].
pub(super) struct Fields {
    pub(super) variant: VariantId,
    pub(super) arrived: Instant,
    pub(super) earliest: Instant,
    pub(super) latest: Option<Instant>,
    pub(super) expected: Duration,
    pub(super) offline_rows: u32,
    bytes: u64,
    shared: Arc<Shared>,
    done: Option<Box<dyn FnOnce(InferOutcome) + Send>>,
}

/// Where a thread leaves a batch before it calls the engine. The watchdog answers the batch if the thread does not
/// return.
#[derive(Default)]
pub(super) struct WatchSlot {
    running: Mutex<Option<RunningBatch>>,
    ended: AtomicBool,
}

pub(super) struct RunningBatch {
    pub(super) open: Open,
    pub(super) instance: Arc<Instance>,
    /// When the present run began. The calls before the first run count with it.
    pub(super) since: Instant,
    /// Longest time of one run.
    pub(super) limit: Duration,
    /// Longest time that the engine may take to return after it was asked to end a run.
    pub(super) grace: Duration,
    /// Ends the present run.
    pub(super) interrupt: Interrupt,
    /// When the engine was asked to end the run.
    pub(super) asked: Option<Instant>,
    /// The batch's place in the queue, if its inputs are being taken to the device ahead of its turn.
    pub(super) place: Option<Key>,
}

/// The inputs of all parts, if all are here.
fn inputs(parts: Vec<Part>) -> Option<Vec<Vec<NamedTensor>>> {
    let inputs = parts.into_iter().map(|part| match part {
        Part::Inputs(inputs) => Some(inputs),
        Part::Held(_) => None,
    });
    inputs.collect()
}

impl Open {
    /// Accepts a batch. `None` if there is no room for its inputs; then the batch has been answered.
    pub(super) fn accept(
        infer: Infer,
        shared: &Arc<Shared>,
    ) -> Option<(Self, Vec<Vec<NamedTensor>>)> {
        let parts = inputs(infer.parts);
        let tensors = parts.iter().flatten().flatten();
        let held = |tensor: &Tensor| (tensor.held_bytes() + tensor.engine_bytes()) as u64;
        let bytes = tensors.map(|input| held(&input.tensor)).sum();
        let room = shared.take_io(bytes);
        let mut open = Self(Box::new(Fields {
            variant: infer.variant,
            arrived: Instant::now(),
            earliest: infer.earliest,
            latest: infer.latest,
            expected: infer.expected,
            offline_rows: infer.offline_rows,
            bytes: if room.is_ok() { bytes } else { 0 },
            shared: Arc::clone(shared),
            done: Some(infer.done),
        }));
        shared.note_accepted();
        if let Err(free) = room {
            let reason = format!("its inputs are `{bytes}` bytes, there is room for `{free}` now");
            open.answer(Err(InferError::NoMemory(reason)), Instant::now());
            return None;
        }
        match parts {
            Some(parts) => Some((open, parts)),
            None => {
                let reason = "its inputs are held elsewhere, and this worker has no mailbox";
                open.answer(Err(InferError::failed(reason)), Instant::now());
                None
            }
        }
    }

    /// Whether it is too late to start the batch.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.latest.is_some_and(|latest| now > latest)
    }

    pub(super) fn refuse(mut self, error: InferError) {
        let now = Instant::now();
        self.answer(Err(error), now);
    }

    /// Answers with the outputs. `ended` is when the computation ended.
    pub(super) fn fulfil(mut self, result: BatchResult, ended: Instant) {
        self.answer(Ok(result), ended);
    }

    fn answer(&mut self, outcome: InferOutcome, ended: Instant) {
        let fields = &mut *self.0;
        let Some(done) = fields.done.take() else {
            return;
        };
        fields.shared.note_answered();
        if let Err(InferError::TooLate) = &outcome {
            fields.shared.note_late(&fields.variant);
        }
        let note = match &outcome {
            Ok(result) => {
                let timings = &result.timings;
                let us = timings.input_us + timings.exec_us + timings.output_us;
                Ok(Some(Action {
                    expected: fields.expected,
                    actual: Duration::try_from_secs_f64(us / 1e6).unwrap_or_default(),
                    earliest: fields.earliest.max(fields.arrived),
                    ended,
                }))
            }
            Err(error) => Err(error.code()),
        };
        fields.shared.log.note(ActionKind::Infer, note);
        fields.shared.return_io(fields.bytes);
        if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
            tracing::error!("a result handler panicked");
        }
    }
}

impl Deref for Open {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.done.is_some() {
            self.answer(
                Err(InferError::failed("the worker lost the batch")),
                Instant::now(),
            );
        }
    }
}

// === impl WatchSlot ===

impl WatchSlot {
    /// The thread is about to call the engine.
    pub(super) fn begin(&self, running: RunningBatch) {
        *self.lock() = Some(running);
    }

    /// The engine has returned. `None` if the batch was given up in the meantime: the thread has been replaced and must
    /// end.
    pub(super) fn end(&self) -> Option<RunningBatch> {
        self.lock().take()
    }

    /// Begins another run of the batch; the time limit starts anew. `None` if the batch was given up in the meantime.
    pub(super) fn next_run(&self) -> Option<Interrupt> {
        let mut running = self.lock();
        let running = running.as_mut()?;
        running.since = Instant::now();
        running.asked = None;
        running.interrupt = Interrupt::default();
        Some(running.interrupt.clone())
    }

    /// Asks a run that is past its limit to end. Takes the batch from a thread whose run cannot be ended or does not
    /// end.
    pub(super) fn take_overdue(&self, now: Instant) -> Option<RunningBatch> {
        let mut running = self.lock();
        if running.as_mut().is_some_and(|it| it.is_stuck(now)) {
            return running.take();
        }
        None
    }

    /// Notes that the thread has ended for good.
    pub(super) fn leave(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningBatch>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RunningBatch ===

impl RunningBatch {
    /// Whether the thread is to be given up. A run that is past its limit is first asked to end.
    fn is_stuck(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) <= self.limit {
            return false;
        }
        // The engine is asked again at each look: at an earlier look it may not have begun what can be ended.
        let is_heard = self.interrupt.raise();
        match self.asked {
            Some(asked) => !is_heard || now.saturating_duration_since(asked) > self.grace,
            None => {
                self.asked = Some(now);
                false
            }
        }
    }
}

/// An engine's error as the failure of a batch or of a part.
pub(super) fn failure(error: &Error) -> InferError {
    let code = match error {
        // For a part of a shared batch; alone, the same query is refused.
        Error::InvalidInput(_) => return InferError::BadShape(error.to_string()),
        Error::Interrupted => Code::TimeExceeded,
        Error::MemoryExceeded(_) => Code::MemoryExceeded,
        Error::Crashed(_) => Code::EngineCrashed,
        _ => Code::EngineFailed,
    };
    InferError::Failed {
        code,
        reason: error.to_string(),
    }
}

/// An engine's error as the answer to a batch of `variant`.
pub(super) fn refusal(variant: &VariantId, error: Error) -> InferError {
    match error {
        Error::OutOfMemory(shortage) => InferError::NoMemory(shortage.to_string()),
        Error::Lost(reason) => InferError::Lost {
            variant: variant.clone(),
            reason,
        },
        Error::Gone(_) => InferError::NotLoaded(variant.clone()),
        // The model is loaded again: its running batches are void.
        Error::Restarted(_) => InferError::WeightsChanged(variant.clone()),
        error => failure(&error),
    }
}
