//! Sessions of one loaded model, each used by one thread at a time.
//!
//! A pool begins with one session. A run that finds every session taken waits for one to be
//! returned, and another one is made in the background, so that no query ever waits for the making.
//! The number of sessions is limited to those that the machine can run at once.

use std::{sync::Arc, thread};

use parking_lot::{Condvar, Mutex};

use crate::Error;

/// Makes one more session.
type Open<S> = dyn Fn() -> Result<S, Error> + Send + Sync;

/// See the module.
pub struct Pool<S> {
    state: Mutex<State<S>>,
    returned: Condvar,
    open: Box<Open<S>>,
    limit: usize,
}

struct State<S> {
    idle: Vec<S>,
    /// Sessions that exist, idle or taken.
    total: usize,
    /// Whether one is being made.
    growing: bool,
}

impl<S: Send + 'static> Pool<S> {
    /// A pool of `first` that may grow to `limit` sessions, which `open` makes.
    pub fn new(
        first: S,
        limit: usize,
        open: impl Fn() -> Result<S, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                idle: vec![first],
                total: 1,
                growing: false,
            }),
            returned: Condvar::new(),
            open: Box::new(open),
            limit,
        }
    }

    /// Runs `work` with a session that no other thread uses.
    pub fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut S) -> R) -> R {
        let mut taken = SessionGuard {
            session: Some(self.take()),
            pool: self,
        };
        match taken.session.as_mut() {
            Some(session) => work(session),
            None => unreachable!("a session is only given back when dropped"),
        }
    }

    fn take(self: &Arc<Self>) -> S {
        let mut state = self.state.lock();
        loop {
            if let Some(session) = state.idle.pop() {
                return session;
            }
            if state.total < self.limit && !state.growing {
                state.growing = self.grow();
            }
            self.returned.wait(&mut state);
        }
    }

    /// Starts making another session; returns whether that began.
    fn grow(self: &Arc<Self>) -> bool {
        let pool = Arc::downgrade(self);
        let spawned = thread::Builder::new()
            .name("session-open".to_owned())
            .spawn(move || {
                if let Some(pool) = pool.upgrade() {
                    let opened = (pool.open)();
                    pool.grown(opened);
                }
            });
        if let Err(error) = &spawned {
            // Runs go on with the existing sessions; the next contention tries again.
            tracing::warn!(%error, "no thread for another session");
        }
        spawned.is_ok()
    }

    fn grown(&self, opened: Result<S, Error>) {
        let mut state = self.state.lock();
        match opened {
            Ok(session) => {
                state.growing = false;
                state.total += 1;
                state.idle.push(session);
                self.returned.notify_one();
            }
            // `growing` stays set: an attempt that failed is not repeated on every contention.
            Err(error) => tracing::warn!(%error, "another session could not be made"),
        }
    }
}

/// Gives the session back, even if the run panics.
struct SessionGuard<'p, S> {
    session: Option<S>,
    pool: &'p Pool<S>,
}

impl<S> Drop for SessionGuard<'_, S> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.pool.state.lock().idle.push(session);
            self.pool.returned.notify_one();
        }
    }
}
