//! What commands answer, on standard output.

use std::{
    io::{self, Write},
    path::Path,
};

use sextant_simulator::{
    Error as Failure, Record,
    report::{Grid, Heading, Progress},
};

use super::Error;

/// How a command answers.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

// === impl Output ===

impl Output {
    /// A text with a line end. Nobody who reads it is no error.
    pub fn text(self, text: &str) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        let written = out
            .write_all(text.as_bytes())
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Output(error)),
            _ => Ok(()),
        }
    }

    /// The records of an experiment, which tells how many of how many parts are done.
    pub fn play(
        self,
        heading: &Heading<'_>,
        grid: &Grid<'_>,
        run: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<Vec<Record>, Failure>,
    ) -> Result<(), Error> {
        let progress = Progress::new(self.json);
        let records = run(&mut |done, total| progress.show(done, total, heading.name));
        progress.finish();
        self.records(heading, grid, &records?)
    }

    /// Records one by one as JSON, or their means as a table.
    pub fn records(
        self,
        heading: &Heading<'_>,
        grid: &Grid<'_>,
        records: &[Record],
    ) -> Result<(), Error> {
        if self.json {
            let mut lines = records.iter().map(Record::to_json);
            return lines.try_for_each(|line| self.text(&line));
        }
        self.text(&grid.page(heading, records))
    }
}

/// The shipped experiment of a name, or a user's of that file; `None` where it is of another kind.
pub fn find<E>(
    name: &str,
    named: impl FnOnce(&str) -> Result<Option<E>, Failure>,
    is_of_kind: impl Fn(&str) -> bool,
    load: impl FnOnce(&Path) -> Result<E, Failure>,
) -> Result<Option<E>, Error> {
    if let Some(experiment) = named(name)? {
        return Ok(Some(experiment));
    }
    Ok(file_of(name, is_of_kind).map(load).transpose()?)
}

/// The file of a user's experiment of a kind; `None` where it is of another kind. One that cannot be
/// read is another kind's to complain about.
pub fn file_of(name: &str, is_of_kind: impl Fn(&str) -> bool) -> Option<&Path> {
    let text = std::fs::read_to_string(name).unwrap_or_default();
    is_of_kind(&text).then(|| Path::new(name))
}
