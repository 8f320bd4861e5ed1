//! A common interface to the two databases: statements with values in, rows out.
//!
//! A [`Session`] is a borrowed connection: one that reads, or a transaction. What differs between
//! the databases (how a transaction begins, how long a call may take, how a value is bound) stays
//! in the two modules below.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{Error, sql::Sql};

pub(crate) mod migrations;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod sqlite;

#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(sqlite::Pools),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Pool),
}

/// What a transaction excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// For transactions that create or remove rows, or that depend on the absence of rows: one such
    /// transaction runs at a time.
    Catalogue,
    /// Only the rows that its statements lock. SQLite has one writer in any case.
    Rows,
}

impl Database {
    pub(crate) async fn read(&self) -> Result<Connection, Error> {
        match self {
            Self::Sqlite(pools) => pools.read().await.map(Connection::Sqlite),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.read().await.map(Connection::Postgres),
        }
    }

    pub(crate) async fn begin(&self, exclusion: Exclusion) -> Result<Connection, Error> {
        match self {
            Self::Sqlite(pools) => pools.begin(exclusion).await.map(Connection::Sqlite),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.begin(exclusion).await.map(Connection::Postgres),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pools) => pools.close().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A borrowed connection. A transaction that is dropped is rolled back.
pub(crate) struct Session {
    connection: Connection,
    reads: Arc<Reads>,
}

pub(crate) enum Connection {
    Sqlite(sqlite::Session),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Session),
}

/// The numbers of reads through all connections.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) queries: AtomicU64,
    pub(crate) rows: AtomicU64,
}

impl Session {
    pub(crate) fn new(connection: Connection, reads: &Arc<Reads>) -> Self {
        Self {
            connection,
            reads: Arc::clone(reads),
        }
    }

    /// A session that belongs to no pool: its reads are not counted.
    pub(crate) fn alone(connection: Connection) -> Self {
        Self::new(connection, &Arc::default())
    }

    /// The connection to its database.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub(crate) async fn rows(&mut self, query: Query) -> Result<Vec<Row>, Error> {
        let rows = match &mut self.connection {
            Connection::Sqlite(session) => session.rows(query).await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.rows(query).await,
        }?;
        self.reads.queries.fetch_add(1, Ordering::Relaxed);
        let read = rows.len() as u64;
        self.reads.rows.fetch_add(read, Ordering::Relaxed);
        Ok(rows)
    }

    /// The first row of the answer.
    pub(crate) async fn row(&mut self, query: Query) -> Result<Option<Row>, Error> {
        Ok(self.rows(query).await?.into_iter().next())
    }

    /// The row of an answer that has exactly one.
    pub(crate) async fn one(&mut self, query: Query) -> Result<Row, Error> {
        let row = self.row(query).await?;
        row.ok_or(Error::Database(sqlx::Error::RowNotFound))
    }

    /// Whether the answer has a row.
    pub(crate) async fn any(&mut self, query: Query) -> Result<bool, Error> {
        Ok(self.row(query).await?.is_some())
    }

    /// Runs a statement without an answer and returns the number of rows that it changed.
    pub(crate) async fn run(&mut self, query: Query) -> Result<u64, Error> {
        match &mut self.connection {
            Connection::Sqlite(session) => session.run(query).await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.run(query).await,
        }
    }

    /// Makes the transaction's changes durable.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        match self.connection {
            Connection::Sqlite(session) => session.commit().await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.commit().await,
        }
    }

    /// [`commit`](Self::commit) that also tells other processes that there may be work.
    pub(crate) async fn commit_work(self) -> Result<(), Error> {
        match self.connection {
            // No other process uses the file.
            Connection::Sqlite(session) => session.commit().await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => session.commit_work().await,
        }
    }
}

pub(crate) enum Row {
    Sqlite(sqlx::sqlite::SqliteRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
}

/// A statement with its values.
pub(crate) struct Query {
    sql: &'static Sql,
    values: Vec<Value>,
}

impl Sql {
    /// Starts with the value of `$1`.
    pub(crate) fn bind(&'static self, value: impl Into<Value>) -> Query {
        Query::from(self).bind(value)
    }
}

impl From<&'static Sql> for Query {
    fn from(sql: &'static Sql) -> Self {
        Self {
            sql,
            values: Vec::new(),
        }
    }
}

impl Query {
    /// Adds the value of the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }
}

/// A document that is known to be valid JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Json(pub(crate) String);

/// A value of a column; a null has a type.
pub(crate) enum Value {
    Text(Option<String>),
    Json(Option<Json>),
    Integer(Option<i64>),
    Real(Option<f64>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<Json> for Value {
    fn from(document: Json) -> Self {
        Self::Json(Some(document))
    }
}

impl From<Option<Json>> for Value {
    fn from(document: Option<Json>) -> Self {
        Self::Json(document)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        Self::Real(value)
    }
}
