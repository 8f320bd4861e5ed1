//! The output of commands: answers on standard output, messages on standard error.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

pub use sextant_types::number::short;

use super::Error;

/// How a command answers.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

/// Rows under headings; columns are as wide as their widest cell.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    heading: &'static str,
    numeric: bool,
}

// === impl Output ===

impl Output {
    /// A serialisable value as JSON.
    pub fn value(self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(value).map_err(|error| Error::Answer {
            reason: error.to_string(),
        })?;
        self.text(&text)
    }

    /// A text with a line end. Nobody who reads it is no error.
    pub fn text(self, text: &str) -> Result<(), Error> {
        self.text_while_read(text).map(drop)
    }

    /// The same; false where nobody reads any more.
    pub fn text_while_read(self, text: &str) -> Result<bool, Error> {
        let mut out = io::stdout().lock();
        let written = out
            .write_all(text.as_bytes())
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
        let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        let is_read = !written.as_ref().is_err_and(is_closed);
        tolerate_closed_pipe(written).map(|()| is_read)
    }

    /// Bytes as they are.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        tolerate_closed_pipe(out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// The raw answer as JSON, or what `text` makes of it.
    pub fn either(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        if self.json {
            return self.value(value);
        }
        self.text(&text())
    }
}

/// A line on standard error. Nobody has to read it: the command goes on where nobody does.
pub fn tell(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}

/// `sextant variants | head` is no error.
fn tolerate_closed_pipe(written: io::Result<()>) -> Result<(), Error> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Io {
            path: "standard output".into(),
            source: error,
        }),
        _ => Ok(()),
    }
}

// === impl Table ===

impl Table {
    /// A table with `headings`; one that begins with `#` is a column of numbers.
    pub fn new(headings: &[&'static str]) -> Self {
        let columns = headings
            .iter()
            .map(|heading| Column {
                heading: heading.trim_start_matches('#'),
                numeric: heading.starts_with('#'),
            })
            .collect();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row; one cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The aligned text, without a line end.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|index| self.width(index))
            .collect();
        let headings: Vec<&str> = self.columns.iter().map(|column| column.heading).collect();
        let mut lines = vec![self.line(&headings, &widths)];
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            lines.push(self.line(&cells, &widths));
        }
        lines.join("\n")
    }

    fn width(&self, index: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        cells
            .map(|cell| cell.chars().count())
            .chain([self.columns[index].heading.chars().count()])
            .max()
            .unwrap_or(0)
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .zip(&self.columns)
            .map(|((cell, width), column)| match column.numeric {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        padded.join("  ").trim_end().to_owned()
    }
}

/// The value at `pointer` as a cell: `-` where there is none.
pub fn cell(row: &Value, pointer: &str) -> String {
    match row.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(whole) => whole.to_string(),
            None => number.as_f64().map_or_else(|| "-".to_owned(), short),
        },
        Some(other) => other.to_string(),
    }
}

/// Like [`cell`], for a size in bytes.
pub fn bytes_cell(row: &Value, pointer: &str) -> String {
    let count = row.pointer(pointer).and_then(Value::as_u64);
    count.map_or_else(|| "-".to_owned(), bytes)
}

/// The elements of the array at `pointer`; none where there is none.
pub fn rows<'a>(answer: &'a Value, pointer: &str) -> &'a [Value] {
    let array = answer.pointer(pointer).and_then(Value::as_array);
    array.map(Vec::as_slice).unwrap_or_default()
}

/// Variants that a choice considered, best first.
pub fn candidates(list: Option<&Value>) -> Table {
    let mut table = Table::new(&[
        "variant",
        "#bound",
        "#expected ms",
        "#$/1k",
        "state",
        "verdict",
    ]);
    for row in list.and_then(Value::as_array).into_iter().flatten() {
        let bound = match (row.get("error_bound"), row.get("agreement_bound")) {
            (_, Some(_)) => format!("agrees {}", cell(row, "/agreement_bound")),
            (Some(_), _) => cell(row, "/error_bound"),
            (None, None) => cell(row, "/accuracy_bound"),
        };
        table.row(vec![
            cell(row, "/variant"),
            bound,
            cell(row, "/expected_ms"),
            cell(row, "/cost_per_1k_usd"),
            cell(row, "/state"),
            verdict(row),
        ]);
    }
    table
}

/// Every target that it misses, or else the verdict.
fn verdict(row: &Value) -> String {
    let misses = rows(row, "/misses").iter().filter_map(Value::as_str);
    let misses: Vec<&str> = misses.collect();
    match misses.is_empty() {
        true => cell(row, "/verdict"),
        false => misses.join(", "),
    }
}

/// Bytes in the largest binary unit that leaves at least one.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (count.max(1).ilog2() / 10).min(4);
    if power == 0 {
        return format!("{count} B");
    }
    let value = count as f64 / f64::from(1u32 << 10).powi(power as i32);
    format!("{value:.1} {}", units[power as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["variant", "#p50 ms"]);
        table.row(vec!["a".to_owned(), "1.25".to_owned()]);
        table.row(vec!["longer-name".to_owned(), "10".to_owned()]);
        let expected = "variant      p50 ms\na              1.25\nlonger-name      10";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 19), "1.5 MiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
