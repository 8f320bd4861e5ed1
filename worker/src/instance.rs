//! A loaded variant: its handle, its pages, its counters, and whether it may still be used.
//!
//! Each load makes a new instance. An unload or a failure ends the instance for good. An instance is therefore the
//! *version* of a variant's weights (Clockwork's guard): a batch that began on an instance and finds it void at the end
//! must not answer with its outputs.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use sextant_engine::{Error, LoadedModel};
use sextant_types::{Code, DeviceTypeName, Profile, Variant};
use tokio::sync::oneshot;

use crate::{busy::BusyMeter, ledger::Reservation};

/// Number of consecutive panics of an engine, without a successful run between them, after which the instance is given
/// up.
///
/// A single panic is treated as a refused batch that the engine should have refused with an error: the contract says
/// that the model is usable after a failed run. An engine that always panics does not recover, but a new instance may
/// work.
const PANICS_IN_A_ROW: u32 = 20;

/// May be used, see [`Instance::state`].
const LIVE: u8 = 0;

/// Nothing new begins on it; running batches are answered.
const LEAVING: u8 = 1;

/// Nothing new begins on it; running batches are not answered with their outputs.
const VOID: u8 = 2;

/// See the module. Fields drop in their order: first the engine gives the memory back, then the pages are free, then
/// waiting tasks are told.
pub(crate) struct Instance {
    pub(crate) variant: Arc<Variant>,
    /// The variant's profile on devices of this type; `None` if there was none at the load.
    profile: Option<Profile>,
    pub(crate) model: Arc<dyn LoadedModel>,
    /// Whether it runs in a process of its own.
    pub(crate) is_isolated: bool,
    /// Time for which its batches kept slots of the device.
    pub(crate) busy: Arc<BusyMeter>,
    /// Batches that could not start inside their windows.
    pub(crate) late: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) run_nanos: AtomicU64,
    /// The time that the profile expected for the same batches; without a profile, the time that they took.
    pub(crate) expected_nanos: AtomicU64,
    /// When it was last used, nanoseconds since the worker's start.
    pub(crate) last_used: AtomicU64,
    state: AtomicU8,
    /// Whether each part of a batch has a run of its own, because a joined run's rows could not be assigned to parts.
    is_apart: AtomicBool,
    panics_in_a_row: AtomicU32,
    pub(crate) pages: Reservation,
    /// Closes when the last batch has left the instance.
    gone: Mutex<Option<oneshot::Receiver<()>>>,
    _leaving: oneshot::Sender<()>,
}

impl Instance {
    /// An instance of a variant on a device of the given type, if the worker knows the type.
    pub(crate) fn new(
        (variant, on): (Arc<Variant>, Option<&DeviceTypeName>),
        model: Arc<dyn LoadedModel>,
        pages: Reservation,
        nanos: u64,
    ) -> Self {
        let (leaving, gone) = oneshot::channel();
        Self {
            profile: profile_on(&variant, on),
            variant,
            model,
            is_isolated: false,
            busy: BusyMeter::new(),
            late: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            run_nanos: AtomicU64::new(0),
            expected_nanos: AtomicU64::new(0),
            last_used: AtomicU64::new(nanos),
            state: AtomicU8::new(LIVE),
            is_apart: AtomicBool::new(false),
            panics_in_a_row: AtomicU32::new(0),
            pages,
            gone: Mutex::new(Some(gone)),
            _leaving: leaving,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
    }

    pub(crate) fn is_void(&self) -> bool {
        self.state.load(Ordering::Acquire) == VOID
    }

    /// From now on nothing begins on the instance.
    pub(crate) fn leave(&self) {
        self.state.fetch_max(LEAVING, Ordering::AcqRel);
    }

    /// From now on nothing begins on the instance, and the outputs of running batches are void.
    pub(crate) fn void(&self) {
        self.state.fetch_max(VOID, Ordering::AcqRel);
    }

    /// Whether parts of a batch run together.
    pub(crate) fn shares_batches(&self) -> bool {
        self.variant.shares_batches() && !self.is_apart.load(Ordering::Relaxed)
    }

    /// From now on each part of a batch has a run of its own.
    pub(crate) fn keep_apart(&self) {
        if !self.is_apart.swap(true, Ordering::Relaxed) {
            let (variant, code) = (&self.variant.id, Code::EngineFailed);
            tracing::warn!(
                %variant, %code,
                "a joined run has other rows than its queries, which run one by one from now on"
            );
        }
    }

    /// Resolves when nobody holds the instance. Only the first caller gets it.
    pub(crate) fn gone(&self) -> Option<oneshot::Receiver<()>> {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.take()
    }

    /// Notes a successful run. Returns the expected duration, ns.
    pub(crate) fn count(&self, rows: usize, ran: Duration) -> u64 {
        let ran = ran.as_nanos() as u64;
        let expected_ms = self
            .profile
            .as_ref()
            .map(|it| it.latency_ms(rows.max(1) as u32));
        let overhead = self.model.overhead().as_nanos() as u64;
        let expected = expected_ms.map_or(ran, |ms| (ms * 1e6) as u64 + overhead);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.run_nanos.fetch_add(ran, Ordering::Relaxed);
        self.expected_nanos.fetch_add(expected, Ordering::Relaxed);
        expected
    }

    /// Runs the engine. A success resets the count of panics.
    pub(crate) fn run<T>(&self, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let result = self.call(run);
        if result.is_ok() && self.panics_in_a_row.load(Ordering::Relaxed) != 0 {
            self.panics_in_a_row.store(0, Ordering::Relaxed);
        }
        result
    }

    /// Calls the engine. A panic counts as a failure; too many consecutive panics count as a lost engine.
    pub(crate) fn call<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => result,
            Err(panic) => Err(self.panicked(&*panic)),
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Error {
        let text = panic_text(panic);
        let panics = self.panics_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::error!(variant = %self.variant.id, panics, "the engine panicked: {text}");
        if panics >= PANICS_IN_A_ROW {
            return Error::Lost(format!("it panicked `{panics}` times in a row: {text}"));
        }
        Error::Failed(format!("the engine panicked: {text}"))
    }
}

/// The profile of a variant on a type of device. Measurements on another type do not show whether something slows the
/// variant down here. Variants of earlier versions of the service do not state where they were measured.
fn profile_on(variant: &Variant, on: Option<&DeviceTypeName>) -> Option<Profile> {
    let measured = on.and_then(|on| variant.measured(on));
    match (on, &variant.measured_on) {
        (Some(_), Some(_)) => measured.cloned(),
        _ => Some(measured.unwrap_or(&variant.profile).clone()),
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
