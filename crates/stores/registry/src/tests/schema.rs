//! The schema's version against the service's.

use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{
    place::{open, pools},
    *,
};
use crate::{Act, VersionChange, database::migrations};
use sextant_types::Stage;

#[tokio::test]
async fn an_older_file_is_brought_up_to_date_with_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = brought_up(&folder, 1, &[OLD_ROW, OLD_JOB]).await;
    what_was_there_is_there(&registry).await;
}

#[tokio::test]
async fn a_file_from_before_versions_has_version_1_of_each_model() {
    let folder = tempfile::tempdir().unwrap();
    let registry = brought_up(&folder, 15, &BEFORE_VERSIONS).await;
    models_are_version_1(&registry).await;
}

/// A registry that is opened over a file with the schema of that version and with these rows.
async fn brought_up(folder: &tempfile::TempDir, version: i64, rows: &[&'static str]) -> Registry {
    let file = folder.path().join("registry.sqlite");
    let options = SqliteConnectOptions::new()
        .filename(&file)
        .create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let migrations = &migrations::SQLITE;
    migrations.run_to(version, &mut connection).await.unwrap();
    for row in rows {
        sqlx::query(*row).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    open(&file.display().to_string()).await
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

/// Rows of the schema before versions: two applications, and a ready model of each.
const BEFORE_VERSIONS: [&str; 4] = [
    OLD_ROW,
    "insert into applications (id, metric, description, default_targets) \
     values ('letters', 'exact', 'old', '{}')",
    "insert into models (id, application, digest, validation, size_bytes, status, created_ms) values \
     ('m', 'digits', '0101010101010101010101010101010101010101010101010101010101010101', \
     '0202020202020202020202020202020202020202020202020202020202020202', 4096, 'ready', 1)",
    "insert into models (id, application, digest, validation, size_bytes, status, created_ms) values \
     ('other', 'letters', '0303030303030303030303030303030303030303030303030303030303030303', \
     '0202020202020202020202020202020202020202020202020202020202020202', 4096, 'ready', 1)",
];

async fn models_are_version_1(registry: &Registry) {
    for (reference, id) in [
        ("m", "m"),
        ("m@1", "m"),
        ("digits:m", "m"),
        ("other", "other"),
        ("letters:other@1", "other"),
    ] {
        let found = registry.resolve(&reference.parse().unwrap()).await.unwrap();
        assert_eq!(found.as_str(), id, "{reference}");
        let line = registry.versions(&reference.parse().unwrap()).await;
        let [model] = &line.unwrap()[..] else {
            panic!("one version of `{reference}`");
        };
        let release = &model.release;
        assert_eq!((release.version, release.stage), (1, Stage::Current));
    }
    // The next model is the next version, and becomes current.
    let new = NewModel {
        digest: Digest::from_bytes([7; 32]),
        ..new_model("m")
    };
    let second = create_model(registry, &new, 2).await.unwrap().model;
    finish_registrations(registry).await;
    assert_eq!((second.id.as_str(), second.release.version), ("m.v2", 2));
    let change = VersionChange {
        model: second.id,
        act: Act::To(Stage::Current),
        rules: None,
        seen: Some(1),
        since_ms: None,
    };
    let line = registry.change_version(&change, 9).await.unwrap();
    let stages: Vec<&str> = line.iter().map(|it| it.release.stage.as_str()).collect();
    assert_eq!(stages, ["retired", "current"]);
}

/// The mark that a later version leaves, in the columns that both databases have.
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
    async fn a_database_from_before_versions_has_version_1_of_each_model() {
        let place = Place::server().await;
        let mut connection = PgConnection::connect(&place.address()).await.unwrap();
        migrations::POSTGRES
            .run_to(15, &mut connection)
            .await
            .unwrap();
        for row in BEFORE_VERSIONS {
            connection.execute(row).await.unwrap();
        }
        models_are_version_1(&place.open().await).await;
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
