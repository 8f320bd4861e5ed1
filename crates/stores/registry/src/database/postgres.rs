//! PostgreSQL: one database for the processes of a fleet.
//!
//! The server may be restarted, stopped or cut off at any time, so every wait has an end: a connection is tested before
//! it is lent, a statement is limited here and on the server, and a connection that does not answer is closed.
//! Transactions that create or remove rows hold one advisory lock, so that each sees what the others did, as in SQLite.
//! Runners of jobs lock only the rows of their jobs and do not wait for each other, except to finish a job or to store
//! something that may name a blob.

use std::{fmt, sync::Arc, time::Duration};

use sqlx::{
    Connection, Decode, Encode, PgConnection, PgPool, Postgres, Row as _, Transaction, Type,
    encode::IsNull,
    error::BoxDynError,
    pool::PoolConnection,
    postgres::{
        PgArgumentBuffer, PgArguments, PgConnectOptions, PgPoolOptions, PgTypeInfo, PgValueRef,
        types::Oid,
    },
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{Exclusion, Json, Query, Row, Value, migrations};
use crate::{Error, error::schema};

mod wakes;

pub(crate) use wakes::Wakes;

/// The channel on which processes tell each other about jobs.
const CHANNEL: &str = "sextant_jobs";

/// Begins a transaction of [`Exclusion::Catalogue`]. The number is this service's, the same in every version.
const BEGIN_CATALOGUE: &str = "begin; select pg_advisory_xact_lock(6001430271839269889)";

/// Longest time for the test of a connection.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// Longest time of the migrations: they wait for each other and may change large tables.
const MIGRATION_LIMIT: Duration = Duration::from_secs(600);

/// The type `json`; types of the system have fixed numbers.
const JSON: Oid = Oid(114);

const LEAST_PAUSE: Duration = Duration::from_millis(50);
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// How to reach a PostgreSQL server.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `postgres://[user[:password]@]host[:port]/database[?parameters]`.
    pub url: String,
    /// Largest number of connections of this process, in addition to the one that listens for jobs.
    pub connections: u32,
    /// Time for which [`Registry::connect`](crate::Registry::connect) retries while the server is away.
    pub patience: Duration,
    /// Longest wait for a connection. If the server is away, a call ends at the latest after this and one
    /// [`statement_limit`](Self::statement_limit).
    pub acquire_limit: Duration,
    /// Longest time of one statement.
    pub statement_limit: Duration,
}

impl ConnectOptions {
    /// Eight connections, ten seconds of retries at the start, and three seconds for each wait.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connections: 8,
            patience: Duration::from_secs(10),
            acquire_limit: Duration::from_secs(3),
            statement_limit: Duration::from_secs(3),
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("ConnectOptions")
            .field("connections", &self.connections)
            .field("patience", &self.patience)
            .field("acquire_limit", &self.acquire_limit)
            .field("statement_limit", &self.statement_limit)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Pool {
    pub(crate) pool: PgPool,
    server: Box<PgConnectOptions>,
    acquire_limit: Duration,
    statement_limit: Duration,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Connects and updates the schema.
    pub(crate) async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let server = server(options)?;
        migrate(&server, options.patience).await?;
        let limit = options.statement_limit;
        let limit_ms = limit.as_millis().max(1).to_string();
        let bounded = server.clone().options([
            ("statement_timeout", limit_ms.as_str()),
            ("idle_in_transaction_session_timeout", "30000"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.connections)
            .acquire_timeout(options.acquire_limit)
            .test_before_acquire(false)
            .before_acquire(|connection, _| Box::pin(is_alive(connection)))
            .after_release(|connection, _| Box::pin(is_free(connection)))
            .connect_lazy_with(bounded);
        Ok(Self {
            pool,
            server: Box::new(server),
            acquire_limit: options.acquire_limit,
            // The server gives up first, and reports it.
            statement_limit: limit + limit / 4,
        })
    }

    /// Asks the server for the time of its clock, ms since the Unix epoch. Changes nothing.
    pub(crate) async fn reach(options: &ConnectOptions) -> Result<u64, Error> {
        let server = server(options)?;
        let asked = async {
            let mut connection = PgConnection::connect_with(&server).await?;
            let clock = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
            let told: i64 = sqlx::query_scalar(clock).fetch_one(&mut connection).await?;
            connection.close().await?;
            Ok(told)
        };
        let told = bounded(options.statement_limit, asked).await?;
        Ok(u64::try_from(told).unwrap_or_default())
    }

    /// Counts in `jobs` the messages of other processes about jobs, until the returned value is dropped.
    pub(crate) fn wakes(&self, jobs: Arc<watch::Sender<u64>>) -> Wakes {
        Wakes::listen(&self.server, jobs)
    }

    pub(super) async fn read(&self) -> Result<Session, Error> {
        let connection = self.pool.acquire().await.map_err(Error::of_server)?;
        Ok(self.session(Loan::Reader(connection)))
    }

    pub(super) async fn begin(&self, exclusion: Exclusion) -> Result<Session, Error> {
        let statement = match exclusion {
            Exclusion::Catalogue => BEGIN_CATALOGUE,
            Exclusion::Rows => "begin",
        };
        let limit = self.acquire_limit + self.statement_limit;
        let begun = bounded(limit, self.pool.begin_with(statement)).await?;
        Ok(self.session(Loan::Writer(begun)))
    }

    fn session(&self, loan: Loan) -> Session {
        Session {
            loan,
            limit: self.statement_limit,
        }
    }

    pub(super) async fn close(&self) {
        // A close that hangs is abandoned.
        drop(timeout(self.statement_limit, self.pool.close()).await);
    }
}

pub(crate) struct Session {
    loan: Loan,
    limit: Duration,
}

enum Loan {
    Reader(PoolConnection<Postgres>),
    Writer(Transaction<'static, Postgres>),
}

impl Session {
    pub(super) async fn rows(&mut self, query: Query) -> Result<Vec<Row>, Error> {
        let rows = bounded(self.limit, bound(query).fetch_all(self.connection())).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    pub(super) async fn run(&mut self, query: Query) -> Result<u64, Error> {
        let done = bounded(self.limit, bound(query).execute(self.connection())).await?;
        Ok(done.rows_affected())
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        match self.loan {
            Loan::Reader(_) => Ok(()),
            Loan::Writer(transaction) => bounded(self.limit, transaction.commit()).await,
        }
    }

    /// Other processes are told if and when the transaction is committed.
    pub(super) async fn commit_work(mut self) -> Result<(), Error> {
        let told = sqlx::query("select pg_notify($1, '')").bind(CHANNEL);
        bounded(self.limit, told.execute(self.connection())).await?;
        self.commit().await
    }

    /// The database at this moment. The session sees no later writes. Does not change the schema.
    pub(crate) async fn snapshot(options: &ConnectOptions) -> Result<Self, Error> {
        let server = server(options)?;
        let pool = PgPoolOptions::new().max_connections(1);
        let opened = bounded(options.patience, pool.connect_with(server)).await?;
        let begin = "begin isolation level repeatable read read only";
        let begun = bounded(options.statement_limit, opened.begin_with(begin)).await?;
        Ok(Self {
            loan: Loan::Writer(begun),
            limit: MIGRATION_LIMIT,
        })
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        match &mut self.loan {
            Loan::Reader(connection) => connection,
            Loan::Writer(transaction) => transaction,
        }
    }
}

async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, Error> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(Error::of_server),
        Err(_) => Err(Error::away()),
    }
}

/// Whether a returned connection may be lent again. If it comes back from a dropped transaction, this runs after the
/// rollback. A call that was dropped while its transaction began leaves a transaction on the server that the driver
/// does not know: it keeps its locks, and after one failed statement every later one fails.
async fn is_free(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // Outside a transaction, a statement is its own transaction and starts with it.
    const OUTSIDE: &str = "select transaction_timestamp() = statement_timestamp()";
    let asked = sqlx::raw_sql(OUTSIDE).fetch_one(connection);
    match timeout(PING_LIMIT, asked).await {
        Ok(answer) => answer?.try_get(0),
        Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
    }
}

/// Tests a connection before it is lent.
async fn is_alive(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    match timeout(PING_LIMIT, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
    }
}

fn server(options: &ConnectOptions) -> Result<PgConnectOptions, Error> {
    let known = ["postgres://", "postgresql://"];
    if !known.iter().any(|scheme| options.url.starts_with(scheme)) {
        return Err(Error::Url {
            reason: "it does not begin with `postgres://`".to_owned(),
        });
    }
    let parsed: Result<PgConnectOptions, _> = options.url.parse();
    let server = parsed.map_err(|error| Error::Url {
        reason: error.to_string(),
    })?;
    Ok(match server.get_application_name() {
        Some(_) => server,
        None => server.application_name("sextant"),
    })
}

/// Updates the schema over a connection of its own, under a lock that the processes of a fleet take in turn. Closing
/// the connection releases the lock.
async fn migrate(server: &PgConnectOptions, patience: Duration) -> Result<(), Error> {
    let mut connection = first_connection(server, patience).await?;
    let run = timeout(
        MIGRATION_LIMIT,
        migrations::POSTGRES.run_direct(None, &mut connection, false),
    );
    let migrated = run.await.map_err(|_| Error::away())?;
    migrated.map_err(|error| schema(error, &migrations::POSTGRES, Error::of_server))?;
    // The lock is released. A clean close is not necessary.
    drop(connection);
    Ok(())
}

/// Retries while the server is away or starts.
async fn first_connection(
    server: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection, Error> {
    let end = Instant::now() + patience;
    let mut pause = LEAST_PAUSE;
    loop {
        let attempt = timeout_at(end, PgConnection::connect_with(server)).await;
        let error = match attempt {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => Error::of_server(error),
            Err(_) => Error::away(),
        };
        if !error.is_retryable() || Instant::now() + pause >= end {
            return Err(error);
        }
        if pause == LEAST_PAUSE {
            let (host, port) = (server.get_host(), server.get_port());
            tracing::warn!(host, port, ?patience, %error, "PostgreSQL does not answer: it is asked again");
        }
        sleep(pause).await;
        pause = (pause * 2).min(MOST_PAUSE);
    }
}

fn bound(query: Query) -> sqlx::query::Query<'static, Postgres, PgArguments> {
    let statement = sqlx::query(query.sql.postgres);
    query
        .values
        .into_iter()
        .fold(statement, |statement, value| match value {
            Value::Text(text) => statement.bind(text),
            Value::Json(document) => statement.bind(document),
            Value::Integer(value) => statement.bind(value),
            Value::Real(value) => statement.bind(value),
        })
}

// === impl Json ===

// The type `json` keeps the text as it was written. The driver's own support would parse it into values.

impl Type<Postgres> for Json {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(JSON)
    }

    fn compatible(other: &PgTypeInfo) -> bool {
        other.oid() == Some(JSON)
    }
}

impl Encode<'_, Postgres> for Json {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Json {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_str()?.to_owned()))
    }
}
