//! Comma-separated files with a header, whose errors name file, line and value.

use crate::Error;

/// A file as lines of values.
#[derive(Debug)]
pub struct Table<'a> {
    file: &'a str,
    header: &'a str,
    names: Vec<&'a str>,
    lines: Vec<(usize, Vec<&'a str>)>,
}

/// A line with as many values as the header.
#[derive(Debug)]
pub struct Row<'a> {
    file: &'a str,
    line: usize,
    names: &'a [&'a str],
    values: &'a [&'a str],
}

// === impl Table ===

impl<'a> Table<'a> {
    /// Splits `text`, which errors call `file`. Empty lines are skipped.
    ///
    /// # Errors
    /// If it is empty, or a line has more or fewer values than the header.
    pub fn read(text: &'a str, file: &'a str) -> Result<Self, Error> {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty());
        let (_, header) = lines
            .next()
            .ok_or_else(|| Error::line(file, 1, "", "is an empty file"))?;
        let names = split(header);
        let mut rows = Vec::new();
        for (line, content) in lines {
            let values = split(content);
            if values.len() != names.len() {
                let problem = format!("has {} values, not {}", values.len(), names.len());
                return Err(Error::line(file, line, content, problem));
            }
            rows.push((line, values));
        }
        Ok(Self {
            file,
            header,
            names,
            lines: rows,
        })
    }

    /// The name of the file in errors.
    pub fn file(&self) -> &'a str {
        self.file
    }

    /// The first line.
    pub fn header(&self) -> &'a str {
        self.header
    }

    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.names.iter().copied()
    }

    /// The position of the column of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    /// The position of a column that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn column(&self, name: &str) -> Result<usize, Error> {
        self.find(name).ok_or_else(|| {
            let problem = format!("has no column `{name}`");
            Error::line(self.file, 1, self.header, problem)
        })
    }

    /// The lines below the header.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> + '_ {
        self.lines.iter().map(|(line, values)| Row {
            file: self.file,
            line: *line,
            names: &self.names,
            values,
        })
    }
}

fn split(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

// === impl Row ===

impl<'a> Row<'a> {
    /// The value in a column.
    pub fn text(&self, column: usize) -> &'a str {
        self.values[column]
    }

    /// An error about the value in a column.
    pub fn error(&self, column: usize, problem: &str) -> Error {
        let problem = format!("as `{}` {problem}", self.names[column]);
        Error::line(self.file, self.line, self.values[column], problem)
    }

    /// The value in a column as a finite number.
    ///
    /// # Errors
    /// If it is not one.
    pub fn number(&self, column: usize) -> Result<f64, Error> {
        let number: f64 = self.values[column]
            .parse()
            .map_err(|_| self.error(column, "is not a number"))?;
        if number.is_finite() {
            Ok(number)
        } else {
            Err(self.error(column, "is not a finite number"))
        }
    }

    /// The value in a column as a number of at least 0.
    ///
    /// # Errors
    /// If it is not one.
    pub fn not_negative(&self, column: usize) -> Result<f64, Error> {
        let number = self.number(column)?;
        if number < 0.0 {
            return Err(self.error(column, "is negative"));
        }
        Ok(number)
    }

    /// The value in a column as a number above 0.
    ///
    /// # Errors
    /// If it is not one.
    pub fn positive(&self, column: usize) -> Result<f64, Error> {
        let number = self.number(column)?;
        if number <= 0.0 {
            return Err(self.error(column, "is not more than zero"));
        }
        Ok(number)
    }
}
