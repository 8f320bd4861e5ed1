//! The files of `migrations/`, as the build script found them.

use std::sync::LazyLock;

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

/// Version, what it does, and the statements.
type File = (i64, &'static str, &'static str);

pub(crate) static SQLITE: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&include!(concat!(env!("OUT_DIR"), "/sqlite.rs"))));

#[cfg(feature = "postgres")]
pub(crate) static POSTGRES: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&include!(concat!(env!("OUT_DIR"), "/postgres.rs"))));

fn migrator(files: &[File]) -> Migrator {
    let migrations = files.iter().map(|(version, description, sql)| {
        // What a transaction cannot hold says so in its first line.
        let alone = sql.starts_with("-- no-transaction");
        let kind = MigrationType::Simple;
        Migration::new(
            *version,
            (*description).into(),
            kind,
            sql.into_sql_str(),
            alone,
        )
    });
    Migrator::with_migrations(migrations.collect())
}
