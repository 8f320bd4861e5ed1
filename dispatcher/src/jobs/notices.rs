//! Messages to webhooks about jobs that came to their end.
//!
//! What was delivered is kept in the artefact store (`.jobs/{job}/webhook.json`), not in memory:
//! a job may end in one process and be told of by the next. A message may arrive twice, when a
//! crash comes between the delivery and the note about it; never not at all, unless the receiver
//! refuses it for hours.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_objects::ObjectPath;
use sextant_records::Files;
use sextant_registry::{Job, Registry};
use sextant_rpc::{DeliveryFailure, Notice, Notify};
use sextant_types::{
    JobId,
    offline::{OfflineStep, WEBHOOK_NOTE, notes_folder, shown_webhook},
    time::unix_ms,
};
use tokio::task::JoinSet;

/// Pauses behind failed attempts, seconds; after the last a message is given up.
const PAUSES_S: [u64; 8] = [1, 5, 30, 120, 600, 1800, 3600, 14_400];

/// Jobs that ended longer ago are not looked at, ms.
const HORIZON_MS: u64 = 24 * 3600 * 1000;

/// A job is looked at again for so long after it ended, ms: whoever ended it may have another clock.
const OVERLAP_MS: u64 = 10 * 60 * 1000;

/// Jobs that are read at once.
const PAGE: u32 = 1000;

/// Messages that are on their way at once.
const MOST_UNDER_WAY: usize = 8;

/// Nothing is due.
const LONG: Duration = Duration::from_secs(3600);

/// Finds jobs to tell of, and tells.
pub(crate) struct Notices {
    registry: Registry,
    files: Files,
    notifier: Arc<dyn Notify>,
    /// Jobs of which nothing is to be told any more, with the times at which they ended.
    told: BTreeMap<JobKey, u64>,
    /// Of the jobs that ended by then nothing is left to find, but for the overlap.
    looked_ms: u64,
    waiting: BTreeMap<JobKey, PendingNotice>,
}

/// A job by its name and the time at which it was created: one that is forgotten leaves its name to others.
type JobKey = (JobId, u64);

struct PendingNotice {
    job: Job,
    url: String,
    attempts: u32,
    due: Instant,
}

type Outcome = Result<u16, DeliveryFailure>;

impl Notices {
    pub(crate) fn new(registry: Registry, files: Files, notifier: Arc<dyn Notify>) -> Self {
        Self {
            registry,
            files,
            notifier,
            told: BTreeMap::new(),
            looked_ms: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Sends what is due, and returns the time to the next.
    pub(crate) async fn work(&mut self) -> Duration {
        self.look().await;
        let now = Instant::now();
        let is_due = |entry: &(&JobKey, &PendingNotice)| entry.1.due <= now;
        let due = self.waiting.iter().filter(is_due);
        let due = due.map(|(key, _)| key.clone()).take(MOST_UNDER_WAY);
        let due: Vec<JobKey> = due.collect();
        let mut under_way = JoinSet::new();
        for key in due {
            let Some(waiting) = self.waiting.get(&key) else {
                continue;
            };
            let notice = notice(waiting);
            let notifier = Arc::clone(&self.notifier);
            under_way.spawn(async move { (key, notifier.notify(&notice).await) });
        }
        while let Some(ended) = under_way.join_next().await {
            if let Ok((key, outcome)) = ended {
                self.note(&key, outcome).await;
            }
        }
        let next = self.waiting.values().map(|waiting| waiting.due).min();
        next.map_or(LONG, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Finds jobs that ended and have not been told of.
    async fn look(&mut self) {
        let now = unix_ms();
        let horizon = now.saturating_sub(HORIZON_MS);
        let since = self.looked_ms.saturating_sub(OVERLAP_MS).max(horizon);
        self.told.retain(|_, ended_ms| *ended_ms >= since);
        let mut after = (since, String::new());
        loop {
            let page = self
                .registry
                .ended_offline_jobs((after.0, &after.1), PAGE)
                .await;
            let Ok(jobs) = page else {
                return;
            };
            let is_last = jobs.len() < PAGE as usize;
            for job in jobs {
                after = (job.updated_ms, job.id.to_string());
                if self.consider(job).await.is_err() {
                    // The next look begins here.
                    return;
                }
                // Some clock may be ahead.
                self.looked_ms = self.looked_ms.max(after.0.min(now));
            }
            if is_last {
                return;
            }
        }
    }

    /// Whether there is something to tell of a job that has ended.
    async fn consider(&mut self, job: Job) -> Result<(), sextant_objects::Error> {
        let url = job.spec.get("webhook").and_then(Value::as_str);
        let Some(url) = url.map(str::to_owned) else {
            return Ok(());
        };
        let key = (job.id.clone(), job.created_ms);
        if self.told.contains_key(&key) || self.waiting.contains_key(&key) {
            return Ok(());
        }
        if self.is_noted(&key).await? {
            self.told.insert(key, job.updated_ms);
            return Ok(());
        }
        let waiting = PendingNotice {
            url,
            attempts: 0,
            due: Instant::now(),
            job,
        };
        self.waiting.insert(key, waiting);
        Ok(())
    }

    /// Whether a delivery is noted, and not that of an earlier job of this name. Versions before have not noted whose it is.
    async fn is_noted(&self, (id, created_ms): &JobKey) -> Result<bool, sextant_objects::Error> {
        let note = match self.files.get(&record_path(id)).await {
            Err(sextant_objects::Error::NotFound { .. }) => return Ok(false),
            note => note?,
        };
        let note: Value = serde_json::from_slice(&note).unwrap_or_default();
        let of = note.get("created_ms").and_then(Value::as_u64);
        Ok(of.is_none_or(|of| of == *created_ms))
    }

    /// What came of an attempt.
    async fn note(&mut self, key: &JobKey, outcome: Outcome) {
        let (id, created_ms) = key;
        let Some(waiting) = self.waiting.get_mut(key) else {
            return;
        };
        waiting.attempts += 1;
        let (attempts, webhook) = (waiting.attempts, shown_webhook(&waiting.url));
        let pause = PAUSES_S.get(attempts as usize - 1);
        let record = match (outcome, pause) {
            (Ok(status), _) => {
                tracing::info!(job = %id, webhook, status, attempts, "a webhook was told");
                json!({"delivered": true, "status": status})
            }
            (Err(failure), Some(pause_s)) if failure.retry => {
                tracing::info!(job = %id, webhook, %failure, attempts, "a webhook was not told");
                waiting.due = Instant::now() + Duration::from_secs(*pause_s);
                return;
            }
            (Err(failure), _) => {
                tracing::warn!(job = %id, webhook, %failure, attempts, "a webhook is given up");
                json!({"delivered": false, "reason": failure.reason})
            }
        };
        let mut record = record;
        record["created_ms"] = json!(created_ms);
        record["attempts"] = json!(attempts);
        record["webhook"] = json!(webhook);
        record["at_ms"] = json!(unix_ms());
        let bytes = Bytes::from(record.to_string());
        match self.files.put(&record_path(id), bytes).await {
            Ok(()) => {
                if let Some(waiting) = self.waiting.remove(key) {
                    self.told.insert(key.clone(), waiting.job.updated_ms);
                }
            }
            Err(error) => {
                tracing::warn!(job = %id, %error, "the delivery to a webhook was not noted");
                waiting.due = Instant::now() + LONG;
            }
        }
    }
}

/// Where the delivery is noted.
fn record_path(job: &JobId) -> ObjectPath {
    // Names of jobs are made of what paths are made of, and shorter.
    let path = format!("{}/{WEBHOOK_NOTE}", notes_folder(job));
    ObjectPath::parse(&path).expect("a job's name fits a path")
}

fn notice(waiting: &PendingNotice) -> Notice {
    let job = &waiting.job;
    let step = job.step.parse::<OfflineStep>().ok();
    let error = job.error.as_ref();
    let error = error.map(|error| json!({"code": error.code.as_str(), "message": error.message}));
    let body = json!({
        "job": job.id, "kind": job.kind.as_str(), "state": job.state.as_str(),
        "application": job.application, "input": job.spec["input"], "output": job.spec["output"],
        "progress": {
            "done": job.progress_done, "total": job.progress_total,
            "failed": step.map(|step| step.failed)
        },
        "result": job.result, "error": error,
        "created_ms": job.created_ms, "updated_ms": job.updated_ms,
    });
    Notice {
        url: waiting.url.clone(),
        id: job.id.to_string(),
        body: Bytes::from(body.to_string()),
    }
}
