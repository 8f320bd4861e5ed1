//! API keys: who may call the service, for what, and how often.
//!
//! This module never sees a key's secret: callers pass its hash and look keys up by it. A front end
//! keeps a copy of all keys and polls [`Registry::keys_revision`]. It reads the keys again only if
//! that number has changed.

use sextant_types::ApplicationId;
use uuid::Uuid;

use crate::{
    Entity, Error, Registry,
    database::{Row, Session},
    rows::{Columns, int},
    sql,
};

/// The name of the revision of the keys.
const KEYS: &str = "keys";

/// A right of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyScope {
    /// Predictions and explanations, and reading.
    Query,
    /// Registering and removing applications, models and offline jobs.
    Register,
    /// Registering pipelines with steps in Python, in addition to [`Self::Register`].
    Python,
    /// Everything, including keys and the audit record.
    Admin,
}

impl KeyScope {
    /// Every scope, in order of declaration.
    pub const ALL: [Self; 4] = [Self::Query, Self::Register, Self::Python, Self::Admin];

    /// `query`, `register`, `python`, `admin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Register => "register",
            Self::Python => "python",
            Self::Admin => "admin",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A key's row.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiKey {
    /// Its public id; ids grow with the time of creation.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// The hash that its creator has given, as text.
    pub hash: String,
    /// Its rights, sorted.
    pub scopes: Vec<KeyScope>,
    /// The only application that it may use; `None`: all of them.
    pub application: Option<ApplicationId>,
    /// Long-term rate of requests, 1/s; `None`: the service's setting.
    pub rate_per_s: Option<f64>,
    /// Requests that it may make at once after a pause; `None`: the service's setting.
    pub burst: Option<u64>,
    /// Requests a day; `None`: the service's setting.
    pub quota_per_day: Option<u64>,
    /// When it was created, ms since the Unix epoch.
    pub created_ms: u64,
    /// When it expires, ms since the Unix epoch; `None`: never.
    pub expires_ms: Option<u64>,
    /// When it was revoked, ms since the Unix epoch.
    pub revoked_ms: Option<u64>,
}

/// A key to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewKey {
    /// Its public id. Creating a key of the same id and content twice creates one.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// The hash of its secret, as text; no two keys share one.
    pub hash: String,
    /// Its rights.
    pub scopes: Vec<KeyScope>,
    /// The only application that it may use; `None`: all of them. It need not exist yet.
    pub application: Option<ApplicationId>,
    /// Long-term rate of requests, 1/s.
    pub rate_per_s: Option<f64>,
    /// Requests that it may make at once after a pause.
    pub burst: Option<u64>,
    /// Requests a day.
    pub quota_per_day: Option<u64>,
    /// When it expires, ms since the Unix epoch; `None`: never.
    pub expires_ms: Option<u64>,
}

impl NewKey {
    /// A key with a new id, without limits and without an end.
    pub fn new(name: impl Into<String>, hash: impl Into<String>, scopes: &[KeyScope]) -> Self {
        Self {
            id: Uuid::now_v7().to_string(),
            name: name.into(),
            hash: hash.into(),
            scopes: scopes.to_vec(),
            application: None,
            rate_per_s: None,
            burst: None,
            quota_per_day: None,
            expires_ms: None,
        }
    }
}

impl Registry {
    /// Creates a key. A key of the same id and content is returned as it is. A key of other
    /// content, or of the same hash, is [`Error::Exists`].
    pub async fn create_key(&self, key: &NewKey, now_ms: u64) -> Result<ApiKey, Error> {
        let wanted = wanted(key, now_ms)?;
        let mut tx = self.begin().await?;
        if let Some(known) = find(&mut tx, &key.id).await? {
            let same = ApiKey {
                created_ms: known.created_ms,
                revoked_ms: known.revoked_ms,
                ..wanted
            };
            return if known == same {
                Ok(known)
            } else {
                Err(Error::exists(Entity::Key, &key.id))
            };
        }
        if by_hash(&mut tx, &key.hash).await?.is_some() {
            return Err(Error::exists(Entity::Key, &key.id));
        }
        insert(&mut tx, &wanted).await?;
        bump(&mut tx).await?;
        tx.commit().await?;
        Ok(wanted)
    }

    /// All keys, including revoked and expired ones, oldest first.
    pub async fn keys(&self) -> Result<Vec<ApiKey>, Error> {
        let rows = self.read().await?.rows((&sql::KEYS).into()).await?;
        rows.iter().map(key).collect()
    }

    /// One key.
    pub async fn key(&self, id: &str) -> Result<ApiKey, Error> {
        let mut reader = self.read().await?;
        find(&mut reader, id)
            .await?
            .ok_or_else(|| Error::not_found(Entity::Key, id))
    }

    /// Revokes a key, and returns it. A key that was revoked before keeps its time of revocation.
    pub async fn revoke_key(&self, id: &str, now_ms: u64) -> Result<ApiKey, Error> {
        let mut tx = self.begin().await?;
        let known = find(&mut tx, id).await?;
        let known = known.ok_or_else(|| Error::not_found(Entity::Key, id))?;
        if known.revoked_ms.is_some() {
            return Ok(known);
        }
        tx.run(sql::REVOKE_KEY.bind(id).bind(int(now_ms))).await?;
        bump(&mut tx).await?;
        tx.commit().await?;
        Ok(ApiKey {
            revoked_ms: Some(now_ms),
            ..known
        })
    }

    /// A number that grows with each change of the keys by any process. Reads one row.
    pub async fn keys_revision(&self) -> Result<u64, Error> {
        let row = self.read().await?.row(sql::REVISION.bind(KEYS)).await?;
        let read = |row| Columns::new(row, Entity::Key, "name")?.count("revision");
        row.as_ref().map_or(Ok(0), read)
    }
}

fn wanted(new: &NewKey, now_ms: u64) -> Result<ApiKey, Error> {
    if new
        .rate_per_s
        .is_some_and(|rate| !rate.is_finite() || rate < 0.0)
    {
        return Err(Error::Unstorable {
            entity: Entity::Key,
            id: new.id.clone(),
            reason: "`rate_per_s` must be a finite number and not negative".to_owned(),
        });
    }
    let mut scopes = new.scopes.clone();
    scopes.sort_unstable();
    scopes.dedup();
    Ok(ApiKey {
        id: new.id.clone(),
        name: new.name.clone(),
        hash: new.hash.clone(),
        scopes,
        application: new.application.clone(),
        rate_per_s: new.rate_per_s,
        burst: new.burst,
        quota_per_day: new.quota_per_day,
        created_ms: now_ms,
        expires_ms: new.expires_ms,
        revoked_ms: None,
    })
}

async fn find(connection: &mut Session, id: &str) -> Result<Option<ApiKey>, Error> {
    let row = connection.row(sql::KEY.bind(id)).await?;
    row.as_ref().map(key).transpose()
}

async fn by_hash(connection: &mut Session, hash: &str) -> Result<Option<ApiKey>, Error> {
    let row = connection.row(sql::KEY_BY_HASH.bind(hash)).await?;
    row.as_ref().map(key).transpose()
}

async fn insert(connection: &mut Session, key: &ApiKey) -> Result<(), Error> {
    let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.as_str()).collect();
    connection
        .run(
            sql::CREATE_KEY
                .bind(key.id.as_str())
                .bind(key.name.as_str())
                .bind(key.hash.as_str())
                .bind(scopes.join(" "))
                .bind(key.application.as_ref().map(|id| id.as_str()))
                .bind(key.rate_per_s)
                .bind(key.burst.map(int))
                .bind(key.quota_per_day.map(int))
                .bind(int(key.created_ms))
                .bind(key.expires_ms.map(int)),
        )
        .await?;
    Ok(())
}

async fn bump(connection: &mut Session) -> Result<(), Error> {
    connection.run(sql::RAISE_REVISION.bind(KEYS)).await?;
    Ok(())
}

fn key(row: &Row) -> Result<ApiKey, Error> {
    let columns = Columns::new(row, Entity::Key, "id")?;
    let scopes = columns.one_of("scopes", |text| {
        text.split_whitespace().map(KeyScope::parse).collect()
    })?;
    Ok(ApiKey {
        id: columns.text("id")?,
        name: columns.text("name")?,
        hash: columns.text("hash")?,
        scopes,
        application: columns.parse_optional("application")?,
        rate_per_s: columns.optional_real("rate_per_s")?,
        burst: columns.optional_count("burst")?,
        quota_per_day: columns.optional_count("quota_per_day")?,
        created_ms: columns.count("created_ms")?,
        expires_ms: columns.optional_count("expires_ms")?,
        revoked_ms: columns.optional_count("revoked_ms")?,
    })
}
