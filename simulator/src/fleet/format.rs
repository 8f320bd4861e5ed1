//! Reads the cells of an experiment from a file.
//!
//! Each `[[cell]]` is laid over the rest of the file: its keys replace those of the file, tables key by key and lists
//! as a whole. If there are no cells, the file is the only cell. `docs/simulator.md` lists the keys.

mod rates;
mod resources;
mod variants;

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use sextant_types::{
    Prefer,
    index::{ApplicationIx, VariantIx},
};
use toml::{Table, Value};

use super::{Application, Cell, Class, DeviceType, Experiment, Policy, Scaling, Setting};
use crate::{Error, Jitter, workload::Gaps};
use rates::{LoadFile, RateFile};
use resources::ResourcesFile;

/// Keys of a file that do not belong to its cells.
#[derive(Deserialize)]
struct File {
    name: String,
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default = "one")]
    seeds: u64,
    #[serde(default)]
    cell: Vec<Table>,
    #[serde(default)]
    quick: QuickFile,
}

/// The reduced version.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct QuickFile {
    cells: Vec<String>,
    seeds: Option<u64>,
    set: Table,
}

/// Keys of [`File`].
const FILE_KEYS: [&str; 8] = [
    "kind", "name", "title", "source", "policies", "seeds", "cell", "quick",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellFile {
    name: String,
    #[serde(default)]
    baseline: Option<String>,
    #[serde(default)]
    warm_up_s: f64,
    measured_s: f64,
    #[serde(default)]
    jitter_share: f64,
    #[serde(default)]
    scaling: ScalingFile,
    device: Vec<DeviceFile>,
    /// A CSV file of variants, in addition to those of the applications.
    #[serde(default)]
    variants: Option<String>,
    #[serde(default)]
    application: Vec<ApplicationFile>,
    #[serde(default)]
    load: LoadFile,
    class: Vec<ClassFile>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ScalingFile {
    hold_s: Option<f64>,
    variant_hold_s: Option<f64>,
    idle_s: Option<f64>,
    cold_start_s: Option<f64>,
    idle_unload_s: Option<f64>,
    warm_memory_share: Option<f64>,
    budget_per_hour_usd: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    name: String,
    price_per_hour_usd: f64,
    #[serde(default = "one_slot")]
    slots: u16,
    #[serde(default)]
    slowdown: Vec<f64>,
    memory_mb: u32,
    #[serde(default)]
    start_s: f64,
    #[serde(default)]
    least: u32,
    most: u32,
    #[serde(default)]
    initial: Option<u32>,
    #[serde(default)]
    fixed: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationFile {
    name: String,
    #[serde(default)]
    pinned: Option<String>,
    #[serde(default)]
    resources: ResourcesFile,
    /// Whether its variants say what dominates them.
    #[serde(default)]
    marked: bool,
    #[serde(default)]
    variant: Vec<variants::VariantFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassFile {
    application: String,
    #[serde(default)]
    latency_ms: Option<f64>,
    #[serde(default)]
    min_accuracy: Option<f64>,
    #[serde(default)]
    min_relative_accuracy: Option<f64>,
    #[serde(default)]
    max_cost_per_1k_usd: Option<f64>,
    #[serde(default)]
    prefer: Option<Prefer>,
    /// The share of the load's rate, instead of a rate of its own.
    #[serde(default)]
    share: Option<f64>,
    /// Shape of gamma gaps; Poisson if it is missing.
    #[serde(default)]
    shape: Option<f64>,
    #[serde(default)]
    rate: Option<RateFile>,
}

fn one() -> u64 {
    1
}

fn one_slot() -> u16 {
    1
}

/// Reads an experiment. Paths are relative to `folder`.
pub(super) fn parse(file: &str, text: &str, folder: Option<&Path>) -> Result<Experiment, Error> {
    let wrong = |problem: String| Error::experiment(file, problem.trim_end().to_owned());
    let whole: Table = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let of: File = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let policies = of.policies.iter().map(|name| name.parse::<Policy>());
    let policies: Result<Vec<Policy>, _> = policies.collect();
    let mut policies = policies.map_err(|error| wrong(error.to_string()))?;
    if policies.is_empty() {
        policies = Policy::ALL.to_vec();
    }
    let base: Table = whole
        .into_iter()
        .filter(|(key, _)| !FILE_KEYS.contains(&key.as_str()))
        .collect();
    let own = Table::from_iter([("name".to_owned(), Value::String(of.name.clone()))]);
    let tables = if of.cell.is_empty() {
        vec![own]
    } else {
        of.cell
    };
    let read = |over: &Table| {
        let cells = tables.iter().map(|table| {
            let merged = merged(&merged(&base, table), over);
            cell(merged, folder).map_err(&wrong)
        });
        cells.collect::<Result<Vec<Cell>, Error>>()
    };
    let cells = read(&Table::new())?;
    let mut quick = read(&of.quick.set)?;
    if let Some(name) = of
        .quick
        .cells
        .iter()
        .find(|name| cells.iter().all(|it| it.name != **name))
    {
        return Err(wrong(format!(
            "`quick.cells` names `{name}`, which is not a cell"
        )));
    }
    quick.retain(|cell| of.quick.cells.is_empty() || of.quick.cells.contains(&cell.name));
    Ok(Experiment {
        name: of.name,
        title: of.title,
        source: of.source,
        policies,
        seeds: of.seeds.max(1),
        cells,
        quick,
        quick_seeds: of.quick.seeds.unwrap_or(1).max(1),
    })
}

fn merged(below: &Table, over: &Table) -> Table {
    let mut table = below.clone();
    for (key, value) in over {
        let value = match (table.get(key), value) {
            (Some(Value::Table(below)), Value::Table(over)) => Value::Table(merged(below, over)),
            (_, value) => value.clone(),
        };
        table.insert(key.clone(), value);
    }
    table
}

fn cell(table: Table, folder: Option<&Path>) -> Result<Cell, String> {
    let name = table.get("name").map(Value::to_string).unwrap_or_default();
    let of: CellFile = Value::Table(table)
        .try_into()
        .map_err(|error: toml::de::Error| {
            format!("cell {name}: {}", error.to_string().trim_end())
        })?;
    let name = of.name.clone();
    of.read(folder)
        .map_err(|problem| format!("cell `{name}`: {problem}"))
}

// === impl CellFile ===

impl CellFile {
    fn read(self, folder: Option<&Path>) -> Result<Cell, String> {
        self.check()?;
        let types: Vec<DeviceType> = self.device.iter().map(DeviceFile::read).collect();
        let named = self.application.iter();
        let mut applications: Vec<Application> = named
            .map(|of| Application {
                name: of.name.clone(),
                pinned: None,
                tenant: of.resources.read(),
                is_marked: of.marked,
            })
            .collect();
        let mut variants = Vec::new();
        for (at, of) in (0..).map(ApplicationIx::new).zip(&self.application) {
            for variant in &of.variant {
                variants.push(variant.read(at, &types)?);
            }
        }
        if let Some(path) = &self.variants {
            let text = rates::text(path, folder)?;
            variants::read(&text, path, &types, (&mut applications, &mut variants))
                .map_err(|error| error.to_string())?;
        }
        for (at, of) in (0..).map(ApplicationIx::new).zip(&self.application) {
            let Some(pinned) = &of.pinned else { continue };
            let is =
                |variant: &super::Variant| variant.application == at && variant.name == *pinned;
            let found = variants.iter().position(is);
            let found = found.ok_or_else(|| format!("`{}` has no variant `{pinned}`", of.name))?;
            applications[at.get() as usize].pinned = Some(VariantIx::new(found as u32));
        }
        let load = self.load.rate(folder)?;
        let classes = self.class.iter().map(|class| {
            let is = |of: &Application| of.name == class.application;
            let at = applications.iter().position(is);
            let at =
                at.ok_or_else(|| format!("there is no application `{}`", class.application))?;
            let rate = match (&class.rate, class.share) {
                (Some(rate), None) => rate.read(folder)?,
                (None, share) => load.scaled(share.unwrap_or(1.0)),
                _ => return Err("a class has a `rate` or a `share`, not both".to_owned()),
            };
            Ok(Class {
                application: ApplicationIx::new(at as u32),
                latency_ms: class.latency_ms,
                min_accuracy: class.min_accuracy,
                min_relative_accuracy: class.min_relative_accuracy,
                max_cost_per_1k_usd: class.max_cost_per_1k_usd,
                prefer: class.prefer,
                rate,
                gaps: match class.shape {
                    Some(shape) => Gaps::Gamma { shape },
                    None => Gaps::Exponential,
                },
            })
        });
        let classes = classes.collect::<Result<Vec<Class>, String>>()?;
        Ok(Cell {
            setting: Setting {
                types,
                applications: applications.into_iter().collect(),
                variants: variants.into_iter().collect(),
                classes,
                recorded: self.load.recorded(folder)?,
                scaling: self.scaling.read(),
                jitter: match self.jitter_share {
                    share if share > 0.0 => Jitter::Uniform { spread: share },
                    _ => Jitter::None,
                },
                warm_up_s: self.warm_up_s,
                measured_s: self.measured_s,
                seed: 1,
            },
            name: self.name,
            baseline: self.baseline,
        })
    }

    fn check(&self) -> Result<(), String> {
        let times = [
            ("warm_up_s", self.warm_up_s),
            ("measured_s", self.measured_s),
        ];
        let devices = self.device.iter().flat_map(|of| {
            [
                ("price_per_hour_usd", of.price_per_hour_usd),
                ("start_s", of.start_s),
            ]
        });
        let targets = self.class.iter();
        let targets = targets.flat_map(|of| {
            [
                ("latency_ms", of.latency_ms),
                ("min_relative_accuracy", of.min_relative_accuracy),
                ("max_cost_per_1k_usd", of.max_cost_per_1k_usd),
            ]
        });
        let targets = targets.filter_map(|(key, value)| Some((key, value?)));
        for (key, value) in times.into_iter().chain(devices).chain(targets) {
            if !(0.0..=1e9).contains(&value) {
                return Err(format!("`{key}` is `{value}`: it must be from 0 to 1e9"));
            }
        }
        if !(0.0..1.0).contains(&self.jitter_share) {
            let share = self.jitter_share;
            return Err(format!(
                "`jitter_share` is `{share}`: it must be from 0 to 1"
            ));
        }
        let mut slowdowns = self.device.iter().flat_map(|of| &of.slowdown);
        if let Some(factor) = slowdowns.find(|factor| !(1.0..=1e3).contains(*factor)) {
            return Err(format!(
                "`slowdown` has `{factor}`: batches take as long or longer, so from 1 to 1000 times"
            ));
        }
        let names = self.device.iter().map(|of| &of.name);
        let mut names: Vec<&String> = names.collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two types of devices are called `{}`", twice[0]));
        }
        for of in &self.application {
            let wrong = |problem| format!("application `{}`: {problem}", of.name);
            of.resources.check().map_err(wrong)?;
        }
        let known = |name: &String| name.parse::<Policy>().map_err(|error| error.to_string());
        let fixed = self.device.iter().flat_map(|of| of.fixed.keys());
        fixed.map(known).collect::<Result<Vec<_>, _>>()?;
        if self.device.is_empty() || self.class.is_empty() {
            return Err("there must be a `device` and a `class` at least".to_owned());
        }
        Ok(())
    }
}

impl DeviceFile {
    fn read(&self) -> DeviceType {
        DeviceType {
            name: self.name.clone(),
            price_per_hour_usd: self.price_per_hour_usd,
            slots: self.slots.max(1),
            slowdown: self.slowdown.clone(),
            memory_mb: self.memory_mb,
            start_s: self.start_s,
            least: self.least,
            most: self.most.max(self.least),
            initial: self.initial.unwrap_or(self.least),
            fixed: self.fixed.clone(),
        }
    }
}

impl ScalingFile {
    fn read(&self) -> Scaling {
        let usual = Scaling::default();
        let ms = |seconds: Option<f64>, usual: u64| {
            seconds.map_or(usual, |seconds| (seconds.max(0.0) * 1e3) as u64)
        };
        Scaling {
            hold_ms: ms(self.hold_s, usual.hold_ms),
            variant_hold_ms: ms(self.variant_hold_s, usual.variant_hold_ms),
            idle_ms: ms(self.idle_s, usual.idle_ms),
            cold_start_s: self.cold_start_s,
            idle_unload_ms: ms(self.idle_unload_s, usual.idle_unload_ms),
            warm_memory_share: self.warm_memory_share.unwrap_or(usual.warm_memory_share),
            budget_per_hour_usd: self.budget_per_hour_usd,
        }
    }
}
