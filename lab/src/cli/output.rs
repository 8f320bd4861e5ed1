//! What commands answer, on standard output.

use std::{
    io::{self, Write},
    path::Path,
};

use sextant_simulator::{
    Record,
    report::{Grid, Heading},
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

/// The file of a user's experiment of a kind; `None` where it is of another kind. One that cannot be
/// read is another kind's to complain about.
pub fn file_of(name: &str, is_of_kind: impl Fn(&str) -> bool) -> Option<&Path> {
    let text = std::fs::read_to_string(name).unwrap_or_default();
    is_of_kind(&text).then(|| Path::new(name))
}
