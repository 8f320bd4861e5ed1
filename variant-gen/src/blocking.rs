//! Threads for blocking work. Work is told to stop if its caller no longer waits for it.
//!
//! The threads live as long as the generator. A runtime's pool would start new threads for pieces
//! of work, and each thread leaves a part of the allocator's memory behind: measured at 70 MB for a
//! model of 4 MB.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{Error, measure::Cancel};

type Work = Box<dyn FnOnce() + Send>;

/// A few threads that take work in turn. They end with the last handle.
#[derive(Clone)]
pub(crate) struct Threads(mpsc::Sender<Work>);

impl Threads {
    /// Starts `count` threads, at least one.
    pub(crate) fn start(count: usize) -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..count.max(1) {
            let receiver = receiver.clone();
            let started = thread::Builder::new()
                .name(format!("variants-{number}"))
                .stack_size(sextant_engine::STACK_BYTES)
                .spawn(move || serve(&receiver));
            if let Err(error) = started {
                // Work is refused, with an error of its own, once no thread is left to take it.
                tracing::error!(%error, "a thread of the variant generator cannot start");
            }
        }
        Self(sender)
    }

    /// Runs `work` on one of the threads. When the returned future is dropped, `work` is told to
    /// stop through its argument.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cancel) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let guard = Guard(Cancel::default());
        let cancel = guard.0.clone();
        let (answer, answered) = oneshot::channel();
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(&cancel)));
            // If the receiver is gone, the result is not needed.
            answer.send(result).ok();
        };
        let stopped = || Error::Panicked("its threads have stopped".to_owned());
        self.0.send(Box::new(work)).map_err(|_| stopped())?;
        let result = answered.await.map_err(|_| stopped())?;
        result.map_err(|panic| Error::Panicked(message(panic.as_ref())))
    }
}

fn serve(receiver: &Mutex<mpsc::Receiver<Work>>) {
    loop {
        let next = receiver.lock().recv();
        match next {
            Ok(work) => work(),
            Err(mpsc::RecvError) => return,
        }
    }
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".to_owned())
}

struct Guard(Cancel);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_thread_goes_on() {
        let threads = Threads::start(1);
        let panicked = threads.run(|_| panic!("on purpose")).await.map(|(): ()| ());
        assert!(matches!(panicked, Err(Error::Panicked(text)) if text == "on purpose"));
        assert_eq!(threads.run(|_| 7).await.expect("runs"), 7);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_told_to_stop() {
        let threads = Threads::start(1);
        let (begun, has_begun) = oneshot::channel();
        let work = threads.run(move |cancel| {
            begun.send(()).expect("is waited for");
            while !cancel.is_cancelled() {
                thread::yield_now();
            }
        });
        tokio::select! {
            _ = work => panic!("it waits to be stopped"),
            _ = has_begun => {}
        }
        assert_eq!(threads.run(|_| 7).await.expect("the thread is free"), 7);
    }
}
