//! Changes go on if the connection that requested them ends.
//!
//! A server drops the handler of a client that has gone. A change must not be dropped: it may be made already, and its
//! audit entry not yet written. So each change runs in a task of its own, to its end, and a shutdown waits for all of
//! them.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use futures::FutureExt;
use sextant_types::Code;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::{problem::Problem, trace};

/// Most running changes whose clients have gone: a client that sends requests and leaves must not fill the memory.
const MAX_LEFT: usize = 256;

/// The running changes; clones share them.
#[derive(Clone, Default)]
pub struct Changes {
    running: TaskTracker,
    left: Arc<AtomicUsize>,
}

/// One running change whose client has gone.
struct Orphan<'a>(&'a AtomicUsize);

// === impl Changes ===

impl Changes {
    /// Makes a change, which goes on if the caller is dropped. If the change panics, the caller panics.
    pub async fn make<T: Send + 'static>(
        &self,
        change: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        if self.left.load(Ordering::Relaxed) >= MAX_LEFT {
            let detail = format!("`{MAX_LEFT}` changes of clients that have gone are being made");
            return Err(Problem::new(Code::Overloaded, detail).retry_after_ms(1000));
        }
        let (sender, made) = oneshot::channel();
        let running = run(change, sender, Arc::clone(&self.left)).in_current_span();
        match trace::current() {
            Some(trace) => self.running.spawn(trace::within(trace, running)),
            None => self.running.spawn(running),
        };
        match made.await {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(Problem::new(
                Code::Unavailable,
                "the service is shutting down",
            )),
        }
    }

    /// Runs the remaining work of a change to its end.
    pub fn later(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(work);
    }

    /// Waits for the running changes.
    pub async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }
}

/// Runs a change to its end, and sends the result to the caller if it still waits.
async fn run<T>(
    change: impl Future<Output = T>,
    mut sender: oneshot::Sender<thread::Result<T>>,
    left: Arc<AtomicUsize>,
) {
    let mut change = pin!(AssertUnwindSafe(change).catch_unwind());
    let made = tokio::select! {
        made = change.as_mut() => made,
        () = sender.closed() => {
            let _counted = Orphan::new(&left);
            change.await
        }
    };
    if let Err(Err(panic)) = sender.send(made) {
        let panic = text(&panic);
        tracing::error!(panic, "a change panicked whose client had gone");
    }
}

/// The message of a panic.
pub fn text(panic: &Box<dyn Any + Send>) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown")
}

// === impl Orphan ===

impl<'a> Orphan<'a> {
    fn new(left: &'a AtomicUsize) -> Self {
        left.fetch_add(1, Ordering::Relaxed);
        Self(left)
    }
}

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
