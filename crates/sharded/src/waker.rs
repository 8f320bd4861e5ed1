//! A thread that sleeps while it has nothing to do, and is woken without a lock while it has.

use std::{sync::PoisonError, time::Duration};

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, fence};

/// Wakes one thread.
#[derive(Debug, Default)]
pub struct Waker {
    asleep: AtomicBool,
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Waker {
    /// To be called after work was handed over. Costs a fence and a load while the thread is awake.
    pub fn wake(&self) {
        // With the fence in `sleep`: either the work is seen there, or the sleeper is seen here.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            *woken = true;
            self.condition.notify_one();
        }
    }

    /// Sleeps until somebody wakes it or `most` has passed, unless there is work. May return early.
    pub fn sleep(&self, most: Option<Duration>, has_work: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            match most {
                None => {
                    while !*woken {
                        let waited = self.condition.wait(woken);
                        woken = waited.unwrap_or_else(PoisonError::into_inner);
                    }
                }
                Some(most) if !*woken => {
                    let waited = self.condition.wait_timeout(woken, most);
                    woken = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {}
            }
            *woken = false;
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}
