//! Whole registries as rows, for backups: read in one snapshot, and written into an empty registry.
//!
//! The rows are the same in both dialects, so that a backup of a file may be restored into a server. A column holds
//! text (also for documents), a whole number or a real number. A real number is written as text, which restores it bit
//! for bit.

use std::path::PathBuf;

use futures::TryStreamExt;
use serde_json::Value as Cell;
use sextant_types::{Digest, StoreId};
use sqlx::{AssertSqlSafe, Row as _};

use crate::{
    Entity, Error, Registry,
    blob::{NAMING, mentioned},
    database::{Connection, Row, Session, migrations, sqlite},
    rows::{Columns, int, value},
    sql,
};

#[cfg(test)]
mod tests;

/// The tables of a backup, in an order in which rows may be inserted: a row comes after the rows to which it refers.
pub const TABLES: [&str; 14] = [
    "applications",
    "pipelines",
    "models",
    "variants",
    "steps",
    "jobs",
    "profiles",
    "once",
    "api_keys",
    "audit",
    "revisions",
    "feedback",
    "feedback_sums",
    "feedback_alarms",
];

/// The tables that a backup omits, with the reason.
pub const LEFT_OUT: [(&str, &str); 6] = [
    ("condemned", "nobody removes files from a restored store"),
    ("identity", "a restored pair gets a name of its own"),
    (
        "pipeline_measures",
        "a restored service measures its pipelines anew",
    ),
    (
        "feedback_keys",
        "a backup carries no secret; a restored registry makes a key of its own",
    ),
    (
        "shadow_answers",
        "feedback on answers from before a restoration is refused, so nothing is held against them",
    ),
    (
        "_sqlx_migrations",
        "the schema is that of whoever opens the registry",
    ),
];

/// The place of a registry.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a file.
    File(PathBuf),
    /// On a server.
    #[cfg(feature = "postgres")]
    Server(crate::ConnectOptions),
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Document,
    Integer,
    Real,
}

/// A registry at one moment, independent of later writes.
pub struct Dump {
    session: Session,
    schema: i64,
}

/// An empty registry into which rows are inserted: all of them, or none if it is dropped.
pub struct RestoreSession {
    session: Session,
}

impl Dump {
    /// Starts to read. Changes nothing; a service may have the registry open.
    ///
    /// # Errors
    /// [`Error::OtherSchema`] if it does not have this version's schema, [`Error::UnknownTable`] if it has a table that
    /// a backup does not know, or the reason why it cannot be read.
    pub async fn open(place: &Place) -> Result<Self, Error> {
        let connection = match place {
            Place::File(file) => Connection::Sqlite(sqlite::Session::snapshot(file).await?),
            #[cfg(feature = "postgres")]
            Place::Server(options) => {
                use crate::database::postgres;
                Connection::Postgres(postgres::Session::snapshot(options).await?)
            }
        };
        let mut session = Session::alone(connection);
        let schema = schema(&mut session).await?;
        let known = known_schema();
        if schema != known {
            return Err(Error::OtherSchema {
                found: schema,
                known,
            });
        }
        for table in tables(&mut session).await? {
            let is_known = TABLES.contains(&table.as_str());
            if !is_known && !LEFT_OUT.iter().any(|(left, _)| *left == table) {
                return Err(Error::UnknownTable { table });
            }
        }
        Ok(Self { session, schema })
    }

    /// The version of its schema.
    pub fn schema(&self) -> i64 {
        self.schema
    }

    /// The name that it shares with its artefact store.
    pub async fn identity(&mut self) -> Result<Option<StoreId>, Error> {
        let row = self.session.row((&sql::IDENTITY).into()).await?;
        let read = |row| Columns::new(&row, Entity::Identity, "id")?.parse("id");
        row.map(read).transpose()
    }

    /// The columns of one of the [`TABLES`].
    pub async fn columns(&mut self, table: &str) -> Result<Vec<Column>, Error> {
        columns(&mut self.session, table).await
    }

    /// Passes each row of a table to the caller, with a cell for each of `columns`.
    pub async fn each_row<E: From<Error>>(
        &mut self,
        table: &str,
        columns: &[Column],
        mut take: impl FnMut(Vec<Cell>) -> Result<(), E>,
    ) -> Result<(), E> {
        let names: Vec<String> = columns
            .iter()
            .map(|it| format!("\"{}\"", it.name))
            .collect();
        let query = AssertSqlSafe(format!("select {} from \"{table}\"", names.join(", ")));
        match self.session.connection() {
            Connection::Sqlite(session) => {
                let mut rows = sqlx::query(query).fetch(session.connection());
                while let Some(row) = rows.try_next().await.map_err(Error::from)? {
                    take(cells(&Row::Sqlite(row), columns)?)?;
                }
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => {
                let mut rows = sqlx::query(query).fetch(session.connection());
                while let Some(row) = rows.try_next().await.map_err(Error::of_server)? {
                    take(cells(&Row::Postgres(row), columns)?)?;
                }
            }
        }
        Ok(())
    }

    /// The blobs that rows name, each once, sorted.
    pub async fn digests(&mut self) -> Result<Vec<Digest>, Error> {
        let mut digests = Vec::new();
        for table in NAMING {
            let columns = self.columns(table).await?;
            self.each_row(table, &columns, |row| {
                let texts = row.iter().filter_map(Cell::as_str);
                digests.extend(texts.flat_map(mentioned));
                Ok::<(), Error>(())
            })
            .await?;
        }
        digests.sort_unstable();
        digests.dedup();
        Ok(digests)
    }
}

impl Registry {
    /// The version of the schema of this version of the service.
    pub fn schema_version() -> i64 {
        known_schema()
    }

    /// Starts to insert rows into the registry.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if it has rows.
    pub async fn restoring(&self) -> Result<RestoreSession, Error> {
        let mut session = self.begin().await?;
        for table in TABLES {
            let query = AssertSqlSafe(format!("select 1 from \"{table}\" limit 1"));
            if any(&mut session, query).await? {
                return Err(Error::NotEmpty { table });
            }
        }
        Ok(RestoreSession { session })
    }
}

impl RestoreSession {
    /// The columns of one of the [`TABLES`].
    pub async fn columns(&mut self, table: &str) -> Result<Vec<Column>, Error> {
        columns(&mut self.session, table).await
    }

    /// Inserts one row.
    ///
    /// # Errors
    /// [`Error::Row`] if a cell does not fit its column, or the database's error.
    pub async fn put(
        &mut self,
        table: &str,
        columns: &[Column],
        cells: &[Cell],
    ) -> Result<(), Error> {
        if cells.len() != columns.len() {
            return Err(wrong(table, "it has another number of cells"));
        }
        let names: Vec<String> = columns
            .iter()
            .map(|it| format!("\"{}\"", it.name))
            .collect();
        let places: Vec<String> = (1..=columns.len()).map(|it| format!("${it}")).collect();
        let insert = AssertSqlSafe(format!(
            "insert into \"{table}\" ({}) values ({})",
            names.join(", "),
            places.join(", ")
        ));
        macro_rules! insert {
            ($session:expr, $document:expr, $failed:expr) => {{
                let mut query = sqlx::query(insert);
                for (column, cell) in columns.iter().zip(cells) {
                    let odd = || wrong(table, &format!("`{}` is of another kind", column.name));
                    query = match column.kind {
                        Kind::Text => query.bind(text(cell).ok_or_else(odd)?),
                        Kind::Document => query.bind(text(cell).ok_or_else(odd)?.map($document)),
                        Kind::Integer => query.bind(integer(cell).ok_or_else(odd)?),
                        Kind::Real => query.bind(real(cell).ok_or_else(odd)?),
                    };
                }
                query
                    .execute($session.connection())
                    .await
                    .map_err($failed)?;
            }};
        }
        match self.session.connection() {
            Connection::Sqlite(session) => insert!(session, std::convert::identity, Error::from),
            #[cfg(feature = "postgres")]
            Connection::Postgres(session) => {
                use crate::database::Json;
                insert!(session, Json, Error::of_server);
            }
        }
        Ok(())
    }

    /// Sets the registry's name, puts unfinished jobs back into the queue, and makes everything durable.
    pub async fn finish(mut self, id: StoreId, now_ms: u64) -> Result<(), Error> {
        self.session.run(sql::RENAME.bind(id.to_string())).await?;
        let requeue = sql::REQUEUE_JOBS.bind(None::<i64>).bind(int(now_ms));
        self.session.run(requeue).await?;
        self.session.commit().await
    }
}

fn known_schema() -> i64 {
    let versions = migrations::SQLITE.iter().map(|one| one.version);
    versions.max().unwrap_or(0)
}

async fn schema(session: &mut Session) -> Result<i64, Error> {
    let query = AssertSqlSafe("select max(version) as version from _sqlx_migrations".to_owned());
    let found = names(session, query, |row| match row {
        Row::Sqlite(row) => Ok(row.try_get::<Option<i64>, _>("version")?),
        #[cfg(feature = "postgres")]
        Row::Postgres(row) => row.try_get("version").map_err(Error::of_server),
    });
    Ok(found.await?.into_iter().next().flatten().unwrap_or(0))
}

async fn tables(session: &mut Session) -> Result<Vec<String>, Error> {
    let query = match session.connection() {
        Connection::Sqlite(_) => {
            "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
        }
        #[cfg(feature = "postgres")]
        Connection::Postgres(_) => {
            "select table_name::text as name from information_schema.tables \
             where table_schema = current_schema() and table_type = 'BASE TABLE'"
        }
    };
    names(session, AssertSqlSafe(query.to_owned()), |row| {
        text_of(row, "name")
    })
    .await
}

async fn columns(session: &mut Session, table: &str) -> Result<Vec<Column>, Error> {
    let query = match session.connection() {
        Connection::Sqlite(_) => {
            format!("select name, type as kind from pragma_table_info('{table}')")
        }
        #[cfg(feature = "postgres")]
        Connection::Postgres(_) => format!(
            "select column_name::text as name, data_type::text as kind from information_schema.columns \
             where table_schema = current_schema() and table_name = '{table}' order by ordinal_position"
        ),
    };
    let read = |row: &Row| {
        let (name, kind) = (text_of(row, "name")?, text_of(row, "kind")?);
        let kind = match kind.to_ascii_lowercase().as_str() {
            "text" => Kind::Text,
            "json" => Kind::Document,
            "integer" | "bigint" => Kind::Integer,
            "real" | "double precision" => Kind::Real,
            other => return Err(wrong(table, &format!("`{name}` has the type `{other}`"))),
        };
        Ok(Column { name, kind })
    };
    names(session, AssertSqlSafe(query), read).await
}

async fn any(session: &mut Session, query: AssertSqlSafe<String>) -> Result<bool, Error> {
    Ok(!names(session, query, |_| Ok(())).await?.is_empty())
}

/// One value of each row of a short answer.
async fn names<T>(
    session: &mut Session,
    query: AssertSqlSafe<String>,
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    match session.connection() {
        Connection::Sqlite(session) => {
            let rows = sqlx::query(query).fetch_all(session.connection()).await?;
            rows.into_iter()
                .map(|row| read(&Row::Sqlite(row)))
                .collect()
        }
        #[cfg(feature = "postgres")]
        Connection::Postgres(session) => {
            let rows = sqlx::query(query).fetch_all(session.connection()).await;
            let rows = rows.map_err(Error::of_server)?.into_iter();
            rows.map(|row| read(&Row::Postgres(row))).collect()
        }
    }
}

fn text_of(row: &Row, column: &str) -> Result<String, Error> {
    value!(row, column)
}

fn cells(row: &Row, columns: &[Column]) -> Result<Vec<Cell>, Error> {
    let cell = |(index, column): (usize, &Column)| {
        Ok(match column.kind {
            Kind::Text => {
                let text: Option<String> = value!(row, index)?;
                Cell::from(text)
            }
            Kind::Document => Cell::from(document(row, index)?),
            Kind::Integer => {
                let integer: Option<i64> = value!(row, index)?;
                Cell::from(integer)
            }
            // As text, which is read as the same number.
            Kind::Real => {
                let real: Option<f64> = value!(row, index)?;
                Cell::from(real.map(|real| format!("{real:?}")))
            }
        })
    };
    columns.iter().enumerate().map(cell).collect()
}

fn document(row: &Row, index: usize) -> Result<Option<String>, Error> {
    match row {
        Row::Sqlite(row) => Ok(row.try_get(index)?),
        #[cfg(feature = "postgres")]
        Row::Postgres(row) => {
            let found: Option<crate::database::Json> =
                row.try_get(index).map_err(Error::of_server)?;
            Ok(found.map(|document| document.0))
        }
    }
}

/// `None` if the cell holds something else.
fn text(cell: &Cell) -> Option<Option<String>> {
    match cell {
        Cell::Null => Some(None),
        Cell::String(text) => Some(Some(text.clone())),
        _ => None,
    }
}

fn integer(cell: &Cell) -> Option<Option<i64>> {
    match cell {
        Cell::Null => Some(None),
        cell => cell.as_i64().map(Some),
    }
}

fn real(cell: &Cell) -> Option<Option<f64>> {
    match cell {
        Cell::Null => Some(None),
        cell => cell.as_str()?.parse().ok().map(Some),
    }
}

fn wrong(table: &str, reason: &str) -> Error {
    Error::Row {
        table: table.to_owned(),
        reason: reason.to_owned(),
    }
}
