//! Ends a run or a load of an engine from outside.

use std::{fmt, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

/// Asks a run or a load to end. Clones ask the same one.
///
/// The caller makes it, passes it with the call, and raises it if the call takes too long. The engine says in
/// [`Interrupt::over`] how the work is ended.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_raised: bool,
    /// How the present work is ended.
    end: Option<Box<dyn Fn() + Send>>,
}

/// Forgets how to end work that has ended, also by a panic.
struct InterruptGuard<'i>(&'i Interrupt);

impl Interrupt {
    /// Asks the present work to end, and all later work under it as soon as it begins. Returns without waiting for the
    /// end; the result is whether there is work that can be ended.
    pub fn raise(&self) -> bool {
        let mut state = self.lock();
        state.is_raised = true;
        // The lock is held, so work that has ended already is not told to end.
        state.end.as_ref().is_some_and(|end| {
            end();
            true
        })
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.lock().is_raised
    }

    /// Runs `work`, which `end` ends if another thread calls it meanwhile. `end` must not wait; it may be called more
    /// than once.
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
