//! Opening the registry, and its connections.

use std::{path::Path, sync::Arc, time::Duration};

use sqlx::{
    Connection, Sqlite, SqliteConnection, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::watch;

use crate::Error;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/sqlite");

/// How long a connection waits for a lock or a caller for a connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Readers at once; each is a thread and a page cache.
const READERS: u32 = 4;

/// The registry in a SQLite file. Cheap to clone.
///
/// One connection writes, so writers queue in this process and never collide in the file; others
/// read beside it (write-ahead log). Every commit is synced: what a call returned survives the
/// loss of the process and of the machine's power.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) writer: SqlitePool,
    pub(crate) readers: SqlitePool,
    jobs: watch::Sender<u64>,
}

impl Registry {
    /// Opens or creates the file, and brings its schema up to date.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, Error> {
        let file = file.as_ref();
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(|source| Error::Folder {
                folder: folder.display().to_string(),
                source,
            })?;
        }
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
        MIGRATIONS.run(&writer).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer,
                readers: pool(READERS).connect_lazy_with(options),
                jobs: watch::Sender::new(0),
            }),
        })
    }

    /// Closes all connections; later calls fail.
    pub async fn close(&self) {
        self.inner.readers.close().await;
        self.inner.writer.close().await;
    }

    /// Changes whenever a job was created, given back or cancelled through this process. Take the
    /// receiver before looking for work: then no wake-up is lost in between.
    pub fn jobs_changed(&self) -> watch::Receiver<u64> {
        self.inner.jobs.subscribe()
    }

    pub(crate) fn wake_runners(&self) {
        self.inner.jobs.send_modify(|count| *count += 1);
    }

    /// A transaction that takes the write lock at once: it never fails half way for the lock.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        Ok(self.inner.writer.begin_with("begin immediate").await?)
    }
}

/// Whether a connection that comes back may be used again. When the disk is full, and on other
/// grave errors, SQLite rolls a transaction back by itself; the driver's own rollback then fails,
/// and it would take the connection for one inside a transaction for ever.
async fn is_usable(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    // Behind a rollback that is on its way.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}
