//! What jobs compute themselves, such as answers as JSON: it takes a core for some milliseconds at a time, and online queries
//! are not to wait for it. So it is done on one thread of its own, to which the operating system gives what all others leave.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use rustix::{process::setpriority_process, thread::gettid};
use tokio::{sync::oneshot, task::spawn_blocking};

use super::stop::Stop;

/// How nice the thread is: nobody is nicer.
const NICE: i32 = 19;

type Work = Box<dyn FnOnce() + Send>;

/// Hands work to the thread, which ends with this.
pub(crate) struct Aside {
    /// None where the thread could not be started: the work is then done as all other that blocks.
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

    /// Does what takes a core for a while; a job fails where that panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stop> {
        let (reply, receiver) = oneshot::channel();
        // A job that was given back waits for nothing.
        let work: Work = Box::new(move || drop(reply.send(compute())));
        match &self.thread {
            // It ends behind the last sender.
            Some(thread) => drop(thread.send(work)),
            None => drop(spawn_blocking(work)),
        }
        receiver.await.map_err(|_| Stop::panicked())
    }
}

/// The thread, until nobody has work for it any more.
fn work(from: &mpsc::Receiver<Work>) {
    // Linux takes the number of a thread, too, and no other of its process becomes nice.
    if let Err(error) = setpriority_process(Some(gettid()), NICE) {
        tracing::debug!(%error, "the thread of jobs is not nice");
    }
    for work in from {
        // The panic's own message has been written, and its job hears of it.
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
