//! The state that all threads of a worker share: loaded instances, broken instances, counters.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use sextant_types::{Variant, VariantId};

use crate::{instance::Instance, log::Log};

/// See the module.
pub(crate) struct Shared {
    loaded: RwLock<HashMap<VariantId, Arc<Instance>>>,
    given_up: Mutex<Vec<BrokenInstance>>,
    /// Notified for each entry of `given_up`.
    pub(crate) news: tokio::sync::Notify,
    pub(crate) log: Log,
    started: Instant,
    /// Share of core time in use in the last window, in millionths.
    pub(crate) utilization_millionths: AtomicU64,
    /// Rows of the batches that ran.
    pub(crate) rows: AtomicU64,
    /// Slot-nanoseconds in which slots were held, up to the last look.
    pub(crate) busy_slot_nanos: AtomicU64,
    /// Bytes of inputs that have arrived and are not answered.
    io_used: AtomicU64,
    io_bytes: u64,
    /// Whether the worker leaves: its process ends, or it was told to leave.
    pub(crate) draining: AtomicBool,
    /// Notified when the worker is told to leave.
    pub(crate) leave: tokio::sync::Notify,
    /// Batches that arrived and were not refused for want of room.
    accepted: AtomicU64,
    /// Accepted batches that have been answered.
    answered: AtomicU64,
}

/// A broken instance of which the state machine has not been told.
pub(crate) struct BrokenInstance {
    pub(crate) variant: Arc<Variant>,
    pub(crate) reason: String,
}

impl Shared {
    pub(crate) fn new(io_bytes: u64) -> Self {
        Self {
            loaded: RwLock::default(),
            given_up: Mutex::default(),
            news: tokio::sync::Notify::new(),
            log: Log::new(),
            started: Instant::now(),
            utilization_millionths: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            busy_slot_nanos: AtomicU64::new(0),
            io_used: AtomicU64::new(0),
            io_bytes,
            draining: AtomicBool::new(false),
            leave: tokio::sync::Notify::new(),
            accepted: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }

    pub(crate) fn note_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_late(&self, variant: &VariantId) {
        if let Some(instance) = self.instance(variant) {
            instance.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of accepted batches, and of those that are not answered.
    pub(crate) fn batches(&self) -> (u64, u64) {
        // Read in this order, so that the second number is never too large.
        let answered = self.answered.load(Ordering::Acquire);
        let accepted = self.accepted.load(Ordering::Acquire);
        (accepted, accepted.saturating_sub(answered))
    }

    /// The instance of a loaded variant.
    pub(crate) fn instance(&self, variant: &VariantId) -> Option<Arc<Instance>> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.get(variant).cloned()
    }

    /// All loaded instances, in order of their variants' names.
    pub(crate) fn instances(&self) -> Vec<Arc<Instance>> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = loaded.values().cloned().collect();
        all.sort_by(|a, b| a.variant.id.cmp(&b.variant.id));
        all
    }

    pub(crate) fn insert(&self, instance: Arc<Instance>) {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        loaded.insert(instance.variant.id.clone(), instance);
    }

    /// Removes exactly this instance. Returns whether it was there.
    pub(crate) fn remove(&self, instance: &Arc<Instance>) -> bool {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let id = &instance.variant.id;
        let there = loaded.get(id).is_some_and(|it| Arc::ptr_eq(it, instance));
        if there {
            loaded.remove(id);
        }
        there
    }

    /// Marks the instance as broken: nothing begins on it any more. Batches that other threads run
    /// on it are still answered.
    pub(crate) fn give_up(&self, instance: &Arc<Instance>, reason: &str) {
        instance.leave();
        if !self.remove(instance) {
            return;
        }
        tracing::error!(variant = %instance.variant.id, "gave the instance up: {reason}");
        let entry = BrokenInstance {
            variant: Arc::clone(&instance.variant),
            reason: reason.to_owned(),
        };
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.push(entry);
        drop(given_up);
        self.news.notify_one();
    }

    /// The instances that were given up since the last call.
    pub(crate) fn take_given_up(&self) -> Vec<BrokenInstance> {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut given_up)
    }

    /// Reserves room for a batch's inputs. Fails with the number of free bytes.
    pub(crate) fn take_io(&self, bytes: u64) -> Result<(), u64> {
        let used = self.io_used.fetch_add(bytes, Ordering::Relaxed);
        if bytes > self.io_bytes.saturating_sub(used) {
            self.io_used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(self.io_bytes.saturating_sub(used));
        }
        Ok(())
    }

    pub(crate) fn return_io(&self, bytes: u64) {
        self.io_used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Nanoseconds since the worker's start.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos_at(Instant::now())
    }

    /// Nanoseconds from the worker's start to `now`.
    pub(crate) fn nanos_at(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_nanos() as u64
    }
}
