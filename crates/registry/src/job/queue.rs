//! Creating, finding and claiming jobs.

use sextant_types::{Code, JobId, ModelId};
use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{Job, JobFilter, JobKind, JobState, NewJob};
use crate::{
    Entity, Error, Failure, ModelStatus, Registry, application, model,
    rows::{Columns, document, int},
};

const DEFAULT_PAGE: u32 = 100;

impl Registry {
    /// Creates a job in state [`JobState::Queued`]. A job of the same name and content is
    /// returned as it stands; one of other content is [`Error::Exists`].
    pub async fn create_job(&self, job: &NewJob, now_ms: u64) -> Result<Job, Error> {
        let mut tx = self.begin().await?;
        let job = create(&mut tx, job, now_ms).await?;
        tx.commit().await?;
        self.wake_runners();
        Ok(job)
    }

    /// One job.
    pub async fn job(&self, id: &JobId) -> Result<Job, Error> {
        let mut reader = self.inner.readers.acquire().await?;
        get(&mut reader, id).await
    }

    /// Jobs, newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<Job>, Error> {
        let rows = sqlx::query(
            "select * from jobs where ($1 is null or kind = $1) and ($2 is null or state = $2) \
             and ($3 is null or application = $3) and ($4 is null or model = $4) \
             and ($5 is null or (created_ms, id) < \
                 (select created_ms, id from jobs where id = $5)) \
             order by created_ms desc, id desc limit $6",
        )
        .bind(filter.kind.map(JobKind::as_str))
        .bind(filter.state.map(JobState::as_str))
        .bind(filter.application.as_ref().map(|id| id.as_str()))
        .bind(filter.model.as_ref().map(|id| id.as_str()))
        .bind(filter.before.as_ref().map(|id| id.as_str()))
        .bind(i64::from(filter.limit.unwrap_or(DEFAULT_PAGE)))
        .fetch_all(&self.inner.readers)
        .await?;
        rows.iter().map(job).collect()
    }

    /// Hands the oldest job of a kind that nobody holds to `owner` until `now_ms + lease_ms`.
    /// `owner` must be unique to one life of one runner. Nobody else gets the job before that.
    pub async fn claim(
        &self,
        kind: JobKind,
        owner: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> Result<Option<Job>, Error> {
        let mut tx = self.begin().await?;
        let row = sqlx::query(
            "update jobs set state = 'running', owner = $2, attempts = attempts + 1, \
             lease_until_ms = $3, updated_ms = $4 where id = ( \
                 select id from jobs where kind = $1 and (state = 'queued' \
                 or (state in ('running', 'paused') and lease_until_ms <= $4)) \
                 order by created_ms, id limit 1) \
             returning *",
        )
        .bind(kind.as_str())
        .bind(owner)
        .bind(int(now_ms.saturating_add(lease_ms)))
        .bind(int(now_ms))
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        row.as_ref().map(job).transpose()
    }

    /// Puts jobs whose holder let its claim lapse back into the queue and returns how many.
    pub async fn requeue_orphans(&self, now_ms: u64) -> Result<u64, Error> {
        self.requeue(Some(now_ms), now_ms).await
    }

    /// Puts all held jobs back into the queue and returns how many: for the start of a process
    /// that is the only one to run jobs, so that every holder is known to be dead.
    pub async fn void_leases(&self, now_ms: u64) -> Result<u64, Error> {
        self.requeue(None, now_ms).await
    }

    async fn requeue(&self, lapsed_by_ms: Option<u64>, now_ms: u64) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let done = sqlx::query(
            "update jobs set state = 'queued', owner = null, lease_until_ms = 0, updated_ms = $2 \
             where state in ('running', 'paused') and ($1 is null or lease_until_ms <= $1)",
        )
        .bind(lapsed_by_ms.map(int))
        .bind(int(now_ms))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        if done.rows_affected() > 0 {
            self.wake_runners();
        }
        Ok(done.rows_affected())
    }

    /// Stops a job, and returns it as it stands. Its runner is told by its next call about it;
    /// [`jobs_changed`](Self::jobs_changed) fires. A job that has come to its end stays as it is.
    pub async fn cancel(&self, id: &JobId, now_ms: u64) -> Result<Job, Error> {
        let mut tx = self.begin().await?;
        let found = get(&mut tx, id).await?;
        if found.state.is_final() {
            return Ok(found);
        }
        let row = sqlx::query(
            "update jobs set state = 'cancelled', owner = null, lease_until_ms = 0, \
             updated_ms = $2 where id = $1 returning *",
        )
        .bind(id.as_str())
        .bind(int(now_ms))
        .fetch_one(&mut *tx)
        .await?;
        if let (JobKind::Register, Some(model)) = (found.kind, &found.model) {
            let failure = Failure::new(Code::Unavailable, "the registration was cancelled");
            model::set_status(&mut tx, model, ModelStatus::Failed, Some(&failure)).await?;
        }
        tx.commit().await?;
        self.wake_runners();
        job(&row)
    }
}

pub(crate) async fn create(
    connection: &mut SqliteConnection,
    new: &NewJob,
    now_ms: u64,
) -> Result<Job, Error> {
    if let Some(known) = find(connection, &new.id).await? {
        let same = known.kind == new.kind
            && known.application == new.application
            && known.model == new.model
            && known.spec == new.spec;
        return if same {
            Ok(known)
        } else {
            Err(Error::exists(Entity::Job, &new.id))
        };
    }
    application::get(connection, &new.application).await?;
    let row = sqlx::query(
        "insert into jobs (id, kind, application, model, spec, state, step, progress_done, \
         progress_total, attempts, lease_until_ms, created_ms, updated_ms) \
         values ($1, $2, $3, $4, $5, 'queued', '', 0, 0, 0, 0, $6, $6) returning *",
    )
    .bind(new.id.as_str())
    .bind(new.kind.as_str())
    .bind(new.application.as_str())
    .bind(new.model.as_ref().map(|model| model.as_str()))
    .bind(document(Entity::Job, &new.id, &new.spec)?)
    .bind(int(now_ms))
    .fetch_one(connection)
    .await?;
    job(&row)
}

/// The latest job that registered the model or does.
pub(crate) async fn registration_of(
    connection: &mut SqliteConnection,
    model: &ModelId,
) -> Result<Option<Job>, Error> {
    let row = sqlx::query(
        "select * from jobs where model = $1 and kind = 'register' \
         order by created_ms desc, id desc limit 1",
    )
    .bind(model.as_str())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(job).transpose()
}

pub(crate) async fn unfinished_of(
    connection: &mut SqliteConnection,
    model: &ModelId,
) -> Result<bool, Error> {
    let row = sqlx::query(
        "select 1 from jobs where model = $1 and state in ('queued', 'running', 'paused') limit 1",
    )
    .bind(model.as_str())
    .fetch_optional(connection)
    .await?;
    Ok(row.is_some())
}

pub(super) async fn get(connection: &mut SqliteConnection, id: &JobId) -> Result<Job, Error> {
    find(connection, id)
        .await?
        .ok_or_else(|| Error::not_found(Entity::Job, id))
}

async fn find(connection: &mut SqliteConnection, id: &JobId) -> Result<Option<Job>, Error> {
    let row = sqlx::query("select * from jobs where id = $1")
        .bind(id.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(job).transpose()
}

pub(super) fn job(row: &SqliteRow) -> Result<Job, Error> {
    let columns = Columns::new(row, Entity::Job, "id")?;
    Ok(Job {
        id: columns.parse("id")?,
        kind: columns.one_of("kind", JobKind::parse)?,
        application: columns.parse("application")?,
        model: columns.parse_optional("model")?,
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
