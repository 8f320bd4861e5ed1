//! Requests that are carried out once, however often they are sent.
//!
//! A client that has lost the answer to a request sends it again under the same key. The key is kept with the job
//! that the request came to, in the transaction that creates the job: so a restart, and any other process that
//! shares the registry, gives the same answer.

use sextant_types::JobId;

use crate::{
    Entity, Error, Job,
    database::Session,
    job,
    rows::{Columns, int},
    sql,
};

/// For so long keys are kept, ms.
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// The key of a request that is to be carried out once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceKey {
    /// Who sent it: others may use the same key for something else.
    pub caller: String,
    /// The key that the client made up.
    pub key: String,
    /// What was asked for, in short; a request under the same key that asks for something else is
    /// [`Error::KeyReused`].
    pub fingerprint: String,
}

/// The job that a request of this key came to; `None` where there was none lately.
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

/// Keeps which job a request came to, and forgets those of long ago.
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
