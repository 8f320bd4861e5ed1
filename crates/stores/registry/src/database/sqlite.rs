//! SQLite: a file that one process uses.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    Connection, Sqlite, SqliteConnection, SqlitePool, Transaction,
    pool::PoolConnection,
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions,
        SqliteSynchronous,
    },
};

use super::{Exclusion, Query, Row, Value, migrations};
use crate::{Error, error::schema};

/// Longest time for which a connection waits for a lock, or a caller for a connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of readers; each is a thread and a page cache.
const READERS: u32 = 4;

/// One connection writes, so writers queue in this process and never conflict in the file. Others read at the same time
/// (write-ahead log). Every commit is synced: the effect of a call that has returned survives the loss of the process
/// and of the machine's power.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) writer: SqlitePool,
    pub(crate) readers: SqlitePool,
}

/// Permissions of a new file: it holds addresses of webhooks, whose paths may be secrets.
const OWN: u32 = 0o600;

/// Permissions of users who are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

/// Creates the file for its owner alone, and removes permissions that an earlier version gave to others. SQLite gives
/// the files beside it the same permissions.
fn keep_from_others(file: &Path) -> io::Result<()> {
    let mut create = OpenOptions::new();
    create.append(true).create(true).mode(OWN).open(file)?;
    for end in ["", "-wal", "-shm"] {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        let path = PathBuf::from(name);
        let Ok(found) = fs::metadata(&path) else {
            continue;
        };
        let mode = found.permissions().mode();
        if mode & OTHERS != 0 {
            fs::set_permissions(&path, Permissions::from_mode(mode & !OTHERS))?;
        }
    }
    Ok(())
}

impl Pools {
    /// Opens or creates the file, and updates its schema.
    pub(crate) async fn open(file: &Path) -> Result<Self, Error> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|source| Error::Folder {
                folder: folder.display().to_string(),
                source,
            })?;
        }
        // If that fails, the database reports the error itself a few lines below.
        keep_from_others(file).ok();
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = |connections| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(BUSY_TIMEOUT)
                .idle_timeout(None)
                .max_lifetime(None)
                .after_release(|connection, _| Box::pin(is_usable(connection)))
        };
        let writer = pool(1).connect_with(options.clone()).await?;
        let migrated = migrations::SQLITE.run(&writer).await;
        migrated.map_err(|error| schema(error, &migrations::SQLITE, Error::from))?;
        Ok(Self {
            writer,
            readers: pool(READERS).connect_lazy_with(options),
        })
    }

    pub(super) async fn read(&self) -> Result<Session, Error> {
        Ok(Session::Reader(self.readers.acquire().await?))
    }

    /// A transaction that takes the write lock at once. So it never fails half way for want of the lock, and it
    /// excludes every other transaction.
    pub(super) async fn begin(&self, _: Exclusion) -> Result<Session, Error> {
        let begun = self.writer.begin_with("begin immediate").await?;
        Ok(Session::Writer(begun))
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

pub(crate) enum Session {
    Reader(PoolConnection<Sqlite>),
    Writer(Transaction<'static, Sqlite>),
}

impl Session {
    pub(super) async fn rows(&mut self, query: Query) -> Result<Vec<Row>, Error> {
        let rows = bound(query).fetch_all(self.connection()).await?;
        Ok(rows.into_iter().map(Row::Sqlite).collect())
    }

    pub(super) async fn run(&mut self, query: Query) -> Result<u64, Error> {
        let done = bound(query).execute(self.connection()).await?;
        Ok(done.rows_affected())
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        match self {
            Self::Reader(_) => Ok(()),
            Self::Writer(transaction) => Ok(transaction.commit().await?),
        }
    }

    /// The file at this moment. The session sees no later writes. Does not create the file or change its schema.
    pub(crate) async fn snapshot(file: &Path) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect_with(options).await?;
        // A transaction sees one state from its first read on.
        let mut begun = pool.begin_with("begin").await?;
        sqlx::query("select count(*) from sqlite_master")
            .execute(&mut *begun)
            .await?;
        Ok(Self::Writer(begun))
    }

    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        match self {
            Self::Reader(connection) => connection,
            Self::Writer(transaction) => transaction,
        }
    }
}

fn bound(query: Query) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    let statement = sqlx::query(query.sql.sqlite);
    query
        .values
        .into_iter()
        .fold(statement, |statement, value| match value {
            Value::Text(text) => statement.bind(text),
            Value::Json(document) => statement.bind(document.map(|document| document.0)),
            Value::Integer(value) => statement.bind(value),
            Value::Real(value) => statement.bind(value),
        })
}

/// Whether a returned connection may be used again. If the disk is full, and after other grave errors, SQLite rolls a
/// transaction back by itself. Then the driver's own rollback fails, and the driver would take the connection for one
/// inside a transaction for ever.
async fn is_usable(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    // This waits for a rollback that is running.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}
