//! Ending what an engine runs, from outside.

use std::{fmt, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

/// Asks a run or a load to end. Clones ask the same one.
///
/// Whoever waits makes it, hands it along with the call, and raises it when the call has taken too
/// long. Whoever runs says in [`Interrupt::over`] how that is ended.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_raised: bool,
    /// How what runs now is ended.
    end: Option<Box<dyn Fn() + Send>>,
}

/// Forgets how to end what has ended, also by a panic.
struct InterruptGuard<'i>(&'i Interrupt);

impl Interrupt {
    /// Asks what runs to end, and at once whatever begins under it later. Returns without waiting for
    /// the end; whether something runs that can be ended.
    pub fn raise(&self) -> bool {
        let mut state = self.lock();
        state.is_raised = true;
        // With the lock held: nothing is told to end that has ended already.
        state.end.as_ref().is_some_and(|end| {
            end();
            true
        })
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.lock().is_raised
    }

    /// Does `work`, which `end` ends when called from another thread while it is under way. `end` must
    /// not wait; it may be called more than once.
    pub fn over<T>(&self, end: impl Fn() + Send + 'static, work: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        if state.is_raised {
            end();
        }
        state.end = Some(Box::new(end));
        drop(state);
        let _over = InterruptGuard(self);
        work()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Drop for InterruptGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().end = None;
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").field(&self.is_raised()).finish()
    }
}
