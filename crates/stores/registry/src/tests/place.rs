//! The place of a registry: a file of its own, or a database of its own on a shared server.

#[cfg(feature = "postgres")]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "postgres")]
use sextant_test_servers::postgres::Postgres;
#[cfg(feature = "postgres")]
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tempfile::TempDir;

use crate::{
    Registry,
    database::{Database, sqlite::Pools},
};

pub(super) const FILE: &str = "data/registry.sqlite";

/// Empty at first. A file is removed with the value, content on the server with the server.
pub(super) enum Place {
    File(TempDir),
    #[cfg(feature = "postgres")]
    Server {
        url: String,
    },
}

impl Place {
    pub(super) fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// A schema of its own in one database: this is faster than a database.
    #[cfg(feature = "postgres")]
    pub(super) async fn server() -> Self {
        let server = Postgres::shared();
        let name = new_name();
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        let statement = AssertSqlSafe(format!("create schema {name}"));
        connection.execute(statement).await.unwrap();
        Self::Server {
            url: format!("{}?options[search_path]={name}", server.url()),
        }
    }

    /// A database that is created with these options.
    #[cfg(feature = "postgres")]
    pub(super) fn database(options: &[&str]) -> Self {
        let server = Postgres::shared();
        Self::Server {
            url: server.database_with(&new_name(), options),
        }
    }

    /// Another handle, with connections of its own.
    pub(super) async fn open(&self) -> Registry {
        open(&self.address()).await
    }

    /// The file's path or the server's URL.
    pub(super) fn address(&self) -> String {
        match self {
            Self::File(folder) => folder.path().join(FILE).display().to_string(),
            #[cfg(feature = "postgres")]
            Self::Server { url } => url.clone(),
        }
    }
}

#[cfg(feature = "postgres")]
fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("registry{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(super) async fn open(address: &str) -> Registry {
    #[cfg(feature = "postgres")]
    if address.starts_with("postgres://") {
        return Registry::connect(address).await.unwrap();
    }
    Registry::open(address).await.unwrap()
}

/// The connections of a registry in a file.
pub(super) fn pools(registry: &Registry) -> &Pools {
    match &registry.inner.database {
        Database::Sqlite(pools) => pools,
        #[cfg(feature = "postgres")]
        Database::Postgres(_) => panic!("it is on a server"),
    }
}

/// Makes two tests of each `async fn(Place)`: over a file and over a server.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            use crate::tests::place::Place;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                super::$name(Place::file()).await;
            })+
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            use crate::tests::place::Place;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                super::$name(Place::server().await).await;
            })+
        }
    };
}
pub(super) use on_both;
