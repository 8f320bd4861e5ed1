//! Profile sets: device types with prices, and pipelines with the run times of each of their variants on them.
//!
//! A set is a TOML file; three are shipped. Each has four pipelines modelled on those of InferLine (section 4.3):
//! `image-processing`, `video-monitoring`, `social-media`, `tf-cascade`. The published tables are lost, so these are
//! invented. Each file states its proportions.
//!
//! ```
//! let set = sextant_planning::profiles::Set::named("ec2-2018")?;
//! assert_eq!(set.pipeline("tf-cascade")?.graph.steps().len(), 2);
//! # Ok::<(), sextant_planning::profiles::Error>(())
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use sextant_schedule::LatencyTable;

use crate::{Choice, Graph, Invalid, Nanos, Scale, Step};

/// The shipped sets by name.
const SHIPPED: [(&str, &str); 3] = [
    ("ec2-2018", include_str!("../profiles/ec2-2018.toml")),
    ("cloud-2024", include_str!("../profiles/cloud-2024.toml")),
    ("mixed-2025", include_str!("../profiles/mixed-2025.toml")),
];

/// The most rows of a batch in a table.
const MOST_ROWS: u32 = 4096;

/// A profile set.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// What the set is, in one line.
    pub title: String,
    /// Its pipelines, in the order of the file.
    pub pipelines: Vec<Pipeline>,
}

/// A pipeline of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// What the pipeline does, in one line.
    pub title: String,
    /// Its usual latency target, ms.
    pub latency_ms: f64,
    /// Its usual accuracy target, 0 to 1.
    pub min_accuracy: f64,
    /// Its steps.
    pub graph: Graph,
}

/// Why a set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not TOML of this form. The message has the line.
    #[error("{0}")]
    Form(String),
    /// A step names something that does not exist, or has no table that can be used.
    #[error("pipeline `{pipeline}`: {invalid}")]
    Step {
        /// The pipeline's name.
        pipeline: String,
        /// The defect.
        invalid: Invalid,
    },
    /// There is nothing with this name.
    #[error("there is no {kind} `{name}`; known: {known}")]
    Unknown {
        /// The kind of thing that was looked up.
        kind: &'static str,
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    title: String,
    device: BTreeMap<String, f64>,
    pipeline: Vec<PipelineEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PipelineEntry {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default = "default_latency_ms")]
    latency_ms: f64,
    #[serde(default)]
    min_accuracy: f64,
    step: Vec<StepEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepEntry {
    name: String,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default = "one")]
    probability: f64,
    #[serde(default = "one")]
    rows: f64,
    variant: Vec<VariantEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantEntry {
    name: String,
    #[serde(default = "one")]
    accuracy: f64,
    latency: BTreeMap<String, Vec<(u32, f64)>>,
}

fn one() -> f64 {
    1.0
}

fn default_latency_ms() -> f64 {
    150.0
}

/// Names of the shipped sets.
pub fn names() -> [&'static str; 3] {
    SHIPPED.map(|(name, _)| name)
}

/// A table of run times from points (rows, ms), with straight lines between them, up to the last point. If more rows
/// are said to take less time, they take as long as fewer rows.
///
/// # Errors
/// The defect of the points.
pub fn table(points: &[(u32, f64)]) -> Result<LatencyTable, String> {
    let mut points = points.to_vec();
    points.sort_by_key(|(rows, _)| *rows);
    let (Some(&(least, _)), Some(&(most, _))) = (points.first(), points.last()) else {
        return Err("has no point".to_owned());
    };
    if least == 0 || most > MOST_ROWS {
        return Err(format!(
            "has batches from {least} to {most} rows, not 1 to {MOST_ROWS}"
        ));
    }
    if let Some((rows, ms)) = points.iter().find(|(_, ms)| !(*ms > 0.0 && *ms <= 1e7)) {
        return Err(format!(
            "takes `{ms}` ms for {rows} rows, which is not above 0"
        ));
    }
    Ok(LatencyTable::rising(most, |rows| {
        let after = points
            .partition_point(|(known, _)| *known < rows)
            .min(points.len() - 1);
        let (upper, upper_ms) = points[after];
        let (lower, lower_ms) = points[after.saturating_sub(1)];
        let share = match upper > lower && rows > lower {
            true => f64::from(rows - lower) / f64::from(upper - lower),
            false => 1.0,
        };
        ((lower_ms + (upper_ms - lower_ms) * share) * 1e6).round() as Nanos
    }))
}

// === impl Set ===

impl Set {
    /// A shipped set.
    ///
    /// # Errors
    /// If there is none with that name. The message lists the names.
    pub fn named(name: &str) -> Result<Self, Error> {
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        match shipped {
            Some((_, text)) => Self::parse(text),
            None => Err(unknown(
                "profile set",
                name,
                SHIPPED.iter().map(|(name, _)| *name),
            )),
        }
    }

    /// The set in `text`.
    ///
    /// # Errors
    /// If it cannot be parsed, or a pipeline cannot be planned.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text)
            .map_err(|error| Error::Form(error.to_string().trim_end().to_owned()))?;
        let pipelines = file
            .pipeline
            .iter()
            .map(|entry| entry.pipeline(&file.device));
        Ok(Self {
            pipelines: pipelines.collect::<Result<_, _>>()?,
            name: file.name,
            title: file.title,
        })
    }

    /// One of its pipelines.
    ///
    /// # Errors
    /// If there is none with that name. The message lists the names.
    pub fn pipeline(&self, name: &str) -> Result<&Pipeline, Error> {
        let found = self.pipelines.iter().find(|pipeline| pipeline.name == name);
        found.ok_or_else(|| {
            let known = self.pipelines.iter().map(|pipeline| pipeline.name.as_str());
            unknown("pipeline", name, known)
        })
    }
}

fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    Error::Unknown {
        kind,
        name: name.to_owned(),
        known: known.collect::<Vec<_>>().join(", "),
    }
}

// === impl PipelineEntry ===

impl PipelineEntry {
    fn pipeline(&self, devices: &BTreeMap<String, f64>) -> Result<Pipeline, Error> {
        let wrong = |invalid| Error::Step {
            pipeline: self.name.clone(),
            invalid,
        };
        let steps = self.step.iter().map(|step| step.step(&self.step, devices));
        let steps: Result<Vec<Step>, Invalid> = steps.collect();
        let graph = steps.and_then(Graph::new).map_err(wrong)?;
        Ok(Pipeline {
            name: self.name.clone(),
            title: self.title.clone(),
            latency_ms: self.latency_ms,
            min_accuracy: self.min_accuracy,
            graph,
        })
    }
}

// === impl StepEntry ===

impl StepEntry {
    fn step(&self, all: &[Self], devices: &BTreeMap<String, f64>) -> Result<Step, Invalid> {
        let wrong = |why: String| Invalid {
            step: self.name.clone(),
            why,
        };
        let after = self.after.iter().map(|name| {
            let found = all.iter().position(|step| step.name == *name);
            found.ok_or_else(|| wrong(format!("waits for `{name}`, which is no step")))
        });
        let after = after.collect::<Result<_, _>>()?;
        let mut choices = Vec::new();
        for variant in &self.variant {
            for (device, points) in &variant.latency {
                let Some(price) = devices.get(device) else {
                    return Err(wrong(format!(
                        "runs on `{device}`, which has no price under `device`"
                    )));
                };
                let latency = table(points)
                    .map_err(|why| wrong(format!("with `{}` on `{device}` {why}", variant.name)))?;
                choices.push(Choice {
                    variant: variant.name.clone(),
                    accuracy: variant.accuracy,
                    device: device.clone(),
                    price: *price,
                    latency,
                });
            }
        }
        let (probability, rows) = (self.probability, self.rows);
        Ok(Step {
            name: self.name.clone(),
            after,
            scale: Scale { probability, rows },
            choices,
        })
    }
}
