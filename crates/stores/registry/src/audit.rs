//! The audit record: rows are added and read, never changed.

use serde_json::Value;
use uuid::Uuid;

use crate::{
    Entity, Error, Registry,
    database::{Row, Session},
    rows::{Columns, document, int},
    sql,
};

const DEFAULT_PAGE: u32 = 100;

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// Its id; ids grow with the time of recording.
    pub id: String,
    /// When it was done, ms since the Unix epoch.
    pub at_ms: u64,
    /// The actor: a key's id, or a name of the service's own.
    pub actor: String,
    /// The action, e.g. `key.create`.
    pub action: String,
    /// The subject, e.g. the key's id.
    pub subject: String,
    /// Further details.
    pub detail: Value,
}

impl Audit {
    /// An entry with a new id.
    pub fn new(at_ms: u64, actor: &str, action: &str, subject: &str, detail: Value) -> Self {
        Self {
            id: Uuid::now_v7().to_string(),
            at_ms,
            actor: actor.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            detail,
        }
    }
}

/// Which entries to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Only by this actor.
    pub actor: Option<String>,
    /// Only of this action.
    pub action: Option<String>,
    /// Only about this subject.
    pub subject: Option<String>,
    /// Only from this time on, ms since the Unix epoch.
    pub since_ms: Option<u64>,
    /// Only entries made before this one: the end of the previous page.
    pub before: Option<String>,
    /// Largest number of entries in the answer; `None` for a hundred.
    pub limit: Option<u32>,
}

impl Registry {
    /// Adds an entry. Adding the same entry again changes nothing.
    pub async fn record(&self, entry: &Audit) -> Result<(), Error> {
        let mut tx = self.begin_rows().await?;
        record(&mut tx, entry).await?;
        tx.commit().await
    }

    /// Entries, newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<Audit>, Error> {
        let rows = self
            .read()
            .await?
            .rows(
                sql::AUDIT
                    .bind(filter.actor.as_deref())
                    .bind(filter.action.as_deref())
                    .bind(filter.subject.as_deref())
                    .bind(filter.since_ms.map(int))
                    .bind(filter.before.as_deref())
                    .bind(i64::from(filter.limit.unwrap_or(DEFAULT_PAGE))),
            )
            .await?;
        rows.iter().map(entry).collect()
    }
}

/// Adds an entry as a part of a transaction.
pub(crate) async fn record(tx: &mut Session, entry: &Audit) -> Result<(), Error> {
    let record = sql::RECORD
        .bind(entry.id.as_str())
        .bind(int(entry.at_ms))
        .bind(entry.actor.as_str())
        .bind(entry.action.as_str())
        .bind(entry.subject.as_str())
        .bind(document(Entity::Audit, &entry.id, &entry.detail)?);
    tx.run(record).await.map(drop)
}

fn entry(row: &Row) -> Result<Audit, Error> {
    let columns = Columns::new(row, Entity::Audit, "id")?;
    Ok(Audit {
        id: columns.text("id")?,
        at_ms: columns.count("at_ms")?,
        actor: columns.text("actor")?,
        action: columns.text("action")?,
        subject: columns.text("subject")?,
        detail: columns.json("detail")?,
    })
}
