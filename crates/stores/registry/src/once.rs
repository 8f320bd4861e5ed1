//! Requests that are carried out once, however often they are sent.
//!
//! A client that has lost the answer to a request sends it again with the same key. The key is stored with the job that
//! the request created, in the transaction that creates the job. So after a restart, and in any other process that
//! shares the registry, the client gets the same answer.

use sextant_types::JobId;

use crate::{
    Entity, Error, Job,
    database::Session,
    job,
    rows::{Columns, int},
    sql,
};

/// Time for which keys are kept, ms.
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// The key of a request that is to be carried out once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceKey {
    /// The caller: other callers may use the same key for something else.
    pub caller: String,
    /// The key that the client chose.
    pub key: String,
    /// A summary of the request. A request with the same key and another fingerprint is [`Error::KeyReused`].
    pub fingerprint: String,
}

/// The job that a recent request with this key created; `None` if there was none.
pub(crate) async fn recall(
    connection: &mut Session,
    once: &OnceKey,
    now_ms: u64,
) -> Result<Option<Job>, Error> {
    let found = sql::ONCE.bind(once.caller.as_str()).bind(once.key.as_str());
    let Some(row) = connection.row(found).await? else {
        return Ok(None);
    };
    let columns = Columns::new(&row, Entity::Job, "job")?;
    if columns.count::<u64>("created_ms")?.saturating_add(KEPT_MS) < now_ms {
        return Ok(None);
    }
    if columns.text("fingerprint")? != once.fingerprint {
        let key = once.key.clone();
        return Err(Error::KeyReused { key });
    }
    let id: JobId = columns.parse("job")?;
    let row = connection.row(sql::JOB.bind(id.as_str())).await?;
    row.as_ref().map(job::read).transpose()
}

/// Stores which job a request created, and removes old keys.
pub(crate) async fn remember(
    connection: &mut Session,
    once: &OnceKey,
    job: &JobId,
    now_ms: u64,
) -> Result<(), Error> {
    let before = int(now_ms.saturating_sub(KEPT_MS));
    connection.run(sql::FORGET_ONCE.bind(before)).await?;
    let kept = sql::PUT_ONCE
        .bind(once.caller.as_str())
        .bind(once.key.as_str())
        .bind(once.fingerprint.as_str())
        .bind(job.as_str())
        .bind(int(now_ms));
    connection.run(kept).await.map(drop)
}
