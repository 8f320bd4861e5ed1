//! The schema's version against the service's.

use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{
    place::{open, pools},
    *,
};
use crate::database::migrations;

#[tokio::test]
async fn an_older_file_is_brought_up_to_date_with_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.sqlite");
    let options = SqliteConnectOptions::new()
        .filename(&file)
        .create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let migrations = &migrations::SQLITE;
    migrations.run_to(1, &mut connection).await.unwrap();
    for row in [OLD_ROW, OLD_JOB] {
        sqlx::query(row).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    let registry = open(&file.display().to_string()).await;
    what_was_there_is_there(&registry).await;
}

#[tokio::test]
async fn a_newer_file_is_refused() {
    let place = Place::file();
    let registry = place.open().await;
    sqlx::query(NEWER)
        .execute(&pools(&registry).writer)
        .await
        .unwrap();
    registry.close().await;
    refused_as_newer(Registry::open(place.address()).await);
}

/// A row of the first version.
const OLD_ROW: &str = "insert into applications (id, metric, description, default_targets) \
                       values ('digits', 'exact', 'old', '{}')";

const OLD_JOB: &str = "insert into jobs (id, kind, application, spec, state, step, progress_done, \
                       progress_total, attempts, lease_until_ms, created_ms, updated_ms) values \
                       ('old', 'offline', 'digits', '{}', 'queued', '', 0, 0, 0, 0, 1, 1)";

async fn what_was_there_is_there(registry: &Registry) {
    assert_eq!(registry.applications().await.unwrap().len(), 1);
    assert_eq!(registry.keys().await.unwrap(), []);
    let claimed = registry.claim(JobKind::Offline, "me", 10, 2).await.unwrap();
    let claimed = claimed.expect("a job of the first version");
    assert_eq!((claimed.id.as_str(), claimed.engine), ("old", None));
}

/// As a later version leaves its mark; the columns that both databases have.
const NEWER: &str = "update _sqlx_migrations set version = 9001 where version = \
                     (select max(version) from _sqlx_migrations)";

fn refused_as_newer(opened: Result<Registry, Error>) {
    let error = opened.expect_err("it was to be refused");
    let text = error.to_string();
    assert!(matches!(error, Error::NewerSchema { found: 9001, .. }));
    assert!(
        text.contains("`9001`") && text.contains("later version"),
        "{text}"
    );
    assert!(!error.is_retryable());
}

#[cfg(feature = "postgres")]
mod postgres {
    use sqlx::{AssertSqlSafe, Executor, PgConnection};

    use super::*;

    #[tokio::test]
    async fn an_older_database_is_brought_up_to_date_with_what_is_in_it() {
        let place = Place::server().await;
        let mut connection = PgConnection::connect(&place.address()).await.unwrap();
        migrations::POSTGRES
            .run_to(1, &mut connection)
            .await
            .unwrap();
        for row in [OLD_ROW, OLD_JOB] {
            connection.execute(row).await.unwrap();
        }
        what_was_there_is_there(&place.open().await).await;
    }

    #[tokio::test]
    async fn a_newer_database_is_refused() {
        let place = Place::server().await;
        place.open().await.close().await;
        let mut connection = PgConnection::connect(&place.address()).await.unwrap();
        connection.execute(NEWER).await.unwrap();
        refused_as_newer(Registry::connect(&place.address()).await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn processes_that_begin_at_once_make_one_schema() {
        let place = Place::server().await;
        let openers: Vec<_> = (0..6)
            .map(|_| {
                let url = place.address();
                tokio::spawn(async move { Registry::connect(&url).await })
            })
            .collect();
        for opener in openers {
            let registry = opener.await.unwrap().unwrap();
            assert_eq!(registry.applications().await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn what_a_later_version_adds_disturbs_no_running_process() {
        let place = Place::server().await;
        let registry = place.open().await;
        registry.create_application(&application()).await.unwrap();
        let id = queued(&registry, 1).await;
        let mut connection = PgConnection::connect(&place.address()).await.unwrap();
        for table in ["applications", "models", "variants", "jobs", "api_keys"] {
            let added = format!("alter table {table} add column later text");
            connection.execute(AssertSqlSafe(added)).await.unwrap();
        }
        assert_eq!(registry.applications().await.unwrap(), [application()]);
        let claimed = registry.claim(JobKind::Offline, "me", 10, 2).await.unwrap();
        assert_eq!(claimed.unwrap().id, id);
        assert_eq!(queued(&registry, 3).await.to_string().len(), 36);
    }
}
