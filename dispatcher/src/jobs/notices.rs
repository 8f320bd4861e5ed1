//! Messages to webhooks about jobs that have ended.
//!
//! What was delivered is recorded in the artefact store (`.jobs/{job}/webhook.json`), not in memory, because a job may
//! end in one process and be reported by the next. If a crash comes between the delivery and its record, a message
//! arrives twice. A message is lost only if the receiver refuses it for hours.

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

/// Pauses after failed attempts, seconds. After the last one the message is given up.
const PAUSES_S: [u64; 8] = [1, 5, 30, 120, 600, 1800, 3600, 14_400];

/// Jobs that ended longer ago are not looked at, ms.
const HORIZON_MS: u64 = 24 * 3600 * 1000;

/// How long after its end a job is still looked at again, ms. The process that ended it may have a different clock.
const OVERLAP_MS: u64 = 10 * 60 * 1000;

/// Jobs that are read at once.
const PAGE: u32 = 1000;

/// Messages that are sent at the same time.
const MOST_UNDER_WAY: usize = 8;

/// The wait if nothing is due.
const LONG: Duration = Duration::from_secs(3600);

/// Finds jobs whose end must be reported, and reports it.
pub(crate) struct Notices {
    registry: Registry,
    files: Files,
    notifier: Arc<dyn Notify>,
    /// Jobs that need no further report, with the times at which they ended.
    told: BTreeMap<JobKey, u64>,
    /// All jobs that ended before this time have been found, except within the overlap.
    looked_ms: u64,
    waiting: BTreeMap<JobKey, PendingNotice>,
}

/// A job by its name and the time at which it was created. Another job may use the name after the job is forgotten.
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

    /// Sends what is due. Returns the time until the next message is due.
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

    /// Finds jobs that ended and have not been reported.
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
                    // The next look starts with this job.
                    return;
                }
                // The clock of the process that ended the job may be ahead.
                self.looked_ms = self.looked_ms.max(after.0.min(now));
            }
            if is_last {
                return;
            }
        }
    }

    /// Queues a message about a job that has ended, if one must be sent.
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

    /// Whether the delivery for this job, and not for an earlier job of the same name, is recorded. Earlier versions
    /// did not record which job it belongs to.
    async fn is_noted(&self, (id, created_ms): &JobKey) -> Result<bool, sextant_objects::Error> {
        let note = match self.files.get(&record_path(id)).await {
            Err(sextant_objects::Error::NotFound { .. }) => return Ok(false),
            note => note?,
        };
        let note: Value = serde_json::from_slice(&note).unwrap_or_default();
        let of = note.get("created_ms").and_then(Value::as_u64);
        Ok(of.is_none_or(|of| of == *created_ms))
    }

    /// Records the outcome of an attempt.
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

/// The path at which the delivery is recorded.
fn record_path(job: &JobId) -> ObjectPath {
    // The name of a job has only characters that paths may have, and is shorter.
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
