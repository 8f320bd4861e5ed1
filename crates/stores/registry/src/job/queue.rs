//! Creates, finds and claims jobs.

use sextant_types::{Code, EngineName, JobId, ModelId};

use super::{AnsweredBy, Job, JobFilter, JobKind, JobQueueKey, JobState, NewJob};
use crate::{
    Entity, Error, Failure, ModelStatus, OnceKey, Registry, application,
    database::{Row, Session},
    model, once,
    rows::{Columns, document, int},
    sql,
};

const DEFAULT_PAGE: u32 = 100;

/// The jobs among which one is claimed.
struct Claim<'a> {
    kind: JobKind,
    /// Jobs that need this engine; `None`: jobs that need no engine.
    engine: Option<&'a EngineName>,
    waiting: Option<&'a JobQueueKey>,
    answered_by: Option<AnsweredBy>,
}

// === impl Claim ===

impl Claim<'_> {
    fn of(kind: JobKind) -> Self {
        Self {
            kind,
            engine: None,
            waiting: None,
            answered_by: None,
        }
    }
}

// === impl Registry ===

impl Registry {
    /// Creates a job in state [`JobState::Queued`]. A job with the same id and content is returned in its present
    /// state; one with other content is [`Error::Exists`].
    pub async fn create_job(&self, job: &NewJob, now_ms: u64) -> Result<Job, Error> {
        self.create_job_once(job, None, now_ms).await
    }

    /// [`create_job`](Self::create_job), unless an earlier request with the same key has created a job: then that job
    /// is returned in its present state.
    pub async fn create_job_once(
        &self,
        job: &NewJob,
        once: Option<&OnceKey>,
        now_ms: u64,
    ) -> Result<Job, Error> {
        let mut tx = self.begin().await?;
        if let Some(once) = once
            && let Some(earlier) = once::recall(&mut tx, once, now_ms).await?
        {
            return Ok(earlier);
        }
        let job = create(&mut tx, job, now_ms).await?;
        if let Some(once) = once {
            once::remember(&mut tx, once, &job.id, now_ms).await?;
        }
        self.commit_work(tx).await?;
        Ok(job)
    }

    /// One job.
    pub async fn job(&self, id: &JobId) -> Result<Job, Error> {
        let mut reader = self.read().await?;
        get(&mut reader, id).await
    }

    /// Jobs, newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<Job>, Error> {
        let rows = self
            .read()
            .await?
            .rows(
                sql::JOBS
                    .bind(filter.kind.map(JobKind::as_str))
                    .bind(filter.state.map(JobState::as_str))
                    .bind(filter.application.as_ref().map(|id| id.as_str()))
                    .bind(filter.model.as_ref().map(|id| id.as_str()))
                    .bind(filter.before.as_ref().map(|id| id.as_str()))
                    .bind(i64::from(filter.limit.unwrap_or(DEFAULT_PAGE))),
            )
            .await?;
        rows.iter().map(job).collect()
    }

    /// Gives the oldest job of a kind that has no holder to `owner` until `now_ms + lease_ms`. `owner` must be unique
    /// to one life of one runner. Nobody else gets the job before that. Only [`claim_for`](Self::claim_for) gives out a
    /// job that needs an engine.
    pub async fn claim(
        &self,
        kind: JobKind,
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        self.hand_out(Claim::of(kind), owner, lease_ms, now_ms)
            .await
    }

    /// [`claim`](Self::claim) only among the jobs of one of the queues that [wait](Self::waiting).
    pub async fn claim_of(
        &self,
        (kind, waiting): (JobKind, &JobQueueKey),
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        let what = Claim {
            waiting: Some(waiting),
            ..Claim::of(kind)
        };
        self.hand_out(what, owner, lease_ms, now_ms).await
    }

    /// The queues of jobs of a kind that [`claim`](Self::claim) would give out, in the order of the oldest job of each.
    pub async fn waiting(&self, kind: JobKind, now_ms: u64) -> Result<Vec<JobQueueKey>, Error> {
        let mut reader = self.read().await?;
        let waiting = sql::WAITING.bind(kind.as_str()).bind(int(now_ms));
        let rows = reader.rows(waiting).await?;
        let rows = rows.iter().map(|row| {
            let columns = Columns::new(row, Entity::Job, "application")?;
            Ok(JobQueueKey {
                registrant: columns.text("registrant")?,
                application: columns.parse("application")?,
            })
        });
        rows.collect()
    }

    /// [`claim`](Self::claim) only among the jobs that need this engine.
    pub async fn claim_for(
        &self,
        (kind, engine): (JobKind, &EngineName),
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        let what = Claim {
            engine: Some(engine),
            ..Claim::of(kind)
        };
        self.hand_out(what, owner, lease_ms, now_ms).await
    }

    /// [`claim`](Self::claim) only among the offline jobs that such a runner can answer.
    pub async fn claim_offline(
        &self,
        answered_by: AnsweredBy,
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        let what = Claim {
            answered_by: Some(answered_by),
            ..Claim::of(JobKind::Offline)
        };
        self.hand_out(what, owner, lease_ms, now_ms).await
    }

    async fn hand_out(
        &self,
        what: Claim<'_>,
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        let mut tx = self.begin_rows().await?;
        let row = tx
            .row(
                sql::CLAIM_JOB
                    .bind(what.kind.as_str())
                    .bind(owner)
                    .bind(int(now_ms.saturating_add(lease_ms)))
                    .bind(int(now_ms))
                    .bind(what.engine.map(|engine| engine.0.as_str()))
                    .bind(what.waiting.map(|waiting| waiting.application.as_str()))
                    .bind(what.waiting.map(|waiting| waiting.registrant.as_str()))
                    .bind(what.answered_by.map(AnsweredBy::as_str)),
            )
            .await?;
        tx.commit().await?;
        row.as_ref().map(job).transpose()
    }

    /// Puts jobs whose claims have lapsed back into the queue and returns their number.
    pub async fn requeue_orphans(&self, now_ms: u64) -> Result<u64, Error> {
        self.requeue(Some(now_ms), now_ms).await
    }

    /// Puts all held jobs back into the queue and returns their number. For the start of a process that is the only one
    /// to run jobs: every holder is then known to be dead.
    pub async fn void_leases(&self, now_ms: u64) -> Result<u64, Error> {
        self.requeue(None, now_ms).await
    }

    async fn requeue(&self, lapsed_by_ms: Option<u64>, now_ms: u64) -> Result<u64, Error> {
        let mut tx = self.begin_rows().await?;
        let done = tx
            .run(
                sql::REQUEUE_JOBS
                    .bind(lapsed_by_ms.map(int))
                    .bind(int(now_ms)),
            )
            .await?;
        if done > 0 {
            self.commit_work(tx).await?;
        }
        Ok(done)
    }

    /// Cancels a job, and returns it. Its runner is told by its next call about the job;
    /// [`jobs_changed`](Self::jobs_changed) fires. A job that has ended does not change.
    pub async fn cancel(&self, id: &JobId, now_ms: u64) -> Result<Job, Error> {
        let mut tx = self.begin_rows().await?;
        let found = to_change(&mut tx, id).await?;
        if found.state.is_final() {
            return Ok(found);
        }
        let row = tx
            .one(sql::CANCEL_JOB.bind(id.as_str()).bind(int(now_ms)))
            .await?;
        if let (JobKind::Register, Some(model)) = (found.kind, &found.model) {
            let failure = Failure::new(Code::Unavailable, "the registration was cancelled");
            model::set_status(&mut tx, model, ModelStatus::Failed, Some(&failure)).await?;
        }
        self.commit_work(tx).await?;
        job(&row)
    }
}

pub(crate) async fn create(
    connection: &mut Session,
    new: &NewJob,
    now_ms: u64,
) -> Result<Job, Error> {
    if let Some(known) = find(connection, &new.id).await? {
        let same = known.kind == new.kind
            && known.application == new.application
            && known.model == new.model
            && known.engine == new.engine
            && known.spec == new.spec;
        return if same {
            Ok(known)
        } else {
            Err(Error::exists(Entity::Job, &new.id))
        };
    }
    application::get(connection, &new.application).await?;
    let row = connection
        .one(
            sql::CREATE_JOB
                .bind(new.id.as_str())
                .bind(new.kind.as_str())
                .bind(new.application.as_str())
                .bind(new.model.as_ref().map(|model| model.as_str()))
                .bind(document(Entity::Job, &new.id, &new.spec)?)
                .bind(int(now_ms))
                .bind(new.engine.as_ref().map(|engine| engine.0.as_str())),
        )
        .await?;
    job(&row)
}

/// The latest job that registers or registered the model.
pub(crate) async fn registration_of(
    connection: &mut Session,
    model: &ModelId,
) -> Result<Option<Job>, Error> {
    let row = connection
        .row(sql::REGISTRATION_OF_MODEL.bind(model.as_str()))
        .await?;
    row.as_ref().map(job).transpose()
}

pub(crate) async fn unfinished_of(
    connection: &mut Session,
    model: &ModelId,
) -> Result<bool, Error> {
    connection
        .any(sql::UNFINISHED_OF_MODEL.bind(model.as_str()))
        .await
}

pub(super) async fn get(connection: &mut Session, id: &JobId) -> Result<Job, Error> {
    find(connection, id)
        .await?
        .ok_or_else(|| Error::not_found(Entity::Job, id))
}

/// The job, locked so that nobody else changes it before the transaction ends.
pub(super) async fn to_change(connection: &mut Session, id: &JobId) -> Result<Job, Error> {
    let row = connection.row(sql::JOB_TO_CHANGE.bind(id.as_str())).await?;
    let row = row.ok_or_else(|| Error::not_found(Entity::Job, id))?;
    job(&row)
}

async fn find(connection: &mut Session, id: &JobId) -> Result<Option<Job>, Error> {
    let row = connection.row(sql::JOB.bind(id.as_str())).await?;
    row.as_ref().map(job).transpose()
}

pub(crate) fn job(row: &Row) -> Result<Job, Error> {
    let columns = Columns::new(row, Entity::Job, "id")?;
    Ok(Job {
        id: columns.parse("id")?,
        kind: columns.one_of("kind", JobKind::parse)?,
        application: columns.parse("application")?,
        model: columns.parse_optional("model")?,
        engine: columns.optional_text("engine")?.map(EngineName),
        spec: columns.json("spec")?,
        state: columns.one_of("state", JobState::parse)?,
        step: columns.text("step")?,
        progress_done: columns.count("progress_done")?,
        progress_total: columns.count("progress_total")?,
        error: columns.failure()?,
        attempts: columns.count("attempts")?,
        owner: columns.optional_text("owner")?,
        lease_until_ms: columns.count("lease_until_ms")?,
        created_ms: columns.count("created_ms")?,
        updated_ms: columns.count("updated_ms")?,
        result: columns.optional_json("result")?,
    })
}
