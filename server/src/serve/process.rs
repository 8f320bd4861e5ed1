//! The background work of a process and the order in which it ends.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
}

/// Services that end together.
#[derive(Default)]
struct Phase {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    panicked: Arc<AtomicBool>,
}

/// Notes the panic of a service.
struct Watched(Arc<AtomicBool>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
            tracing::error!("a service of this process ended by a panic: it is not ready any more");
        }
    }
}

impl Process {
    /// A process that SIGTERM and SIGINT tell to stop.
    pub(super) fn stopped_by_signals() -> anyhow::Result<Self> {
        let process = Self {
            first: Phase::default(),
            late: Phase::default(),
            last: Phase::default(),
        };
        stop_on_signal(process.first())?;
        Ok(process)
    }

    /// Cancelled by a signal.
    pub(super) fn first(&self) -> CancellationToken {
        self.first.stop.clone()
    }

    /// Runs a service until the signal.
    pub(super) fn spawn<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.first.spawn(service);
    }

    /// Runs a service until those that may need it have ended.
    pub(super) fn spawn_late<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.late.spawn(service);
    }

    /// Runs a service until all others have ended.
    pub(super) fn spawn_last<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.last.spawn(service);
    }

    /// Ready as `readiness` says, and while no service has ended by a panic.
    pub(super) fn ready_if(&self, readiness: Readiness) -> Readiness {
        let phases = [&self.first, &self.late, &self.last];
        let panicked = phases.map(|phase| Arc::clone(&phase.panicked));
        Arc::new(move || {
            if panicked.iter().any(|it| it.load(Ordering::Acquire)) {
                let why = "a service of this process ended by a panic: restart the process, and report what its \
                           log says";
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
    fn spawn<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let service = service(self.stop.clone());
        let watched = Watched(Arc::clone(&self.panicked));
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

/// SIGTERM and SIGINT cancel `token`.
fn stop_on_signal(token: CancellationToken) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
        tracing::info!("stopping: finishing what is in flight");
    });
    Ok(())
}
