//! Rates of queries: numbers, steps, or files.

use std::{path::Path, sync::Arc};

use serde::Deserialize;

use crate::{
    table::Table,
    trace::Trace,
    workload::{Piece, Rate},
};

/// Shipped files of rates.
const SHIPPED: [(&str, &str); 1] = [(
    "twitter-minutes",
    include_str!("../../../data/twitter_minutes.csv"),
)];

/// Queries a second over time.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RateFile {
    /// A constant rate.
    Constant(f64),
    /// One step after the other, and then again from the first.
    Steps(Vec<StepFile>),
    /// From a file.
    Trace(TraceFile),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepFile {
    seconds: f64,
    rps: f64,
    /// The rate at its end; the same as at its beginning if it is missing.
    to_rps: Option<f64>,
}

/// A file with the columns `second,requests` or `minute,requests`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceFile {
    /// A shipped file or a path.
    trace: String,
    /// The smallest and the largest rate. The others are interpolated linearly.
    range_rps: Option<[f64; 2]>,
    /// How long each line lasts, s; a second or a minute if it is missing.
    line_s: Option<f64>,
    /// The line with which it begins, counted from 0. The lines before it come last.
    #[serde(default)]
    from_line: usize,
}

/// The load that all classes share.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LoadFile {
    rate: Option<RateFile>,
    /// A CSV file of recorded queries, `timestamp,model`, whose models are applications.
    recorded: Option<String>,
}

// === impl LoadFile ===

impl LoadFile {
    pub(super) fn rate(&self, folder: Option<&Path>) -> Result<Rate, String> {
        let rate = self.rate.as_ref().map(|rate| rate.read(folder));
        rate.unwrap_or(Ok(Rate::Constant(0.0)))
    }

    pub(super) fn recorded(&self, folder: Option<&Path>) -> Result<Option<Arc<Trace>>, String> {
        let Some(path) = &self.recorded else {
            return Ok(None);
        };
        let text = text(path, folder)?;
        let trace = Trace::read(&text, path).map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(trace)))
    }
}

// === impl RateFile ===

impl RateFile {
    pub(super) fn read(&self, folder: Option<&Path>) -> Result<Rate, String> {
        match self {
            Self::Constant(rps) => Ok(Rate::Constant(*rps)),
            Self::Steps(steps) => {
                let piece = |step: &StepFile| Piece {
                    seconds: step.seconds,
                    from_rps: step.rps,
                    to_rps: step.to_rps.unwrap_or(step.rps),
                };
                Ok(Rate::Pieces {
                    pieces: steps.iter().map(piece).collect(),
                    repeats: true,
                })
            }
            Self::Trace(of) => of.read(folder),
        }
    }
}

// === impl TraceFile ===

impl TraceFile {
    fn read(&self, folder: Option<&Path>) -> Result<Rate, String> {
        let text = text(&self.trace, folder)?;
        let (each_s, rates) = lines(&text, &self.trace).map_err(|error| error.to_string())?;
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        let mapped = |rps: f64| match self.range_rps {
            Some([from, to]) if most > least => from + (to - from) * (rps - least) / (most - least),
            Some([from, _]) => from,
            None => rps,
        };
        let seconds = self.line_s.unwrap_or(each_s);
        let begins = self.from_line.min(rates.len().saturating_sub(1));
        let pieces = rates[begins..].iter().chain(&rates[..begins]);
        let pieces = pieces.map(|rps| Piece::flat(seconds, mapped(*rps)));
        Ok(Rate::Pieces {
            pieces: pieces.collect(),
            repeats: true,
        })
    }
}

/// The length of a line, s, and queries a second by line.
fn lines(text: &str, file: &str) -> Result<(f64, Vec<f64>), crate::Error> {
    let table = Table::read(text, file)?;
    let each_s = match table.find("minute") {
        Some(_) => 60.0,
        None => {
            table.column("second")?;
            1.0
        }
    };
    let requests = table.column("requests")?;
    let rates = table
        .rows()
        .map(|row| Ok(row.not_negative(requests)? / each_s));
    Ok((each_s, rates.collect::<Result<_, crate::Error>>()?))
}

/// A shipped file or one at a path.
pub(super) fn text(path: &str, folder: Option<&Path>) -> Result<String, String> {
    let shipped = SHIPPED.iter().chain(&super::variants::SHIPPED);
    let mut shipped = shipped.filter(|(name, _)| *name == path);
    if let Some((_, text)) = shipped.next() {
        return Ok((*text).to_owned());
    }
    let at = folder.map_or_else(|| Path::new(path).to_path_buf(), |folder| folder.join(path));
    std::fs::read_to_string(&at).map_err(|error| format!("cannot read `{}`: {error}", at.display()))
}
