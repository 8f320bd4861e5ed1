//! The batches that wait, and who does what next.
//!
//! EXEC threads take batches by `earliest`. On a device of its own, inputs are taken to the device
//! ahead of their turn: by the EXEC thread where it waits anyway, by the IO thread while a batch
//! runs. An idle device thus never hands a batch from thread to thread. On a CPU there is no IO
//! thread: INPUT and OUTPUT would compete with EXEC for the same cores and gain nothing.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use sextant_rpc::InferError;
use sextant_types::NamedTensor;

use super::{
    batch::{Prepared, Ran},
    open::Open,
};
pub(super) use crate::agenda::Key;
use crate::{
    agenda::{Agenda, lock, wait, wait_until},
    instance::Instance,
};

/// Batches whose inputs are taken to the device ahead of their turn: enough that the device does not
/// wait for inputs, few enough that most of its memory for them is left.
const AHEAD: usize = 4;

/// Longest that OUTPUT takes as a rule: a start that is further away is not delayed by it.
const OUTPUT: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct Queue {
    /// Whether the device has an executor of its own, and so an IO thread here.
    dedicated: bool,
    state: Mutex<State>,
    exec: Condvar,
    io: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Agenda<Place>,
    outputs: VecDeque<Finished>,
    closed: bool,
    /// EXEC threads that wait for a change.
    idle: usize,
    /// Whether a device of its own is in EXEC: only then is there time to win by another thread.
    busy: bool,
    /// Whether the IO thread waits for a change.
    io_idle: bool,
    /// When the first of the waiting EXEC threads wakes by itself.
    alarm: Option<Instant>,
    /// Places that are staged or being staged.
    ahead: usize,
}

enum Place {
    Waiting(Batch),
    /// A thread has the batch and takes its inputs to the device.
    Staging,
}

/// A batch before EXEC.
pub(super) struct Batch {
    pub(super) open: Open,
    pub(super) input: Input,
}

pub(super) enum Input {
    /// As they came. `tried`: they could not be staged, because the variant was not loaded yet.
    Parts {
        parts: Vec<Vec<NamedTensor>>,
        tried: bool,
    },
    /// After INPUT.
    Ready(Box<Prepared>),
}

/// A batch after EXEC.
pub(super) struct Finished {
    pub(super) open: Open,
    pub(super) after: After,
}

/// What EXEC gave, and when.
pub(super) struct After {
    pub(super) prepared: Prepared,
    pub(super) ran: Ran,
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

/// What an EXEC thread does next.
pub(super) enum Task {
    /// It is this batch's turn, as of now.
    Exec(Batch, Instant),
    /// INPUT, ahead of its turn.
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

    /// Adds a batch; gives it back after the shutdown.
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
            } else if self.dedicated && *ahead < AHEAD && first.get().can_stage() {
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

    /// Puts a batch back to its place after INPUT; gives it back after the shutdown.
    pub(super) fn put_back(&self, key: &Key, batch: Batch) -> Result<(), Box<Batch>> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Box::new(batch));
        }
        // An instance that has left in the meantime must not be held by what waits.
        let (batch, left) = match batch.input {
            Input::Ready(mut prepared) if !prepared.instance.is_live() => {
                let left = prepared.leave();
                (batch_of(batch.open, prepared.into_parts()), Some(left))
            }
            input => (
                Batch {
                    open: batch.open,
                    input,
                },
                None,
            ),
        };
        if !matches!(batch.input, Input::Ready(_)) {
            state.ahead -= 1;
        }
        if let Some(place) = state.waiting.get_mut(key) {
            *place = Place::Waiting(batch);
        }
        self.wake_staged(state);
        drop(left);
        Ok(())
    }

    /// Gives the place of a batch up that was answered instead of put back.
    pub(super) fn give_up(&self, key: &Key) {
        let mut state = lock(&self.state);
        if state.waiting.remove(key).is_some() {
            state.ahead -= 1;
        }
        self.wake_staged(state);
    }

    /// Hands OUTPUT to the IO thread where other batches wait for EXEC; otherwise gives it back.
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

    /// Undoes the INPUT of batches that wait with their inputs on an instance that has left.
    pub(super) fn unstage(&self, instance: &Arc<Instance>) {
        let mut left = Vec::new();
        let mut state = lock(&self.state);
        for (_, place) in state.waiting.iter_mut() {
            let staged = matches!(place, Place::Waiting(Batch { input: Input::Ready(it), .. })
                if Arc::ptr_eq(&it.instance, instance));
            if !staged {
                continue;
            }
            if let Place::Waiting(batch) = std::mem::replace(place, Place::Staging) {
                let Batch { open, input } = batch;
                if let Input::Ready(mut prepared) = input {
                    left.push(prepared.leave());
                    *place = Place::Waiting(batch_of(open, prepared.into_parts()));
                }
            }
        }
        state.ahead -= left.len();
        drop(state);
        // Only here, without the lock, does the engine take its memory back.
        drop(left);
    }

    /// No more batches; returns those that wait. What is being staged is given back to its thread.
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

    /// Lets an EXEC thread wait. One of them wakes for the next start; the others wait for a change.
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

    /// A batch is about to run: what else there is to do is others' work.
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

// === impl State ===

impl State {
    /// The batch of a place that has been taken out for EXEC.
    fn begin(&mut self, place: Place) -> Option<Batch> {
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

    /// The first of the next batches whose inputs are not on the device yet.
    fn stage_next(&mut self) -> Option<(Key, Batch)> {
        let State { waiting, ahead, .. } = self;
        if *ahead >= AHEAD {
            return None;
        }
        let mut next = waiting.iter_mut().take(2 * AHEAD);
        let (key, place) = next.find(|(_, place)| place.can_stage())?;
        Some((*key, place.stage(ahead)?))
    }
}

// === impl Place ===

impl Place {
    fn can_stage(&self) -> bool {
        matches!(
            self,
            Self::Waiting(Batch {
                input: Input::Parts { tried: false, .. },
                ..
            })
        )
    }

    /// Takes the batch out, to be put back with its inputs on the device.
    fn stage(&mut self, ahead: &mut usize) -> Option<Batch> {
        match std::mem::replace(self, Self::Staging) {
            Self::Waiting(batch) => {
                *ahead += 1;
                Some(batch)
            }
            Self::Staging => None,
        }
    }
}

fn batch_of(open: Open, parts: Vec<Vec<NamedTensor>>) -> Batch {
    let input = Input::Parts {
        parts,
        tried: false,
    };
    Batch { open, input }
}

/// The answer to what waits at the shutdown.
pub(super) fn refuse_all(waiting: Vec<Open>) {
    for open in waiting {
        open.refuse(InferError::ShuttingDown);
    }
}
