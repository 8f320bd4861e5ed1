//! Sessions of one loaded model, each used by one thread at a time.
//!
//! A pool begins with one session. A run that finds every session taken waits for one to come
//! back, and has another one made in the background, so that no query ever pays for the making.
//! The number of sessions is bounded by how many of them the machine can run at once.

use std::{sync::Arc, thread};

use ort::session::Session;
use parking_lot::{Condvar, Mutex};

/// Makes one more session.
pub(crate) type Open = dyn Fn() -> Result<Session, ort::Error> + Send + Sync;

/// See the module.
pub(crate) struct Pool {
    state: Mutex<State>,
    returned: Condvar,
    open: Box<Open>,
    limit: usize,
}

struct State {
    idle: Vec<Session>,
    /// Sessions that exist, idle or taken.
    total: usize,
    /// Whether one is being made.
    growing: bool,
}

impl Pool {
    /// A pool of `first` that may grow to `limit` sessions.
    pub(crate) fn new(first: Session, limit: usize, open: Box<Open>) -> Self {
        Self {
            state: Mutex::new(State {
                idle: vec![first],
                total: 1,
                growing: false,
            }),
            returned: Condvar::new(),
            open,
            limit,
        }
    }

    /// Runs `work` with a session that nobody else uses.
    pub(crate) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut Session) -> R) -> R {
        let mut taken = Taken {
            session: Some(self.take()),
            pool: self,
        };
        match taken.session.as_mut() {
            Some(session) => work(session),
            None => unreachable!("a session is only given back when dropped"),
        }
    }

    fn take(self: &Arc<Self>) -> Session {
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

    /// Has another session made; whether that began.
    fn grow(self: &Arc<Self>) -> bool {
        let pool = Arc::downgrade(self);
        let spawned = thread::Builder::new()
            .name("ort-open".to_owned())
            .spawn(move || {
                if let Some(pool) = pool.upgrade() {
                    let opened = (pool.open)();
                    pool.grown(opened);
                }
            });
        if let Err(error) = &spawned {
            // Runs go on with the sessions there are; the next contention tries again.
            tracing::warn!(%error, "no thread for another session");
        }
        spawned.is_ok()
    }

    fn grown(&self, opened: Result<Session, ort::Error>) {
        let mut state = self.state.lock();
        match opened {
            Ok(session) => {
                state.growing = false;
                state.total += 1;
                state.idle.push(session);
                self.returned.notify_one();
            }
            // `growing` stays set: what failed once is not tried on every contention.
            Err(error) => tracing::warn!(%error, "another session could not be made"),
        }
    }
}

/// Gives the session back, even if the run panics.
struct Taken<'p> {
    session: Option<Session>,
    pool: &'p Pool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.pool.state.lock().idle.push(session);
            self.pool.returned.notify_one();
        }
    }
}
