//! The services of a process and the order in which they end.
//!
//! If a service panics, the process is not ready any more, answers what is in flight, ends its other services in order,
//! and starts all of them again ([`keep_up`]). Their state is in the stores.

use std::{
    future::Future,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use sextant_api::Readiness;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Services, by when they are told to end. Those of a phase have ended when the next begins.
pub(super) struct Process {
    /// No new work: jobs and leaderships are given back.
    first: Phase,
    /// Nothing asks any more: workers drain, links end.
    late: Phase,
    /// Nobody needs to be reached any more.
    last: Phase,
    panicked: Arc<AtomicBool>,
}

/// Services that end together.
#[derive(Default)]
struct Phase {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Ends all services when one panics.
struct PanicGuard {
    panicked: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// Pauses before services that have failed are started again: each is twice as long as the one before it.
pub(super) const PAUSES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(60);

/// After this time without a failure the next pause is the shortest again.
const HEALTHY: Duration = Duration::from_secs(600);

/// Plays `life` until `told` or until it ends by itself, and again when one of its services has panicked.
///
/// # Errors
/// The error with which a life ends.
pub(super) async fn keep_up(
    told: &CancellationToken,
    pauses: RangeInclusive<Duration>,
    mut life: impl AsyncFnMut(&mut Process) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (shortest, longest) = pauses.into_inner();
    let mut pause = shortest;
    loop {
        let begun = Instant::now();
        let mut process = Process::stopped_by(told);
        life(&mut process).await?;
        if told.is_cancelled() || !process.panicked.load(Ordering::Acquire) {
            return Ok(());
        }
        if begun.elapsed() >= HEALTHY {
            pause = shortest;
        }
        tracing::error!(?pause, "all services of this process are started again");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = told.cancelled() => return Ok(()),
        }
        pause = (pause * 2).min(longest);
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.panicked.store(true, Ordering::Release);
            tracing::error!("a service of this process ended by a panic: it is not ready any more");
            self.stop.cancel();
        }
    }
}

impl Process {
    /// A process without services that is told to stop by `told`.
    fn stopped_by(told: &CancellationToken) -> Self {
        Self {
            first: Phase {
                stop: told.child_token(),
                ..Phase::default()
            },
            late: Phase::default(),
            last: Phase::default(),
            panicked: Arc::default(),
        }
    }

    fn watched(&self) -> PanicGuard {
        PanicGuard {
            panicked: Arc::clone(&self.panicked),
            stop: self.first(),
        }
    }

    /// Cancelled by a signal, or when a service has panicked.
    pub(super) fn first(&self) -> CancellationToken {
        self.first.stop.clone()
    }

    /// Runs a service until the signal.
    pub(super) fn spawn<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let watched = self.watched();
        self.first.spawn(watched, service);
    }

    /// Runs a service until those that may need it have ended.
    pub(super) fn spawn_late<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let watched = self.watched();
        self.late.spawn(watched, service);
    }

    /// Runs a service until all others have ended.
    #[cfg(feature = "fleet")]
    pub(super) fn spawn_last<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let watched = self.watched();
        self.last.spawn(watched, service);
    }

    /// Ready as `readiness` says, and while no service has ended by a panic.
    pub(super) fn ready_if(&self, readiness: Readiness) -> Readiness {
        let panicked = Arc::clone(&self.panicked);
        Arc::new(move || {
            if panicked.load(Ordering::Acquire) {
                let why = "a service of this process ended by a panic: all are started again; report what the log \
                           says";
                return Err(why.to_owned());
            }
            readiness()
        })
    }

    /// Ends everything, in order.
    pub(super) async fn stop(&mut self) {
        for phase in [&mut self.first, &mut self.late, &mut self.last] {
            phase.end().await;
        }
    }
}

impl Phase {
    fn spawn<F>(&mut self, watched: PanicGuard, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let service = service(self.stop.clone());
        self.tasks.spawn(async move {
            let _watched = watched;
            service.await;
        });
    }

    async fn end(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a service ended by a panic");
            }
        }
    }
}

/// Exit code of a process that a further SIGINT has ended, as shells give it.
const INTERRUPTED: i32 = 130;

/// A token that SIGTERM and SIGINT cancel. A SIGINT after that ends the process at once. A further SIGTERM does not:
/// providers and supervisors may send it again, and have SIGKILL.
pub(super) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let told = CancellationToken::new();
    let token = told.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
        tracing::info!(
            "stopping: finishing what is in flight; SIGINT (Ctrl-C) ends the process at once"
        );
        if interrupt.recv().await.is_some() {
            tracing::warn!("interrupted while stopping: what is in flight is given up");
            std::process::exit(INTERRUPTED);
        }
    });
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: RangeInclusive<Duration> = Duration::ZERO..=Duration::ZERO;

    #[tokio::test]
    async fn services_are_started_again_when_one_of_them_panics() {
        let told = CancellationToken::new();
        let mut lives = 0;
        let mut ended = 0;
        let kept = keep_up(&told, AT_ONCE, async |process: &mut Process| {
            lives += 1;
            let ready = process.ready_if(Arc::new(|| Ok(())));
            assert_eq!(ready(), Ok(()));
            process.spawn_late(|stop| async move { stop.cancelled().await });
            if lives < 3 {
                process.spawn(|_| async { panic!("out of luck") });
                process.first().cancelled().await;
                assert!(ready().expect_err("it failed").contains("a panic"));
            } else {
                told.cancel();
                process.first().cancelled().await;
            }
            process.stop().await;
            ended += 1;
            Ok(())
        });
        kept.await.expect("no error");
        assert_eq!((lives, ended), (3, 3));
    }

    #[tokio::test]
    async fn a_life_that_ends_by_itself_or_by_an_error_is_the_last() {
        let told = CancellationToken::new();
        let mut lives = 0;
        let life = async |_: &mut Process| {
            lives += 1;
            Ok(())
        };
        keep_up(&told, AT_ONCE, life).await.expect("no error");
        assert_eq!(lives, 1);
        let failing = async |process: &mut Process| {
            process.spawn(|_| async { panic!("out of luck") });
            process.first().cancelled().await;
            anyhow::bail!("no store")
        };
        let error = keep_up(&told, AT_ONCE, failing)
            .await
            .expect_err("it fails");
        assert_eq!(error.to_string(), "no store");
    }
}
