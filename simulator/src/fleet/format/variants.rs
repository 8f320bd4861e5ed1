//! Variants, in the file of the experiment or in a table of their own.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use sextant_scaling::tenants::Tenant;
use sextant_schedule::LatencyTable;
use sextant_types::{BatchLatency, Digest, Precision, index::ApplicationIx};

use crate::{
    Error,
    fleet::{Application, DeviceType, Entry, Measurement, Variant},
    profiles::{Curve, CurveColumns, Profile},
    table::{Row, Table},
};

/// Shipped tables.
pub(super) const SHIPPED: [(&str, &str); 1] = [(
    "infaas-architectures",
    include_str!("../../../data/infaas_variants.csv"),
)];

/// Rows of the largest batch if nothing specifies it: that of INFaaS.
const MAX_ROWS: u32 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariantFile {
    name: String,
    accuracy: f64,
    #[serde(default)]
    agreement: bool,
    memory_mb: u32,
    load_ms: f64,
    #[serde(default = "one")]
    slots: u16,
    #[serde(default = "max_rows")]
    max_rows: u32,
    #[serde(default)]
    registered: EntryFile,
    /// By the name of a type of device.
    on: BTreeMap<String, CurveFile>,
}

/// What a registry knows of it in addition, under the names of the API.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct EntryFile {
    model: Option<String>,
    engine: Option<String>,
    precision: Option<String>,
    artefact: Option<String>,
    weights_bytes: u64,
    peak_memory_bytes: Option<u64>,
    value: Option<f64>,
    dominated_by: Option<String>,
    measured_on: Option<String>,
    apart: bool,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum CurveFile {
    /// `alpha_ms * rows + beta_ms`.
    Line { alpha_ms: f64, beta_ms: f64 },
    /// Measured `[rows, ms]`.
    Points { points: Vec<(u32, f64)> },
    /// Measured `[rows, median in ms, 99th percentile in ms]`, as in a registry.
    Measured {
        measured: Vec<(u32, f64, f64)>,
        load_ms: f64,
        saturation_rps: f64,
    },
}

fn one() -> u16 {
    1
}

fn max_rows() -> u32 {
    MAX_ROWS
}

// === impl VariantFile ===

impl VariantFile {
    pub(super) fn read(
        &self,
        application: ApplicationIx,
        types: &[DeviceType],
    ) -> Result<Variant, String> {
        let mut variant = Variant {
            name: self.name.clone(),
            application,
            accuracy: self.accuracy,
            agreement: self.agreement,
            memory_mb: self.memory_mb,
            load_ms: self.load_ms,
            slots: self.slots.max(1),
            on: vec![None; types.len()],
            registered: self.registered.read(types)?,
        };
        variant.registered.measured = vec![None; types.len()];
        for (name, curve) in &self.on {
            let at = types.iter().position(|of| of.name == *name);
            let at = at.ok_or_else(|| {
                format!(
                    "variant `{}` names `{name}`, which is not a device",
                    self.name
                )
            })?;
            let table = table(&self.name, curve.read(&self.name)?, self.max_rows);
            variant.on[at] = Some(table.map_err(|error| error.to_string())?);
            variant.registered.measured[at] = curve.measured();
        }
        check(&variant)?;
        Ok(variant)
    }
}

impl EntryFile {
    fn read(&self, types: &[DeviceType]) -> Result<Entry, String> {
        let usual = Entry::default();
        let on = self.measured_on.as_ref();
        let artefact = self.artefact.as_deref().map(str::parse::<Digest>);
        Ok(Entry {
            model: self.model.clone(),
            engine: self.engine.clone().unwrap_or(usual.engine),
            precision: match &self.precision {
                Some(name) => Precision::parse(name)
                    .ok_or_else(|| format!("there is no `precision` `{name}`"))?,
                None => usual.precision,
            },
            artefact: artefact.transpose().map_err(|error| error.to_string())?,
            weights_bytes: self.weights_bytes,
            peak_memory_bytes: self.peak_memory_bytes,
            value: self.value,
            dominated_by: self.dominated_by.clone(),
            // It may have been a type that is not in the file.
            measured_on: on.and_then(|on| types.iter().position(|of| of.name == *on)),
            apart: self.apart,
            measured: Vec::new(),
        })
    }
}

impl CurveFile {
    fn read(&self, name: &str) -> Result<Curve, String> {
        match self {
            Self::Line { alpha_ms, beta_ms } => Ok(Curve::Line {
                alpha_ms: *alpha_ms,
                beta_ms: *beta_ms,
            }),
            Self::Points { points } => {
                let rising = points
                    .windows(2)
                    .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
                match points.first() {
                    Some((1, _)) if rising => Ok(Curve::Points(points.clone())),
                    _ => Err(format!(
                        "`points` of `{name}` must begin with one row and rise"
                    )),
                }
            }
            Self::Measured { measured, .. } => medians(name, measured).map(Curve::Points),
        }
    }

    fn measured(&self) -> Option<Measurement> {
        let Self::Measured {
            measured,
            load_ms,
            saturation_rps,
        } = self
        else {
            return None;
        };
        let batches = measured.iter();
        let batches = batches.map(|(batch, p50_ms, p99_ms)| BatchLatency {
            batch: *batch,
            p50_ms: *p50_ms,
            p99_ms: *p99_ms,
            mean_ms: *p50_ms,
            samples: 1,
        });
        Some(Measurement {
            batches: batches.collect(),
            load_ms: *load_ms,
            saturation_rps: *saturation_rps,
        })
    }
}

/// Medians by rows, which begin with one row and never decrease: the time that a batch takes.
fn medians(name: &str, measured: &[(u32, f64, f64)]) -> Result<Vec<(u32, f64)>, String> {
    let rises = measured.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let valid = |(rows, p50_ms, p99_ms): &(u32, f64, f64)| {
        *rows > 0 && [p50_ms, p99_ms].iter().all(|ms| (0.0..=1e9).contains(*ms))
    };
    let first = measured.first().filter(|_| rises);
    let Some((rows, ms, _)) = first.filter(|_| measured.iter().all(valid)) else {
        return Err(format!(
            "`measured` of `{name}` must have rows that rise, and times from 0 to 1e9"
        ));
    };
    let lone = (*rows > 1).then_some((1, *ms));
    let mut longest: f64 = 0.0;
    let points = measured.iter().map(|(rows, ms, _)| {
        longest = longest.max(*ms);
        (*rows, longest)
    });
    Ok(lone.into_iter().chain(points).collect())
}

fn table(name: &str, curve: Curve, max_rows: u32) -> Result<Arc<LatencyTable>, Error> {
    let profile = Profile {
        model: name.to_owned(),
        curve,
        target_ms: None,
        load_ms: None,
        weights_mb: None,
    };
    profile.latency(max_rows.clamp(1, 4096))
}

fn check(variant: &Variant) -> Result<(), String> {
    let values = [("accuracy", variant.accuracy), ("load_ms", variant.load_ms)];
    // An error is an accuracy below zero.
    let least = |key: &str| if key == "accuracy" { -1e9 } else { 0.0 };
    match values
        .iter()
        .find(|(key, value)| !(least(key)..=1e9).contains(value))
    {
        Some((key, value)) => Err(format!(
            "`{key}` of `{}` is `{value}`: it must be from {:e} to 1e9",
            variant.name,
            least(key)
        )),
        None => Ok(()),
    }
}

/// Adds the variants of a table, with one line for each variant on each type of device, and applications that only the
/// table names. Lines about devices that do not exist are skipped.
pub(super) fn read(
    text: &str,
    file: &str,
    types: &[DeviceType],
    (applications, variants): (&mut Vec<Application>, &mut Vec<Variant>),
) -> Result<(), Error> {
    let table = Table::read(text, file)?;
    let columns = Columns {
        application: table.column("application")?,
        variant: table.column("variant")?,
        accuracy: table.column("accuracy")?,
        memory_mb: table.column("memory_mb")?,
        load_ms: table.column("load_ms")?,
        device: table.column("device")?,
        max_rows: table.find("max_rows"),
        slots: table.find("slots"),
        curve: CurveColumns::of(&table)?,
    };
    for row in table.rows() {
        let device = row.text(columns.device);
        let Some(kind) = types.iter().position(|of| of.name == device) else {
            continue;
        };
        let name = row.text(columns.application);
        let application = applications.iter().position(|of| of.name == name);
        let application = application.unwrap_or_else(|| {
            applications.push(Application {
                name: name.to_owned(),
                pinned: None,
                tenant: Tenant::default(),
                is_marked: false,
            });
            applications.len() - 1
        });
        let application = ApplicationIx::new(application as u32);
        let of = columns.read(&row, application, (kind, types.len()))?;
        let known = variants
            .iter_mut()
            .find(|known| known.application == of.application && known.name == of.name);
        match known {
            Some(known) => known.on[kind].clone_from(&of.on[kind]),
            None => variants.push(of),
        }
    }
    Ok(())
}

/// The positions of the values.
struct Columns {
    application: usize,
    variant: usize,
    accuracy: usize,
    memory_mb: usize,
    load_ms: usize,
    device: usize,
    max_rows: Option<usize>,
    slots: Option<usize>,
    curve: CurveColumns,
}

impl Columns {
    fn read(
        &self,
        row: &Row<'_>,
        application: ApplicationIx,
        (kind, types): (usize, usize),
    ) -> Result<Variant, Error> {
        let name = row.text(self.variant);
        let number = |at: Option<usize>, usual: f64| at.map_or(Ok(usual), |at| row.positive(at));
        let max_rows = number(self.max_rows, f64::from(MAX_ROWS))?;
        let mut on = vec![None; types];
        on[kind] = Some(table(name, self.curve.read(row)?, max_rows as u32)?);
        Ok(Variant {
            name: name.to_owned(),
            application,
            accuracy: row.not_negative(self.accuracy)?,
            agreement: false,
            memory_mb: row.positive(self.memory_mb)?.ceil() as u32,
            load_ms: row.not_negative(self.load_ms)?,
            slots: number(self.slots, 1.0)? as u16,
            on,
            registered: Entry::default(),
        })
    }
}
