//! Profile files: how long a batch runs on an emulated device.
//!
//! There are two forms, distinguished by the header. `model,alpha_ms,beta_ms,slo_ms` has the line
//! `alpha * rows + beta` of each model (Symphony, tables 4 to 6). `model,..,b1_ms,b2_ms,..` has run
//! times by batch size (Clockwork, table 1). Between measured sizes a run time is interpolated, as
//! for an engine that takes any batch size.

mod family;

use std::sync::Arc;

use sextant_schedule::{LatencyTable, Nanos};

use crate::{Error, table::Table};

pub use family::family;

/// How long a model's batches run on one kind of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The model's name.
    pub model: String,
    /// Run time by rows.
    pub curve: Curve,
    /// Time within which an answer counts, ms, if the file has it.
    pub target_ms: Option<f64>,
    /// Time to load the model, ms, if the file has it.
    pub load_ms: Option<f64>,
    /// Size of its weights, MB (10^6 bytes), if the file has it.
    pub weights_mb: Option<f64>,
}

/// A run time as a function of the rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Curve {
    /// `alpha_ms * rows + beta_ms`.
    Line {
        /// Per row, ms.
        alpha_ms: f64,
        /// Per batch, ms.
        beta_ms: f64,
    },
    /// Measured (rows, ms) with increasing rows, the first for one row.
    Points(Vec<(u32, f64)>),
}

const SHIPPED: &[(&str, &str)] = &[
    (
        "symphony-zoo-gtx1080ti",
        include_str!("../data/symphony_zoo_gtx1080ti.csv"),
    ),
    (
        "symphony-zoo-a100",
        include_str!("../data/symphony_zoo_a100.csv"),
    ),
    (
        "symphony-table4",
        include_str!("../data/symphony_table4.csv"),
    ),
    ("clockwork-v100", include_str!("../data/clockwork_v100.csv")),
];

/// Names of the shipped profile files.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// The profiles of a shipped file, by name, or else of the file at a path.
///
/// # Errors
/// If there is neither, or the file is malformed: with its name, the line and the value.
pub fn load(name_or_path: &str) -> Result<Vec<Profile>, Error> {
    if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_path) {
        return read(text, name);
    }
    let looks_like_path = name_or_path.contains(['/', '.', '\\']);
    if !looks_like_path {
        return Err(Error::unknown("profile", name_or_path, &names()));
    }
    let text = std::fs::read_to_string(name_or_path).map_err(|source| Error::Read {
        file: name_or_path.to_owned(),
        source,
    })?;
    read(&text, name_or_path)
}

/// The profiles in `text`; `file` names it in errors.
///
/// # Errors
/// When a value is missing, no number, not positive, or a larger batch takes less time.
pub fn read(text: &str, file: &str) -> Result<Vec<Profile>, Error> {
    let table = Table::read(text, file)?;
    let columns = Columns::of(&table)?;
    let mut profiles: Vec<Profile> = Vec::new();
    for row in table.rows() {
        let profile = columns.profile(&row)?;
        if profiles.iter().any(|known| known.model == profile.model) {
            return Err(row.error(columns.model, "occurs twice"));
        }
        profiles.push(profile);
    }
    if profiles.is_empty() {
        return Err(Error::line(
            file,
            1,
            table.header(),
            "is followed by no profile",
        ));
    }
    Ok(profiles)
}

/// The positions of the values.
struct Columns {
    model: usize,
    curve: CurveColumns,
    target: Option<usize>,
    load: Option<usize>,
    weights: Option<usize>,
}

/// The positions of the values of a run time.
pub(crate) enum CurveColumns {
    Line { alpha: usize, beta: usize },
    Points(Vec<(u32, usize)>),
}

// === impl Columns ===

impl Columns {
    fn of(table: &Table<'_>) -> Result<Self, Error> {
        Ok(Self {
            model: table.column("model")?,
            curve: CurveColumns::of(table)?,
            target: table.find("slo_ms"),
            load: table.find("load_ms"),
            weights: table.find("weights_mb"),
        })
    }

    fn profile(&self, row: &crate::table::Row<'_>) -> Result<Profile, Error> {
        let model = row.text(self.model);
        if model.is_empty() {
            return Err(row.error(self.model, "is not a model's name"));
        }
        Ok(Profile {
            model: model.to_owned(),
            curve: self.curve.read(row)?,
            target_ms: self.target.map(|at| row.positive(at)).transpose()?,
            load_ms: self.load.map(|at| row.positive(at)).transpose()?,
            weights_mb: self.weights.map(|at| row.positive(at)).transpose()?,
        })
    }
}

impl CurveColumns {
    pub(crate) fn of(table: &Table<'_>) -> Result<Self, Error> {
        if table.find("alpha_ms").is_some() || table.find("beta_ms").is_some() {
            let (alpha, beta) = (table.column("alpha_ms")?, table.column("beta_ms")?);
            return Ok(Self::Line { alpha, beta });
        }
        let points: Vec<(u32, usize)> = table
            .names()
            .enumerate()
            .filter_map(|(at, name)| Some((batch_of(name)?, at)))
            .collect();
        let increasing = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if points.first().is_none_or(|first| first.0 != 1) || !increasing {
            return Err(Error::line(
                table.file(),
                1,
                table.header(),
                "has neither `alpha_ms,beta_ms` nor `b1_ms` and increasing larger sizes",
            ));
        }
        Ok(Self::Points(points))
    }

    pub(crate) fn read(&self, row: &crate::table::Row<'_>) -> Result<Curve, Error> {
        match self {
            Self::Line { alpha, beta } => {
                let (alpha_ms, beta_ms) = (row.not_negative(*alpha)?, row.not_negative(*beta)?);
                if alpha_ms + beta_ms <= 0.0 {
                    return Err(row.error(*alpha, "makes every batch take no time"));
                }
                Ok(Curve::Line { alpha_ms, beta_ms })
            }
            Self::Points(columns) => {
                let mut points: Vec<(u32, f64)> = Vec::new();
                for (rows, at) in columns {
                    let ms = row.positive(*at)?;
                    if points.last().is_some_and(|(_, before)| ms < *before) {
                        return Err(row.error(*at, "is less than a smaller batch takes"));
                    }
                    points.push((*rows, ms));
                }
                Ok(Curve::Points(points))
            }
        }
    }
}

/// The batch size in `b16_ms`.
fn batch_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('b')?.strip_suffix("_ms")?;
    digits.parse().ok().filter(|rows| *rows > 0)
}

// === impl Profile ===

impl Profile {
    /// Run times up to `max_rows` rows. A measured curve ends at its last size at the latest.
    ///
    /// # Errors
    /// If the curve was not read from a file and is not valid.
    pub fn latency(&self, max_rows: u32) -> Result<Arc<LatencyTable>, Error> {
        let table = match &self.curve {
            Curve::Line { alpha_ms, beta_ms } => {
                LatencyTable::linear(*alpha_ms, *beta_ms, max_rows)
            }
            Curve::Points(points) => {
                let last = points.last().map_or(0, |(rows, _)| *rows);
                let nanos = |rows| nanos(interpolate(points, rows));
                LatencyTable::new((1..=last.min(max_rows)).map(nanos).collect())
            }
        };
        table
            .map(Arc::new)
            .map_err(|invalid| Error::Setting(format!("profile `{}`: {invalid}", self.model)))
    }

    /// The target, ns.
    pub fn target(&self) -> Option<Nanos> {
        self.target_ms.map(nanos)
    }

    /// The line's coefficients (alpha, beta), ms. For a measured curve they are fitted by least
    /// squares.
    pub fn line(&self) -> (f64, f64) {
        match &self.curve {
            Curve::Line { alpha_ms, beta_ms } => (*alpha_ms, *beta_ms),
            Curve::Points(points) => fit(points),
        }
    }
}

/// Milliseconds as nanoseconds.
pub fn nanos(ms: f64) -> Nanos {
    (ms * 1e6).round() as Nanos
}

fn interpolate(points: &[(u32, f64)], rows: u32) -> f64 {
    let above = points.partition_point(|(size, _)| *size < rows);
    let (upper, upper_ms) = points[above.min(points.len() - 1)];
    if above == 0 || upper <= rows {
        return upper_ms;
    }
    let (lower, lower_ms) = points[above - 1];
    let share = f64::from(rows - lower) / f64::from(upper - lower);
    lower_ms + share * (upper_ms - lower_ms)
}

fn fit(points: &[(u32, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| f64::from(*x)).sum::<f64>() / n;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (x, y) in points {
        let x = f64::from(*x) - mean_x;
        covariance += x * (y - mean_y);
        variance += x * x;
    }
    let alpha = if variance > 0.0 {
        covariance / variance
    } else {
        mean_y
    };
    (alpha, mean_y - alpha * mean_x)
}
