//! The real databases accept every statement, with the same columns in both.

use sqlx::{Column, Database, Either, Executor, SqlSafeStr, Statement, TypeInfo};

use super::{place::pools, *};
use crate::sql;

/// The columns of a statement's answer and the number of its values.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// The name, and the kind if the database tells it.
    columns: Vec<(String, Option<&'static str>)>,
    parameters: usize,
}

/// The kind of a type. Documents are text in SQLite, which does not tell the types of rows that it
/// has changed.
fn kind(name: &str) -> Option<&'static str> {
    match name {
        "TEXT" | "JSON" => Some("text"),
        "INTEGER" | "INT8" => Some("integer"),
        "REAL" | "FLOAT8" => Some("real"),
        "NULL" => None,
        other => panic!("type `{other}` is not one of ours"),
    }
}

fn shape<S: Statement>(statement: &S) -> Shape {
    let column = |column: &<S::Database as Database>::Column| {
        (column.name().to_owned(), kind(column.type_info().name()))
    };
    Shape {
        columns: statement.columns().iter().map(column).collect(),
        parameters: match statement.parameters() {
            Some(Either::Left(types)) => {
                let known = types.iter().filter(|one| kind(one.name()).is_some());
                known.count()
            }
            Some(Either::Right(count)) => count,
            None => 0,
        },
    }
}

async fn in_sqlite() -> Vec<Shape> {
    let place = Place::file();
    let registry = place.open().await;
    let mut shapes = Vec::new();
    for (name, sql) in sql::ALL {
        let prepared = pools(&registry)
            .readers
            .prepare(sql.sqlite.into_sql_str())
            .await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{name}: {error}"));
        shapes.push(shape(&prepared));
    }
    shapes
}

#[tokio::test]
async fn sqlite_takes_every_statement() {
    assert_eq!(in_sqlite().await.len(), sql::ALL.len());
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn both_databases_take_every_statement_alike() {
    let place = Place::server().await;
    let registry = place.open().await;
    let crate::database::Database::Postgres(database) = &registry.inner.database else {
        panic!("it is in a file");
    };
    for ((name, sql), in_sqlite) in sql::ALL.iter().zip(in_sqlite().await) {
        let prepared = database.pool.prepare(sql.postgres.into_sql_str()).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut in_postgres = shape(&prepared);
        for (column, other) in in_postgres.columns.iter_mut().zip(&in_sqlite.columns) {
            assert!(column.1.is_some(), "{name}.{}", column.0);
            column.1 = other.1.and(column.1);
        }
        assert_eq!(in_postgres, in_sqlite, "{name}");
    }
}
