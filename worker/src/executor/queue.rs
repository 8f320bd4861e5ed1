//! The waiting batches, and the choice of the next task of each thread.
//!
//! EXEC threads take batches by `earliest`. On a device with an executor of its own, inputs are
//! taken to the device ahead of their turn: by the EXEC thread while it has nothing to run, by the
//! IO thread while a batch runs. So an idle device never passes a batch from one thread to another.
//! A CPU has no IO thread: INPUT and OUTPUT would compete with EXEC for the same cores.

mod state;

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use sextant_rpc::InferError;
use sextant_types::VariantId;

pub(super) use self::state::{After, Batch, Finished, Input};
use self::state::{Place, State};
use super::open::Open;
pub(super) use crate::timed_queue::Key;
use crate::{
    instance::Instance,
    timed_queue::{lock, wait, wait_until},
};

/// Usual upper bound of OUTPUT's duration. OUTPUT does not delay a start that is further away.
const OUTPUT: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct Queue {
    /// Whether the device has an executor of its own and therefore an IO thread.
    dedicated: bool,
    state: Mutex<State>,
    exec: Condvar,
    io: Condvar,
}

/// What an EXEC thread does next.
pub(super) enum Task {
    /// EXEC of this batch, whose turn has come. The instant is the present time.
    Exec(Batch, Instant),
    /// INPUT of this batch, ahead of its turn.
    Stage(Key, Batch),
}

/// What the IO thread does next.
pub(super) enum IoTask {
    Stage(Key, Batch),
    Output(Finished),
}

impl Queue {
    pub(super) fn new(dedicated: bool) -> Self {
        Self {
            dedicated,
            state: Mutex::default(),
            exec: Condvar::new(),
            io: Condvar::new(),
        }
    }

    pub(super) fn dedicated(&self) -> bool {
        self.dedicated
    }

    /// Adds a batch. Returns it after the shutdown.
    pub(super) fn push(&self, batch: Batch) -> Result<(), Box<Batch>> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Box::new(batch));
        }
        state
            .waiting
            .push(batch.open.earliest, Place::Waiting(batch));
        if state.idle > 0 {
            drop(state);
            self.exec.notify_one();
        } else {
            self.wake_io(&mut state);
        }
        Ok(())
    }

    /// The next task of an EXEC thread; `None` after the shutdown.
    pub(super) fn next(&self) -> Option<Task> {
        let mut state = lock(&self.state);
        state.busy = false;
        loop {
            let State { waiting, ahead, .. } = &mut *state;
            let Some(mut first) = waiting.first() else {
                if state.closed {
                    return None;
                }
                state = self.rest(state, None);
                continue;
            };
            let key = *first.key();
            if let Place::Staging = first.get() {
                state = self.rest(state, None);
                continue;
            }
            let now = Instant::now();
            if key.earliest <= now {
                let place = first.remove();
                if let Some(batch) = state.begin(place) {
                    self.wake_others(&mut state);
                    return Some(Task::Exec(batch, now));
                }
            } else if self.dedicated && *ahead < state::AHEAD && first.get().can_stage() {
                if let Some(batch) = first.get_mut().stage(ahead) {
                    return Some(Task::Stage(key, batch));
                }
            } else {
                state = self.rest(state, Some(key.earliest));
            }
        }
    }

    /// The next task of the IO thread; `None` after the shutdown.
    pub(super) fn next_io(&self) -> Option<IoTask> {
        let mut state = lock(&self.state);
        loop {
            if let Some(finished) = state.outputs.pop_front() {
                return Some(IoTask::Output(finished));
            }
            if state.closed {
                return None;
            }
            if state.busy
                && let Some((key, batch)) = state.stage_next()
            {
                return Some(IoTask::Stage(key, batch));
            }
            state.io_idle = true;
            state = wait(&self.io, state);
            state.io_idle = false;
        }
    }

    /// Puts a batch back into its place after INPUT. Returns it after the shutdown.
    pub(super) fn put_back(&self, key: &Key, batch: Batch) -> Result<(), Box<Batch>> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Box::new(batch));
        }
        let left = state.put_back(key, batch);
        self.wake_staged(state);
        drop(left);
        Ok(())
    }

    /// Gives up the place of a batch that was answered instead of put back.
    pub(super) fn give_up(&self, key: &Key) {
        let mut state = lock(&self.state);
        if state.waiting.remove(key).is_some() {
            state.ahead -= 1;
        }
        self.wake_staged(state);
    }

    /// Gives OUTPUT to the IO thread if other batches wait for EXEC. Otherwise returns it to the
    /// caller.
    pub(super) fn hand_over(&self, finished: Finished) -> Option<Finished> {
        if !self.dedicated {
            return Some(finished);
        }
        let mut state = lock(&self.state);
        let soon = Instant::now() + OUTPUT;
        let next = state.waiting.first().map(|first| first.key().earliest);
        if state.closed || next.is_none_or(|earliest| earliest > soon) {
            state.busy = false;
            return Some(finished);
        }
        state.outputs.push_back(finished);
        self.wake_io(&mut state);
        None
    }

    /// Undoes the INPUT of waiting batches whose inputs are on an instance that has left.
    pub(super) fn unstage(&self, instance: &Arc<Instance>) {
        let left = lock(&self.state).unstage(instance);
        // The engine frees the memory here, without the lock.
        drop(left);
    }

    /// Whether a batch of the variant waits. A batch whose inputs are on their way may be of any
    /// variant.
    pub(super) fn awaits(&self, variant: &VariantId) -> bool {
        lock(&self.state).awaits(variant)
    }

    /// A variant has been loaded: batches that came before that can be staged.
    pub(super) fn loaded(&self, variant: &VariantId) {
        if self.dedicated {
            let mut state = lock(&self.state);
            state.try_again(variant);
            self.wake_staged(state);
        }
    }

    /// Closes the queue and returns the waiting batches. A batch that is being staged is returned
    /// to its thread.
    pub(super) fn close(&self) -> Vec<Open> {
        let mut state = lock(&self.state);
        state.closed = true;
        let waiting = state.waiting.take();
        state.ahead = 0;
        drop(state);
        self.exec.notify_all();
        self.io.notify_all();
        let open = |place| match place {
            Place::Waiting(batch) => Some(batch.open),
            Place::Staging => None,
        };
        waiting.into_values().filter_map(open).collect()
    }

    /// Lets an EXEC thread wait. One thread wakes for the next start; the others wait for a change.
    fn rest<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        let until = until.filter(|until| state.alarm.is_none_or(|alarm| *until < alarm));
        state.idle += 1;
        let mut state = match until {
            None => wait(&self.exec, state),
            Some(until) => {
                state.alarm = Some(until);
                let mut state = wait_until(&self.state, &self.exec, state, until);
                if state.alarm == Some(until) {
                    state.alarm = None;
                }
                state
            }
        };
        state.idle -= 1;
        state
    }

    /// Wakes other threads, because the calling thread is about to run a batch.
    fn wake_others(&self, state: &mut State) {
        if !state.waiting.is_empty() {
            if state.idle > 0 {
                self.exec.notify_one();
            }
            self.wake_io(state);
        }
    }

    fn wake_staged(&self, mut state: MutexGuard<'_, State>) {
        self.wake_io(&mut state);
        if state.idle > 0 {
            drop(state);
            self.exec.notify_one();
        }
    }

    fn wake_io(&self, state: &mut State) {
        if state.io_idle && (state.busy || !state.outputs.is_empty()) {
            self.io.notify_one();
        }
    }
}

/// Answers the batches that wait at the shutdown.
pub(super) fn refuse_all(waiting: Vec<Open>) {
    for open in waiting {
        open.refuse(InferError::ShuttingDown);
    }
}
