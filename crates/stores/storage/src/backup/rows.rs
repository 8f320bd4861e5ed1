//! The rows of a table as a file: the names of the columns on the first line, then one row on each
//! line.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde_json::Value as Cell;
use sextant_registry::dump::{Column, Dump, RestoreSession};

use super::{Error, REGISTRY, Table, copy::BackupFile};

/// Writes a table into the folder.
pub(super) async fn write(dump: &mut Dump, table: &str, folder: &Path) -> Result<Table, Error> {
    let columns = dump.columns(table).await?;
    let path = folder.join(REGISTRY).join(table);
    let mut written = BackupFile::create(&path)?;
    let names = columns.iter().map(|it| Cell::from(it.name.as_str()));
    put(&mut written, names.collect())?;
    let mut rows = 0;
    dump.each_row(table, &columns, |row| {
        rows += 1;
        put(&mut written, row)
    })
    .await?;
    let (sha256, _) = written.finish()?;
    Ok(Table {
        name: table.to_owned(),
        rows,
        sha256,
    })
}

fn put(written: &mut BackupFile, cells: Vec<Cell>) -> Result<(), Error> {
    written.put(format!("{}\n", Cell::Array(cells)).as_bytes())
}

/// Inserts the rows of a table's file into an empty registry.
pub(super) async fn read(
    restoring: &mut RestoreSession,
    table: &Table,
    folder: &Path,
) -> Result<(), Error> {
    let path = folder.join(REGISTRY).join(&table.name);
    let file = File::open(&path).map_err(Error::io(&path))?;
    let mut lines = BufReader::new(file).lines();
    let mut next = || -> Result<Option<Vec<Cell>>, Error> {
        let line = lines.next().transpose().map_err(Error::io(&path))?;
        let read = |line: String| serde_json::from_str(&line);
        let read = line.map(read).transpose();
        read.map_err(|error| Error::invalid(&path, error.to_string()))
    };
    let known = restoring.columns(&table.name).await?;
    let names = next()?.unwrap_or_default();
    let column = |name: &Cell| {
        let found = known.iter().find(|it| name.as_str() == Some(&it.name));
        found.cloned()
    };
    let columns: Option<Vec<Column>> = names.iter().map(column).collect();
    let columns = columns.filter(|columns| columns.len() == known.len());
    let columns = columns.ok_or_else(|| Error::invalid(&path, "its columns are other ones"))?;
    let mut rows = 0;
    while let Some(row) = next()? {
        restoring.put(&table.name, &columns, &row).await?;
        rows += 1;
    }
    match rows == table.rows {
        true => Ok(()),
        false => Err(Error::invalid(&path, "it has another number of rows")),
    }
}
