//! The state of a device's queue: the batches before EXEC, with or without their INPUT, and the
//! batches after EXEC.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use sextant_types::{NamedTensor, VariantId};

use crate::{
    executor::{
        batch::{BatchInputs, ExecutedBatch, PreparedBatch},
        open::Open,
    },
    instance::Instance,
    timed_queue::{Key, TimedQueue},
};

/// Number of batches whose inputs are taken to the device ahead of their turn. It is large enough
/// that the device does not wait for inputs, and small enough that most of the device's memory for
/// inputs stays free.
pub(super) const AHEAD: usize = 4;

/// What a batch holds of the device.
type DeviceHold = (Option<BatchInputs>, Arc<Instance>);

/// See the module.
#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: TimedQueue<Place>,
    pub(super) outputs: VecDeque<Finished>,
    pub(super) closed: bool,
    /// EXEC threads that wait for a change.
    pub(super) idle: usize,
    /// Whether a device with an executor of its own is in EXEC. Only then does work on another
    /// thread save time.
    pub(super) busy: bool,
    /// Whether the IO thread waits for a change.
    pub(super) io_idle: bool,
    /// When the EXEC thread that wakes first wakes by itself.
    pub(super) alarm: Option<Instant>,
    /// Number of places that are staged or being staged.
    pub(super) ahead: usize,
}

/// Where a batch waits.
pub(super) enum Place {
    Waiting(Batch),
    /// A thread has the batch and takes its inputs to the device.
    Staging,
}

/// A batch before EXEC.
pub(in crate::executor) struct Batch {
    pub(in crate::executor) open: Open,
    pub(in crate::executor) input: Input,
}

pub(in crate::executor) enum Input {
    /// As they came. `tried`: they could not be staged, because the variant was not loaded yet.
    Parts {
        parts: Vec<Vec<NamedTensor>>,
        tried: bool,
    },
    /// After INPUT.
    Ready(Box<PreparedBatch>),
}

/// A batch after EXEC.
pub(in crate::executor) struct Finished {
    pub(in crate::executor) open: Open,
    pub(in crate::executor) after: After,
}

/// What EXEC gave, and when.
pub(in crate::executor) struct After {
    pub(in crate::executor) prepared: PreparedBatch,
    pub(in crate::executor) ran: ExecutedBatch,
    pub(in crate::executor) started: Instant,
    pub(in crate::executor) ended: Instant,
}

// === impl State ===

impl State {
    /// The batch of a place that was taken out for EXEC.
    pub(super) fn begin(&mut self, place: Place) -> Option<Batch> {
        match place {
            Place::Waiting(batch) => {
                if matches!(batch.input, Input::Ready(_)) {
                    self.ahead -= 1;
                }
                self.busy = true;
                Some(batch)
            }
            Place::Staging => None,
        }
    }

    /// The first of the next batches whose inputs are not on the device.
    pub(super) fn stage_next(&mut self) -> Option<(Key, Batch)> {
        let State { waiting, ahead, .. } = self;
        if *ahead >= AHEAD {
            return None;
        }
        let mut next = waiting.iter_mut().take(2 * AHEAD);
        let (key, place) = next.find(|(_, place)| place.can_stage())?;
        Some((*key, place.stage(ahead)?))
    }

    /// Puts a batch back into its place after INPUT. Returns what the caller must drop without the
    /// lock.
    pub(super) fn put_back(&mut self, key: &Key, batch: Batch) -> Option<DeviceHold> {
        let Batch { open, mut input } = batch;
        let mut left = None;
        // A waiting batch must not hold an instance that has left in the meantime.
        if let Input::Ready(mut prepared) = input {
            if prepared.instance.is_live() {
                input = Input::Ready(prepared);
            } else {
                left = Some(prepared.leave());
                input = Input::parts(prepared.into_parts());
            }
        }
        if !matches!(input, Input::Ready(_)) {
            self.ahead -= 1;
        }
        if let Some(place) = self.waiting.get_mut(key) {
            *place = Place::Waiting(Batch { open, input });
        }
        left
    }

    /// Undoes the INPUT of batches on an instance that has left. Returns what the caller must drop
    /// without the lock.
    pub(super) fn unstage(&mut self, instance: &Arc<Instance>) -> Vec<DeviceHold> {
        let mut left = Vec::new();
        for (_, place) in self.waiting.iter_mut() {
            let Place::Waiting(batch) = place else {
                continue;
            };
            match std::mem::replace(&mut batch.input, Input::parts(Vec::new())) {
                Input::Ready(mut prepared) if Arc::ptr_eq(&prepared.instance, instance) => {
                    left.push(prepared.leave());
                    batch.input = Input::parts(prepared.into_parts());
                }
                input => batch.input = input,
            }
        }
        self.ahead -= left.len();
        left
    }

    /// Whether a batch of the variant waits, as far as the variant of each place is known.
    pub(super) fn awaits(&mut self, variant: &VariantId) -> bool {
        self.waiting.iter_mut().any(|(_, place)| match place {
            Place::Waiting(batch) => batch.open.variant == *variant,
            Place::Staging => true,
        })
    }

    /// Allows staging for batches of the variant that came before it was loaded.
    pub(super) fn try_again(&mut self, variant: &VariantId) {
        for (_, place) in self.waiting.iter_mut() {
            if let Place::Waiting(Batch { open, input }) = place
                && let Input::Parts { tried, .. } = input
                && open.variant == *variant
            {
                *tried = false;
            }
        }
    }
}

// === impl Input ===

impl Input {
    /// Parts as they came.
    pub(in crate::executor) fn parts(parts: Vec<Vec<NamedTensor>>) -> Self {
        Self::Parts {
            parts,
            tried: false,
        }
    }
}

// === impl Place ===

impl Place {
    pub(super) fn can_stage(&self) -> bool {
        matches!(
            self,
            Self::Waiting(Batch {
                input: Input::Parts { tried: false, .. },
                ..
            })
        )
    }

    /// Takes the batch out. The caller puts it back with its inputs on the device.
    pub(super) fn stage(&mut self, ahead: &mut usize) -> Option<Batch> {
        match std::mem::replace(self, Self::Staging) {
            Self::Waiting(batch) => {
                *ahead += 1;
                Some(batch)
            }
            Self::Staging => None,
        }
    }
}
