//! Claims registration jobs and runs them.
//!
//! A job is claimed for a while and the claim renewed while work goes on. When the process dies
//! the claim lapses, or is voided by the next process's start, and the registration goes on
//! behind its last stored step. A store that fails is tried again, more and more slowly; what
//! still fails then, or could never succeed, fails the job and its model.

use std::{future::Future, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sextant_registry::{Failure, JobKind};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use crate::{Claim, Error, Generator, Summary, generator::now_ms, measure::MeasureError};

/// Runs registrations until it is told to stop.
pub struct RegistrationService {
    generator: Generator,
    owner: String,
    settled: watch::Sender<u64>,
    running: Gauge,
    ended: Family<OutcomeLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Why work on a job ended.
enum Ended {
    Done(Summary),
    Failed(Error),
    /// Cancelled, or taken over by another runner.
    Lost,
    ShutDown,
}

impl RegistrationService {
    /// A service that claims jobs as `owner`, a name that no other process and no earlier life of
    /// this one uses.
    pub fn new(generator: Generator, owner: impl Into<String>) -> Self {
        Self {
            generator,
            owner: owner.into(),
            settled: watch::Sender::new(0),
            running: Gauge::default(),
            ended: Family::default(),
        }
    }

    /// Changes whenever work on a job has ended, however it did.
    pub fn settled(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    /// Adds the metrics of registrations under `variant_gen_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("variant_gen");
        let help = "Registrations that run here";
        registry.register("running_registrations", help, self.running.clone());
        let help = "Registrations that ended here, by outcome: done, failed, lost or given_back";
        registry.register("registrations", help, self.ended.clone());
        for outcome in Ended::NAMES {
            drop(self.ended.get_or_create(&OutcomeLabels { outcome }));
        }
        let help = "Steps of registrations whose result was stored";
        registry.register("steps", help, self.generator.steps().clone());
    }

    /// Claims and runs jobs until `shutdown`; then gives back what is unfinished.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let parallel = self.generator.config().parallel.max(1);
        let (stop, stopped) = watch::channel(false);
        let service = Arc::new(self);
        let mut runners = JoinSet::new();
        for number in 0..parallel {
            let runner = Runner {
                service: service.clone(),
                owner: format!("{}-register-{number}", service.owner),
                stopped: stopped.clone(),
            };
            runners.spawn(runner.run());
        }
        tokio::select! {
            () = service.keep_marks() => {}
            () = shutdown => {}
        }
        stop.send_replace(true);
        while runners.join_next().await.is_some() {}
    }
}

impl Ended {
    const NAMES: [&'static str; 4] = ["done", "failed", "lost", "given_back"];

    fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => Self::NAMES[0],
            Self::Failed(_) => Self::NAMES[1],
            Self::Lost => Self::NAMES[2],
            Self::ShutDown => Self::NAMES[3],
        }
    }
}

/// One job at a time.
struct Runner {
    service: Arc<RegistrationService>,
    owner: String,
    stopped: watch::Receiver<bool>,
}

impl Runner {
    async fn run(mut self) {
        let registry = self.service.generator.registry().clone();
        let mut jobs = registry.jobs_changed();
        let lease = self.service.generator.config().lease;
        while !*self.stopped.borrow() {
            jobs.mark_unchanged();
            let lease_ms = milliseconds(lease);
            let claimed = registry.claim(JobKind::Register, &self.owner, lease_ms, now_ms());
            match claimed.await {
                Ok(Some(job)) => {
                    let owner = self.owner.clone();
                    self.work(&Claim { job, owner }).await;
                    continue;
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "no registration job can be claimed"),
            }
            tokio::select! {
                _ = self.stopped.wait_for(|stopped| *stopped) => {}
                _ = jobs.changed() => {}
                // A claim of a runner that died lapses without anyone saying so.
                () = sleep_until(Instant::now() + lease / 2) => {}
            }
        }
    }

    async fn work(&mut self, claim: &Claim) {
        let job = &claim.job;
        info!(job = %job.id, model = ?job.model, attempt = job.attempts, "registration begins");
        let service = self.service.clone();
        service.running.inc();
        let ended = tokio::select! {
            ended = service.try_repeatedly(claim) => ended,
            () = service.hold(claim) => Ended::Lost,
            _ = self.stopped.wait_for(|stopped| *stopped) => Ended::ShutDown,
        };
        service.running.dec();
        let outcome = ended.name();
        service
            .ended
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
        service.settle(claim, ended).await;
        service.settled.send_modify(|count| *count += 1);
    }
}

impl RegistrationService {
    /// Never returns.
    async fn keep_marks(&self) {
        let mut wait = self.generator.config().back_off;
        loop {
            if let Err(error) = self.generator.publisher().keep().await {
                warn!(%error, "marks of dominated variants cannot be renewed");
            }
            sleep_until(Instant::now() + wait).await;
            wait = (wait * 2).min(self.generator.config().lease);
        }
    }

    async fn try_repeatedly(&self, claim: &Claim) -> Ended {
        let config = self.generator.config();
        let mut wait = config.back_off;
        for tried in 1.. {
            match self.generator.run(claim).await {
                Ok(summary) => return Ended::Done(summary),
                Err(error) if error.is_lost() => return Ended::Lost,
                Err(Error::Measure(MeasureError::Cancelled)) => return Ended::Lost,
                Err(error) if error.is_transient() && tried < config.tries => {
                    warn!(job = %claim.job.id, %error, tried, "registration is tried again");
                }
                Err(error) => return Ended::Failed(error),
            }
            sleep_until(Instant::now() + wait).await;
            wait = wait.saturating_mul(2);
        }
        Ended::Lost
    }

    /// Renews the claim; returns when it is lost. Looks at once when anything about jobs changed,
    /// so that a cancellation is not kept waiting.
    async fn hold(&self, claim: &Claim) {
        let lease = self.generator.config().lease;
        let registry = self.generator.registry();
        let mut jobs = registry.jobs_changed();
        loop {
            let (job, owner) = (&claim.job.id, &claim.owner);
            let renewed = registry.renew(job, owner, milliseconds(lease), now_ms());
            match renewed.await.map_err(Error::from) {
                Err(error) if error.is_lost() => return,
                Err(error) => warn!(%job, %error, "the claim cannot be renewed"),
                Ok(()) => {}
            }
            let next = sleep_until(Instant::now() + lease / 3);
            tokio::select! {
                () = next => {}
                changed = jobs.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn settle(&self, claim: &Claim, ended: Ended) {
        let job = &claim.job.id;
        let registry = self.generator.registry();
        let settled = match ended {
            Ended::Done(summary) => {
                let Summary {
                    variants, frontier, ..
                } = summary;
                info!(%job, variants, frontier, "registration is done");
                Ok(())
            }
            Ended::Failed(error) => {
                // Mostly the file's fault, which its owner is told: no alarm for the operator.
                warn!(%job, %error, code = %error.code(), "registration failed");
                let failure = Failure::new(error.code(), error.to_string());
                let failed = registry.fail(job, &claim.owner, &failure, now_ms());
                failed.await.map_err(Error::from)
            }
            Ended::ShutDown => {
                let released = registry.release(job, &claim.owner, now_ms());
                match released.await {
                    // Whatever was shown at the last moment must not stay.
                    Ok(()) => self.generator.publisher().publish_all().await.map(|_| ()),
                    Err(error) => Err(error.into()),
                }
            }
            Ended::Lost => {
                info!(%job, "registration was cancelled or taken over");
                self.generator.publisher().publish_all().await.map(|_| ())
            }
        };
        match settled {
            Err(error) if !error.is_lost() => {
                // The claim lapses and the job is taken up again.
                error!(%job, %error, "the end of a registration cannot be recorded");
            }
            _ => {}
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
