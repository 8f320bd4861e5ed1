//! The computations of jobs themselves, such as answers as JSON. They take a core for some milliseconds at a time, and
//! online queries must not wait for them. They are therefore done on a thread of their own, to which the operating
//! system gives only the time that other threads leave.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use rustix::{process::setpriority_process, thread::gettid};
use tokio::{sync::oneshot, task::spawn_blocking};

use super::stop::Stop;

/// The niceness of the thread, the highest that there is.
const NICE: i32 = 19;

type Work = Box<dyn FnOnce() + Send>;

/// Hands work to the thread. The thread ends when this is dropped.
pub(crate) struct Aside {
    /// `None` if the thread could not be started. The work is then done like other blocking work.
    thread: Option<mpsc::Sender<Work>>,
}

impl Aside {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new().name("sextant-jobs".to_owned());
        let started = thread.spawn(move || work(&receiver));
        if let Err(error) = &started {
            tracing::warn!(%error, "jobs compute on threads that are not nice");
        }
        Self {
            thread: started.is_ok().then_some(sender),
        }
    }

    /// Runs a computation that takes a core for a while. The job fails if it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stop> {
        let (reply, receiver) = oneshot::channel();
        // A job that was given back no longer waits for the result.
        let work: Work = Box::new(move || drop(reply.send(compute())));
        match &self.thread {
            // The thread ends after the last sender.
            Some(thread) => drop(thread.send(work)),
            None => drop(spawn_blocking(work)),
        }
        receiver.await.map_err(|_| Stop::panicked())
    }
}

/// Runs work on the thread until all senders are gone.
fn work(from: &mpsc::Receiver<Work>) {
    // Linux accepts the id of a thread here, so no other thread of the process changes its niceness.
    if let Err(error) = setpriority_process(Some(gettid()), NICE) {
        tracing::debug!(%error, "the thread of jobs is not nice");
    }
    for work in from {
        // The panic's own message has been written, and the job gets an error.
        catch_unwind(AssertUnwindSafe(work)).ok();
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[tokio::test]
    async fn the_thread_of_jobs_is_nice_and_outlives_panics() {
        let aside = Aside::start();
        let panicked: Result<u32, Stop> = aside.run(|| panic!("it is meant to")).await;
        assert!(panicked.is_err());
        let nice = aside.run(|| getpriority_process(Some(gettid()))).await;
        let nice = nice.expect("the thread goes on").expect("a priority");
        assert_eq!(nice, NICE);
    }
}
