//! The files of `migrations/`, as the build script found them.

use std::sync::LazyLock;

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

/// Version, description, and the statements.
type File = (i64, &'static str, &'static str);

pub(crate) static SQLITE: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&include!(concat!(env!("OUT_DIR"), "/sqlite.rs"))));

#[cfg(feature = "postgres")]
pub(crate) static POSTGRES: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&include!(concat!(env!("OUT_DIR"), "/postgres.rs"))));

fn migrator(files: &[File]) -> Migrator {
    let migrations = files.iter().map(|(version, description, sql)| {
        // A file that cannot run in a transaction says so in its first line.
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
