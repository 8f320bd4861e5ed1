//! Offline jobs: they read files of records and write files of answers on spare resources (INFaaS section 5.3).
//!
//! A job reads JSONL, NPY or NPZ from the artefact store and answers the records in chunks. It writes each chunk once
//! as a part *before* it advances the job's row. The last step joins the parts into the output. After a crash at any
//! point, the next runner continues the job.
//!
//! Every claim of a job has a number, and a runner writes under names that contain the number of its claim. Beside the
//! parts, each claim keeps the number of records that were committed when it began. Exactly one part of each chunk is
//! therefore the valid one: that of the last claim that began at or before the chunk. A runner that lost its claim
//! without knowing it writes parts that nobody reads. A committed answer therefore never changes, and each record
//! appears exactly once. The variant, the files and the chunks that were determined when the job first ran are kept as
//! well, so a resumed job answers as it began.

mod answer;
mod aside;
mod ledger;
mod notices;
mod output;
mod plan;
mod run;
mod stop;
mod variants;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use parking_lot::Mutex;
use sextant_fleet::turned;
use sextant_health::throttle::Throttle;
use sextant_objects::ObjectStore;
use sextant_records::Files;
use sextant_registry::{AnsweredBy, Job, Registry};
use sextant_rpc::{Notify, Offline};
use sextant_types::{JobId, time::unix_ms};
use tokio::sync::{Mutex as AsyncMutex, Notify as Wake, watch};

use aside::Aside;
use notices::Notices;

/// How offline jobs run.
#[derive(Debug, Clone)]
pub struct JobConfig {
    /// Unique to this life of this process. Its claims are named after it.
    pub owner: String,
    /// Which jobs it claims: those that its [`Offline`] can answer.
    pub answered_by: AnsweredBy,
    /// How long a claim lasts without renewal, ms.
    pub lease_ms: u64,
    /// When jobs make room for online queries.
    pub throttle: Throttle,
    /// Time between two looks at the load while a job is paused, ms.
    pub look_ms: u64,
}

/// Claims and runs offline jobs, and reports their end to webhooks.
///
/// Several jobs run at the same time and ask in turns. Only one query of all of them is under way at a time, so online
/// queries find as much room beside four jobs as beside one.
pub struct JobService {
    pub(crate) config: JobConfig,
    pub(crate) offline: Arc<dyn Offline>,
    pub(crate) registry: Registry,
    pub(crate) files: Files,
    pub(crate) aside: Aside,
    notifier: Option<Arc<dyn Notify>>,
    /// The jobs that this process holds, each with the owner of the last claim that it made.
    held: Arc<Mutex<BTreeMap<JobId, String>>>,
    /// The number of claims that were begun. Each has its own owner, because this process may claim a job again after
    /// its claim lapsed.
    claims: AtomicU64,
    /// Held by the job that asks. The others wait in the order in which they came.
    pub(crate) turn: AsyncMutex<()>,
    /// Locked while a job is being claimed.
    claiming: Arc<AsyncMutex<()>>,
    /// Woken when a job ends here.
    ended: Wake,
}

/// Jobs that run at the same time. Others wait in the queue.
const JOBS_AT_ONCE: usize = 8;

/// How often the runner looks at the queue if nothing wakes it.
const IDLE_LOOK: Duration = Duration::from_secs(5);

/// The longest wait for the registry when a job is given back.
const GIVE_BACK: Duration = Duration::from_secs(2);

impl JobService {
    /// A runner of offline jobs that reports to no webhook.
    pub fn new(
        config: JobConfig,
        offline: Arc<dyn Offline>,
        registry: Registry,
        objects: Arc<dyn ObjectStore>,
    ) -> Self {
        Self {
            config,
            offline,
            registry,
            files: Files::new(objects),
            aside: Aside::start(),
            notifier: None,
            held: Arc::default(),
            claims: AtomicU64::new(0),
            turn: AsyncMutex::new(()),
            claiming: Arc::default(),
            ended: Wake::new(),
        }
    }

    /// The same runner with a carrier of messages to webhooks.
    pub fn with_notifier(mut self, notifier: Arc<dyn Notify>) -> Self {
        self.notifier = Some(notifier);
        self
    }

    /// Runs until `shutdown`. A job under way is given back and continues in the next life.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let always = watch::Sender::new(true);
        self.run_while(always.subscribe(), shutdown).await;
    }

    /// Runs until `shutdown`, and only while `leading` is true, so that only one of several processes runs jobs. When
    /// `leading` becomes false, a job under way is given back at once. If the sender of `leading` is gone, its last
    /// value stays in force.
    pub async fn run_while(
        self,
        mut leading: watch::Receiver<bool>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                () = turned(&mut leading, true) => {}
            }
            let over = tokio::select! {
                () = &mut shutdown => true,
                () = turned(&mut leading, false) => false,
                () = self.work() => false,
            };
            self.give_back().await;
            if over {
                return;
            }
        }
    }

    async fn work(&self) {
        tokio::join!(self.run_jobs(), self.tell());
    }

    async fn run_jobs(&self) {
        let changed = self.registry.jobs_changed();
        let mut running = FuturesUnordered::new();
        // This future continues while jobs run and is never dropped halfway: a job that is claimed is run.
        let mut next = Box::pin(self.next_job(changed.clone()));
        loop {
            tokio::select! {
                Some(()) = running.next() => {}
                job = &mut next, if running.len() < JOBS_AT_ONCE => {
                    running.push(self.run_held(job, changed.clone()));
                    next = Box::pin(self.next_job(changed.clone()));
                }
            }
        }
    }

    /// Claims the next job as soon as there is one.
    async fn next_job(&self, mut changed: watch::Receiver<u64>) -> Job {
        loop {
            match self.claim().await {
                Ok(Some(job)) => return job,
                Ok(None) => drop(tokio::time::timeout(IDLE_LOOK, changed.changed()).await),
                Err(error) => {
                    tracing::warn!(%error, "the job queue did not answer");
                    tokio::time::sleep(IDLE_LOOK).await;
                }
            }
        }
    }

    /// Runs a job that was claimed.
    async fn run_held(&self, job: Job, mut changed: watch::Receiver<u64>) {
        self.run_job(&job, &mut changed).await;
        let mut held = self.held.lock();
        if held.get(&job.id).map(String::as_str) == Some(owner(&job)) {
            held.remove(&job.id);
        }
        drop(held);
        self.ended.notify_one();
    }

    /// Reports the end of jobs to webhooks, no matter who ended them.
    async fn tell(&self) {
        let Some(notifier) = &self.notifier else {
            return;
        };
        let mut changed = self.registry.jobs_changed();
        let (registry, files) = (self.registry.clone(), self.files.clone());
        let mut notices = Notices::new(registry, files, Arc::clone(notifier));
        loop {
            let pause = notices.work().await.min(IDLE_LOOK);
            tokio::select! {
                () = self.ended.notified() => {}
                _ = changed.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Puts the jobs that are under way back into the queue, so that another runner need not wait until their leases
    /// lapse.
    async fn give_back(&self) {
        // A job that is being claimed is known once the claim is done.
        drop(tokio::time::timeout(GIVE_BACK, self.claiming.lock()).await);
        let held = std::mem::take(&mut *self.held.lock());
        let all = held.iter().map(|(job, owner)| async move {
            match self.registry.release(job, owner, unix_ms()).await {
                Ok(()) => tracing::info!(%job, "a job under way was given back"),
                // Its lease will lapse.
                Err(error) => tracing::info!(%job, %error, "a job was not given back"),
            }
        });
        if tokio::time::timeout(GIVE_BACK, join_all(all))
            .await
            .is_err()
        {
            tracing::info!("not all jobs were given back in time");
        }
    }

    /// Claims a job in a task of its own, and notes that it is held: a claim that the registry has granted must not be
    /// lost because the caller stops waiting.
    async fn claim(&self) -> Result<Option<Job>, sextant_registry::Error> {
        let claiming = Arc::clone(&self.claiming).lock_owned().await;
        let (registry, held) = (self.registry.clone(), Arc::clone(&self.held));
        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}-job-{number}", self.config.owner);
        let (answered_by, lease_ms) = (self.config.answered_by, self.config.lease_ms);
        let claim = tokio::spawn(async move {
            let _claiming = claiming;
            let claimed = registry.claim_offline(answered_by, &owner, lease_ms, unix_ms());
            let claimed = claimed.await;
            if let Ok(Some(job)) = &claimed {
                held.lock().insert(job.id.clone(), owner);
            }
            claimed
        });
        claim.await.unwrap_or(Ok(None))
    }
}

/// The owner of the claim that a job is under.
fn owner(job: &Job) -> &str {
    job.owner.as_deref().unwrap_or_default()
}
