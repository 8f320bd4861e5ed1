//! Replayed requests: one line `timestamp,model` for each. The column `model` may be called `application`.
//!
//! Timestamps are seconds, with decimals, counted from any origin; the first request comes at 0. Lines need not be in
//! order. Other columns are ignored.

use sextant_schedule::Nanos;

use crate::{Arrival, Error, Source, table::Table};

/// A trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// By position: the models, in the order of their first lines.
    pub models: Vec<String>,
    /// (ns since the first request, model) in order of time.
    pub requests: Vec<(Nanos, u32)>,
}

/// A trace as a source.
#[derive(Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    next: usize,
    speed: f64,
}

// === impl Trace ===

impl Trace {
    /// Reads a trace; `file` names it in errors.
    ///
    /// # Errors
    /// When the header is missing, a timestamp is not a finite number, or a model has no name.
    pub fn read(text: &str, file: &str) -> Result<Self, Error> {
        let table = Table::read(text, file)?;
        let time = table.column("timestamp")?;
        let model = match (table.find("model"), table.find("application")) {
            (None, Some(application)) => application,
            _ => table.column("model")?,
        };
        let mut trace = Self {
            models: Vec::new(),
            requests: Vec::new(),
        };
        let mut lines: Vec<(f64, u32)> = Vec::new();
        let mut ids = std::collections::BTreeMap::new();
        for row in table.rows() {
            let name = row.text(model);
            if name.is_empty() {
                return Err(row.error(model, "is not a model's name"));
            }
            let next = ids.len() as u32;
            let id = *ids.entry(name).or_insert_with(|| {
                trace.models.push(name.to_owned());
                next
            });
            lines.push((row.number(time)?, id));
        }
        if lines.is_empty() {
            return Err(Error::line(
                file,
                1,
                table.header(),
                "is followed by no request",
            ));
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let first = lines[0].0;
        let nanos = |seconds: f64| ((seconds - first) * 1e9).round() as Nanos;
        trace.requests = lines.iter().map(|(at, id)| (nanos(*at), *id)).collect();
        Ok(trace)
    }

    /// The trace in a file.
    ///
    /// # Errors
    /// If it cannot be read, or as for [`Self::read`].
    pub fn load(path: &std::path::Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::read(&text, &file),
            Err(source) => Err(Error::Read { file, source }),
        }
    }

    /// The trace as a source, `speed` times as fast.
    pub fn replay(&self, speed: f64) -> Replay<'_> {
        Replay {
            trace: self,
            next: 0,
            speed,
        }
    }

    /// Time from the first request to the last, s.
    pub fn seconds(&self) -> f64 {
        self.requests.last().map_or(0.0, |(at, _)| *at as f64 / 1e9)
    }

    /// By model: its share of the requests.
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.models.len()];
        for (_, model) in &self.requests {
            shares[*model as usize] += 1.0 / self.requests.len() as f64;
        }
        shares
    }
}

// === impl Replay ===

impl Source for Replay<'_> {
    fn peek(&mut self) -> Option<Nanos> {
        let (at, _) = self.trace.requests.get(self.next)?;
        Some((*at as f64 / self.speed) as Nanos)
    }

    fn next(&mut self) -> Arrival {
        let at = self.peek().expect("asked only when there is a next");
        let (_, model) = self.trace.requests[self.next];
        self.next += 1;
        Arrival {
            at,
            model,
            client: 0,
        }
    }
}
