//! Claims jobs that register or extend models, and runs them.
//!
//! A job is claimed for a while, and the claim is renewed while the work goes on. If the process dies, the claim
//! lapses, or the next process voids it at its start, and the registration goes on after its last stored step. If a
//! store fails, the service tries again, more and more slowly; an error that remains, or can never pass, fails the job,
//! and with a registration its model.
//!
//! Registrations come first, those of different applications in turn ([`Turns`]); a long one is given back to the queue
//! if others wait for its place. Beside them the service looks for ready models that have not been measured with an
//! engine of this process ([`Generator::plan`]), and claims the jobs that extend models by its engines, whoever created
//! them.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sextant_registry::{Failure, JobKind, JobQueueKey};
use sextant_types::{Code, EngineName, time::unix_ms};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use crate::{
    Claim, Error, Generator, Summary,
    measure::MeasureError,
    turns::{Open, Places, Turns},
};

/// Longest wait before another attempt at a store that fails.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Longest time of attempts at a store that answers and refuses because it is full: somebody has to learn of it.
const REFUSED_PATIENCE: Duration = Duration::from_secs(3);

/// Pause after a search for models to extend, as a multiple of its time.
const REST: u32 = 32;

/// Runs registrations until it is told to stop.
pub struct RegistrationService {
    generator: Generator,
    owner: String,
    settled: watch::Sender<u64>,
    running: Gauge,
    ended: Family<OutcomeLabels, Counter>,
    extended: Family<OutcomeLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Why work on a job ended.
enum JobEnd {
    Done(Summary),
    Failed(Error),
    /// Cancelled, or taken over by another runner.
    Lost,
    /// The job goes on later: the process ends, or others wait.
    GivenBack,
}

impl RegistrationService {
    /// A service that claims jobs as `owner`, a name that no other process, and no earlier run of this one, uses.
    pub fn new(generator: Generator, owner: impl Into<String>) -> Self {
        Self {
            generator,
            owner: owner.into(),
            settled: watch::Sender::new(0),
            running: Gauge::default(),
            ended: Family::default(),
            extended: Family::default(),
        }
    }

    /// Changes whenever work on a job has ended in any way.
    pub fn settled(&self) -> watch::Receiver<u64> {
        self.settled.subscribe()
    }

    /// Adds the metrics of registrations under `variant_gen_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("variant_gen");
        let help = "Registrations and extensions that run here";
        registry.register("running_registrations", help, self.running.clone());
        let help = "Registrations that ended here, by outcome: done, failed, lost or given_back";
        registry.register("registrations", help, self.ended.clone());
        let help = "Extensions of models by an engine that ended here, by outcome";
        registry.register("extensions", help, self.extended.clone());
        for outcome in JobEnd::NAMES {
            drop(self.ended.get_or_create(&OutcomeLabels { outcome }));
            drop(self.extended.get_or_create(&OutcomeLabels { outcome }));
        }
        let help = "Steps of registrations whose result was stored";
        registry.register("steps", help, self.generator.steps().clone());
    }

    /// Claims and runs jobs until `shutdown`; then gives back unfinished jobs.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let service = Arc::new(self);
        // It runs until it stops by itself: there is work for each claim.
        let mut handing_out = JoinSet::new();
        handing_out.spawn(Arc::clone(&service).hand_out(stopped));
        tokio::select! {
            () = service.keep_marks() => {}
            () = service.generator.publisher().judge_trials() => {}
            () = service.plan() => {}
            () = shutdown => {}
        }
        stop.send_replace(true);
        while handing_out.join_next().await.is_some() {}
    }
}

impl JobEnd {
    const NAMES: [&'static str; 4] = ["done", "failed", "lost", "given_back"];

    fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => Self::NAMES[0],
            Self::Failed(_) => Self::NAMES[1],
            Self::Lost => Self::NAMES[2],
            Self::GivenBack => Self::NAMES[3],
        }
    }
}

/// The running work.
struct Works {
    turns: Turns,
    tasks: JoinSet<()>,
    /// By turn: tells the running work that others wait.
    workers: BTreeMap<u64, watch::Sender<bool>>,
    ended: mpsc::UnboundedSender<u64>,
}

/// A turn, which ends when it is dropped.
struct Turn {
    number: u64,
    ended: mpsc::UnboundedSender<u64>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // If the receiver is gone, no more turns are taken.
        self.ended.send(self.number).ok();
    }
}

// === impl Works ===

impl Works {
    /// Starts work on a job.
    fn begin(
        &mut self,
        service: Arc<RegistrationService>,
        (claim, whose): (Claim, JobQueueKey),
        stopped: watch::Receiver<bool>,
    ) {
        let job = (whose, &claim.job.id);
        let number = self.turns.begin(job, Instant::now().into_std());
        let (ended, (give_back, others_wait)) = (self.ended.clone(), watch::channel(false));
        let turn = Turn { number, ended };
        self.workers.insert(number, give_back);
        self.tasks.spawn(async move {
            service.work(&claim, [stopped, others_wait]).await;
            drop(turn);
        });
    }

    /// The work has ended, whatever its outcome.
    fn end(&mut self, turn: u64) {
        self.turns.end(turn);
        self.workers.remove(&turn);
        while self.tasks.try_join_next().is_some() {}
    }

    /// Makes one registration give up its place to those that wait, if one has to.
    fn give_way(&mut self, waiting: &[JobQueueKey]) {
        let gives_way = self.turns.gives_way(waiting, Instant::now().into_std());
        if let Some(worker) = gives_way.and_then(|turn| self.workers.get(&turn)) {
            worker.send_replace(true);
        }
    }
}

impl RegistrationService {
    /// Claims jobs as there are places, and starts work on them, until it is stopped and all work has ended.
    async fn hand_out(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let config = self.generator.config();
        let (ended, mut ends) = mpsc::unbounded_channel();
        let mut works = Works {
            turns: Turns::new(Places {
                ordinary: config.parallel.max(1),
                most: config.places(),
                slow_after: config.slow_after,
            }),
            tasks: JoinSet::new(),
            workers: BTreeMap::new(),
            ended,
        };
        let mut jobs = self.generator.registry().jobs_changed();
        while !*stopped.borrow() {
            jobs.mark_unchanged();
            match self.claim(&mut works.turns).await {
                Ok(Some(claim)) => {
                    works.begin(Arc::clone(&self), claim, stopped.clone());
                    continue;
                }
                Ok(None) => works.give_way(&self.kept_out(&works.turns).await),
                Err(error) => warn!(%error, "no job can be claimed"),
            }
            // The claim of a runner that died lapses without a notification.
            let mut next = Instant::now() + config.lease / 2;
            if let Some(changes) = works.turns.changes_at(Instant::now().into_std()) {
                next = next.min(changes.into());
            }
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                _ = jobs.changed() => {}
                Some(turn) = ends.recv() => works.end(turn),
                () = sleep_until(next) => {}
            }
        }
        while works.tasks.join_next().await.is_some() {}
    }

    /// The registrations that wait although no place is left.
    async fn kept_out(&self, turns: &Turns) -> Vec<JobQueueKey> {
        let is_full = turns.open(Instant::now().into_std()) == Open::No;
        if !is_full || !self.generator.config().registers {
            return Vec::new();
        }
        let registry = self.generator.registry();
        let waiting = registry.waiting(JobKind::Register, unix_ms()).await;
        // While the registry is unreachable, it is not known who waits.
        waiting.unwrap_or_default()
    }

    /// Claims a registration, or else a job that needs an engine of this process; returns whose turn it takes.
    async fn claim(
        &self,
        turns: &mut Turns,
    ) -> Result<Option<(Claim, JobQueueKey)>, sextant_registry::Error> {
        let (registry, config) = (self.generator.registry(), self.generator.config());
        let (lease_ms, now) = (milliseconds(config.lease), Instant::now().into_std());
        let open = turns.open(now);
        if matches!(open, Open::From(_) | Open::No) {
            return Ok(None);
        }
        let owner = format!("{}-register-{}", self.owner, turns.upcoming());
        if config.registers {
            let mut waiting = registry.waiting(JobKind::Register, unix_ms()).await?;
            while let Some(next) = turns.next(&waiting, now) {
                let what = (JobKind::Register, &next);
                let claimed = registry.claim_of(what, &owner, lease_ms, unix_ms());
                if let Some(job) = claimed.await? {
                    return Ok(Some((Claim { job, owner }, next)));
                }
                // Another process was quicker.
                waiting.retain(|whose| *whose != next);
            }
        }
        if open != Open::ToAll {
            return Ok(None);
        }
        for engine in self.generator.engines() {
            let engine = EngineName(engine.name().to_owned());
            let what = (JobKind::Extend, &engine);
            let claimed = registry.claim_for(what, &owner, lease_ms, unix_ms());
            if let Some(job) = claimed.await? {
                // Nobody has requested it.
                let whose = JobQueueKey {
                    registrant: String::new(),
                    application: job.application.clone(),
                };
                return Ok(Some((Claim { job, owner }, whose)));
            }
        }
        Ok(None)
    }

    /// Works on a job to its end, or until the service stops or others wait.
    async fn work(&self, claim: &Claim, ends: [watch::Receiver<bool>; 2]) {
        let job = &claim.job;
        let (kind, engine) = (job.kind.as_str(), &job.engine);
        let model = job.model.as_ref().map(tracing::field::display);
        let engine = engine.as_ref().map(tracing::field::display);
        info!(job = %job.id, kind, model, engine, attempt = job.attempts, "begins");
        self.running.inc();
        let [mut stopped, mut others_wait] = ends;
        let ended = tokio::select! {
            ended = self.try_repeatedly(claim) => ended,
            () = self.hold(claim) => JobEnd::Lost,
            _ = stopped.wait_for(|stopped| *stopped) => JobEnd::GivenBack,
            _ = others_wait.wait_for(|wait| *wait) => JobEnd::GivenBack,
        };
        self.running.dec();
        let outcome = ended.name();
        let counters = match job.kind {
            JobKind::Extend => &self.extended,
            JobKind::Register | JobKind::Offline | JobKind::Measure => &self.ended,
        };
        counters.get_or_create(&OutcomeLabels { outcome }).inc();
        self.end_job(claim, ended).await;
        self.settled.send_modify(|count| *count += 1);
    }
}

impl RegistrationService {
    /// Never returns.
    async fn keep_marks(&self) {
        let mut wait = self.generator.config().back_off;
        loop {
            if let Err(error) = self.generator.publisher().keep_published().await {
                warn!(%error, "the list of variants in the metadata store cannot be brought up to date");
            }
            sleep_until(Instant::now() + wait).await;
            wait = (wait * 2).min(self.generator.config().lease);
        }
    }

    /// Never returns. Looks for models to extend when a job was created or has ended, when a failed one is due again,
    /// and from time to time, because other processes register models. It takes at most a few hundredths of the time,
    /// however many models there are.
    async fn plan(&self) {
        let lease = self.generator.config().lease;
        let mut jobs = self.generator.registry().jobs_changed();
        let mut settled = self.settled();
        loop {
            jobs.mark_unchanged();
            settled.mark_unchanged();
            let begun = Instant::now();
            let due = self.generator.plan().await.unwrap_or_else(|error| {
                warn!(%error, "models to extend cannot be looked for");
                None
            });
            sleep_until(Instant::now() + begun.elapsed() * REST).await;
            let due = due.map(|at| Duration::from_millis(at.saturating_sub(unix_ms())));
            let wait = due.map_or(lease / 2, |due| due.min(lease / 2));
            tokio::select! {
                _ = jobs.changed() => {}
                _ = settled.changed() => {}
                () = sleep_until(Instant::now() + wait) => {}
            }
        }
    }

    async fn try_repeatedly(&self, claim: &Claim) -> JobEnd {
        let config = self.generator.config();
        let mut wait = config.back_off;
        let mut failing_since = None;
        loop {
            match self.generator.run(claim).await {
                Ok(summary) => return JobEnd::Done(summary),
                Err(error) if error.is_lost() => return JobEnd::Lost,
                Err(Error::Measure(MeasureError::Cancelled)) => return JobEnd::Lost,
                Err(error) if error.is_transient() => {
                    let since = failing_since.get_or_insert_with(Instant::now);
                    let so_far = since.elapsed();
                    let most = match error.code() {
                        Code::Unavailable => config.store_patience,
                        _ => config.store_patience.min(REFUSED_PATIENCE),
                    };
                    if so_far >= most {
                        return JobEnd::Failed(error);
                    }
                    let so_far_s = so_far.as_secs_f64();
                    warn!(job = %claim.job.id, %error, so_far_s, "it is tried again");
                }
                Err(error) => return JobEnd::Failed(error),
            }
            sleep_until(Instant::now() + wait).await;
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
    }

    /// Renews the claim; returns when it is lost. It also looks whenever a job has changed, so that a cancellation
    /// takes effect at once.
    async fn hold(&self, claim: &Claim) {
        let lease = self.generator.config().lease;
        let registry = self.generator.registry();
        let mut jobs = registry.jobs_changed();
        loop {
            let (job, owner) = (&claim.job.id, &claim.owner);
            let renewed = registry.renew(job, owner, milliseconds(lease), unix_ms());
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

    async fn end_job(&self, claim: &Claim, ended: JobEnd) {
        let job = &claim.job.id;
        let registry = self.generator.registry();
        let settled = match ended {
            JobEnd::Done(summary) => {
                let Summary {
                    variants, frontier, ..
                } = summary;
                info!(%job, variants, frontier, "it is done");
                let renewed = self.generator.publisher().renew(&claim.job.application);
                if let Err(error) = renewed.await {
                    warn!(%error, "the list of variants in the metadata store cannot be brought up to date");
                }
                Ok(())
            }
            JobEnd::Failed(error) => {
                // Mostly the file's fault, which its owner is told: no alarm for the operator.
                warn!(%job, %error, code = %error.code(), "it failed");
                self.fail(claim, &error).await
            }
            JobEnd::GivenBack => {
                if let Err(error) = self.generator.forget_starts(claim).await {
                    warn!(%job, %error, "that a step was begun cannot be taken back");
                }
                let released = registry.release(job, &claim.owner, unix_ms());
                match released.await {
                    // Variants that were shown at the last moment must not stay.
                    Ok(()) => self.generator.publisher().publish_all().await.map(|_| ()),
                    Err(error) => Err(error.into()),
                }
            }
            JobEnd::Lost => {
                info!(%job, "it was cancelled or taken over");
                self.generator.publisher().publish_all().await.map(|_| ())
            }
        };
        match settled {
            Err(error) if !error.is_lost() => {
                // The claim lapses, and the job is claimed again.
                error!(%job, %error, "the end of the job cannot be recorded");
            }
            _ => {}
        }
    }

    async fn fail(&self, claim: &Claim, error: &Error) -> Result<(), Error> {
        self.generator.note_failure(claim, error).await?;
        let failure = Failure::new(error.code(), error.to_string());
        let (job, owner) = (&claim.job.id, &claim.owner);
        let failed = self
            .generator
            .registry()
            .fail(job, owner, &failure, unix_ms());
        Ok(failed.await?)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
