//! Opens the registry, and lends its connections.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use tokio::sync::watch;

#[cfg(feature = "postgres")]
use crate::database::postgres::{self, ConnectOptions, Wakes};
use crate::{
    Error,
    database::{self, Database, Exclusion, Session, sqlite},
};

/// The registry in a SQLite file or a PostgreSQL database. Cheap to clone.
///
/// Every commit is synced: the effect of a call that has returned survives the loss of the process and of the machine's
/// power.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) database: Database,
    jobs: Arc<watch::Sender<u64>>,
    reads: Arc<database::Reads>,
    #[cfg(feature = "postgres")]
    wakes: Option<Wakes>,
}

/// What a process has read from the registry since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Statements with an answer.
    pub queries: u64,
    /// Rows of the answers.
    pub rows: u64,
}

impl Registry {
    /// Opens or creates a SQLite file, and updates its schema. Only one process at a time may have it open.
    /// [`Error::NewerSchema`] if a later version of the service has written it.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, Error> {
        let pools = sqlite::Pools::open(file.as_ref()).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                database: Database::Sqlite(pools),
                jobs: Arc::new(watch::Sender::new(0)),
                reads: Arc::default(),
                #[cfg(feature = "postgres")]
                wakes: None,
            }),
        })
    }

    /// Connects to a PostgreSQL database with the settings of [`ConnectOptions::new`], and updates its schema. Any
    /// number of processes may share it.
    #[cfg(feature = "postgres")]
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(&ConnectOptions::new(url)).await
    }

    /// [`connect`](Self::connect) with settings. [`Error::Unavailable`] if the server does not answer within the
    /// patience. A later call also ends with this error, within its limits, while the server is away. The same call
    /// succeeds once the server is back.
    #[cfg(feature = "postgres")]
    pub async fn connect_with(options: &ConnectOptions) -> Result<Self, Error> {
        let pool = postgres::Pool::connect(options).await?;
        let jobs = Arc::new(watch::Sender::new(0));
        let wakes = pool.wakes(Arc::clone(&jobs));
        Ok(Self {
            inner: Arc::new(Inner {
                database: Database::Postgres(pool),
                jobs,
                reads: Arc::default(),
                wakes: Some(wakes),
            }),
        })
    }

    /// Asks a PostgreSQL server for the time of its clock, ms since the Unix epoch, to check whether it can be reached.
    /// Does not change the database.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it does not answer, or another error if it refuses access.
    #[cfg(feature = "postgres")]
    pub async fn reach(options: &ConnectOptions) -> Result<u64, Error> {
        postgres::Pool::reach(options).await
    }

    /// Closes all connections; later calls fail.
    pub async fn close(&self) {
        #[cfg(feature = "postgres")]
        if let Some(wakes) = &self.inner.wakes {
            wakes.stop();
        }
        self.inner.database.close().await;
    }

    /// Changes whenever a job was created, given back or cancelled, or a model became ready. A change through this
    /// process is seen at once; a change through another process that shares the database, as soon as the server has
    /// announced it. Take the receiver before looking for work, so that no wake-up is lost in between. A wake-up may be
    /// lost while the connection to the server is broken, so look from time to time as well.
    pub fn jobs_changed(&self) -> watch::Receiver<u64> {
        self.inner.jobs.subscribe()
    }

    /// Commits a change that may have created work for runners, and wakes them.
    pub(crate) async fn commit_work(&self, transaction: Session) -> Result<(), Error> {
        transaction.commit_work().await?;
        self.inner.jobs.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The reads through this handle and its clones.
    pub fn reads(&self) -> Reads {
        let reads = &self.inner.reads;
        Reads {
            queries: reads.queries.load(Ordering::Relaxed),
            rows: reads.rows.load(Ordering::Relaxed),
        }
    }

    /// A connection for reading.
    pub(crate) async fn read(&self) -> Result<Session, Error> {
        let connection = self.inner.database.read().await?;
        Ok(Session::new(connection, &self.inner.reads))
    }

    /// A transaction that may create and remove rows. One such transaction runs at a time.
    pub(crate) async fn begin(&self) -> Result<Session, Error> {
        self.begin_with(Exclusion::Catalogue).await
    }

    /// A transaction that locks only the rows that its statements name.
    pub(crate) async fn begin_rows(&self) -> Result<Session, Error> {
        self.begin_with(Exclusion::Rows).await
    }

    async fn begin_with(&self, exclusion: Exclusion) -> Result<Session, Error> {
        let connection = self.inner.database.begin(exclusion).await?;
        Ok(Session::new(connection, &self.inner.reads))
    }
}
