//! Requests of each job in each minute.

use std::path::Path;

use sextant_simulator::{Error, table::Table};

/// Counts by minute and job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rates {
    /// Counts by minute, then by job.
    minutes: Vec<Vec<u32>>,
    jobs: usize,
}

// === impl Rates ===

impl Rates {
    /// Counts by minute, then by job.
    pub fn new(minutes: Vec<Vec<u32>>) -> Self {
        let jobs = minutes.iter().map(Vec::len).max().unwrap_or(0);
        Self { minutes, jobs }
    }

    /// The shipped counts of Faro's experiment (ten jobs, six hours), or those of a file.
    ///
    /// # Errors
    /// See [`Self::load`].
    pub fn named(name: &str) -> Result<Self, Error> {
        match name {
            "faro" => Self::parse(name, include_str!("../../data/faro_rates.csv")),
            path => Self::load(Path::new(path)),
        }
    }

    /// Reads a CSV file: the first column is the minute, each further one a job.
    ///
    /// # Errors
    /// When it cannot be read, has no job or no minute, or a count is not a whole number.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            file: file.clone(),
            source,
        })?;
        Self::parse(&file, &text)
    }

    fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let table = Table::read(text, file)?;
        let columns = table.names().count();
        if columns < 2 {
            let problem = "has no column for a job beside the minute";
            return Err(Error::line(file, 1, table.header(), problem));
        }
        let count = |row: &sextant_simulator::table::Row<'_>, column: usize| {
            let count = row.text(column).parse::<u32>();
            count.map_err(|_| row.error(column, "is not a whole number of requests"))
        };
        let minutes = table.rows();
        let minutes: Result<Vec<Vec<u32>>, Error> = minutes
            .map(|row| (1..columns).map(|column| count(&row, column)).collect())
            .collect();
        let minutes = minutes?;
        if minutes.is_empty() {
            return Err(Error::line(
                file,
                1,
                table.header(),
                "is followed by no minute",
            ));
        }
        Ok(Self::new(minutes))
    }

    /// The same counts for `jobs` jobs, which repeat the first ones.
    pub fn repeated(&self, jobs: usize) -> Self {
        let minutes = self.minutes.iter();
        let minutes = minutes.map(|counts| counts.iter().copied().cycle().take(jobs).collect());
        Self::new(minutes.collect())
    }

    /// The counts of the first minutes.
    pub fn first(&self, minutes: usize) -> Self {
        let minutes = self.minutes.iter().take(minutes);
        Self::new(minutes.cloned().collect())
    }

    /// Number of jobs.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Number of minutes.
    pub fn minutes(&self) -> usize {
        self.minutes.len()
    }

    /// Requests of a job in a minute.
    pub fn count(&self, minute: usize, job: usize) -> u32 {
        let counts = self.minutes.get(minute);
        let count = counts.and_then(|counts| counts.get(job));
        count.copied().unwrap_or(0)
    }
}
