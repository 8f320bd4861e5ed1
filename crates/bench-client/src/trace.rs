//! Recorded arrivals: a CSV file with the columns `timestamp` and, where it has several applications, `application`.
//!
//! Timestamps are seconds from wherever the file likes, the first query comes at 0, and lines need not be in order. Other
//! columns are ignored. It is the form that `sextant simulate --workload` reads too, so `model` may stand in place of
//! `application`.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use crate::{Arrivals, Error};

/// Recorded arrivals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// By application, as the file names them; the empty name where it names none.
    applications: BTreeMap<String, Vec<Duration>>,
}

// === impl Trace ===

impl Trace {
    /// Reads a file, to be replayed `speed` times as fast.
    ///
    /// # Errors
    /// When it cannot be read, a column is missing, a timestamp is no finite number, or it holds no query.
    pub fn load(path: &Path, speed: f64) -> Result<Self, Error> {
        let text = std::fs::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::read(&text, speed).map_err(|reason| Error::File {
            path: path.to_owned(),
            reason,
        })
    }

    fn read(text: &[u8], speed: f64) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(text);
        let header = reader.headers().map_err(|error| error.to_string())?.clone();
        let column = |name: &str| header.iter().position(|it| it == name);
        let time = column("timestamp").ok_or("it has no column `timestamp`")?;
        let application = column("application").or_else(|| column("model"));
        let mut lines: Vec<(f64, String)> = Vec::new();
        for (row, record) in reader.records().enumerate() {
            let line = row + 2;
            let record = record.map_err(|error| error.to_string())?;
            let cell = |column: usize| record.get(column).unwrap_or_default();
            let at = cell(time).parse::<f64>().ok().filter(|it| it.is_finite());
            let at = at.ok_or_else(|| {
                format!("line {line}: the timestamp `{}` is no number", cell(time))
            })?;
            lines.push((at, application.map(cell).unwrap_or_default().to_owned()));
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let first = lines.first().ok_or("it holds no query")?.0;
        let mut applications = BTreeMap::<String, Vec<Duration>>::new();
        for (at, application) in lines {
            let at = Duration::try_from_secs_f64((at - first) / speed)
                .map_err(|error| error.to_string())?;
            applications.entry(application).or_default().push(at);
        }
        Ok(Self { applications })
    }

    /// The applications that it names, sorted; none where it has no such column.
    pub fn applications(&self) -> impl Iterator<Item = &str> {
        let names = self.applications.keys().map(String::as_str);
        names.filter(|name| !name.is_empty())
    }

    /// The arrivals of an application; `None` where it names others alone.
    pub fn arrivals(&self, application: &str) -> Option<Arrivals> {
        let times = self.applications.get(application);
        let times = times.or_else(|| self.applications.get(""))?;
        Some(Arrivals::Recorded(Arc::from(times.as_slice())))
    }

    /// From the first query to the last.
    pub fn length(&self) -> Duration {
        let last = self.applications.values().filter_map(|times| times.last());
        last.max().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_shifted_and_divided_among_applications() {
        let text = b"timestamp,bytes,application\n12.5,1,digits\n10,2,wine\n11,3,digits\n";
        let trace = Trace::read(text, 2.0).expect("a trace");
        assert_eq!(trace.applications().collect::<Vec<_>>(), ["digits", "wine"]);
        let times = [500, 1250].map(Duration::from_millis);
        assert_eq!(
            trace.arrivals("digits"),
            Some(Arrivals::Recorded(Arc::from(times)))
        );
        assert_eq!(trace.arrivals("cats"), None);
        assert_eq!(trace.length(), Duration::from_millis(1250));
    }

    #[test]
    fn mistakes_name_their_line() {
        let read = |text: &str| Trace::read(text.as_bytes(), 1.0).expect_err("refused");
        assert_eq!(read("time\n1\n"), "it has no column `timestamp`");
        assert_eq!(read("timestamp\n"), "it holds no query");
        let wrong = read("timestamp\n1\nsoon\n");
        assert_eq!(wrong, "line 3: the timestamp `soon` is no number");
    }
}
