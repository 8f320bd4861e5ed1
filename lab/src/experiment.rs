//! Experiments: settings as data, runs in parallel, figures in a fixed order.
//!
//! An experiment is a TOML file. It has cells, each with a population of models ([`Group`]), devices and a load, and
//! says what is measured in each cell ([`Kind`]). The published experiments are shipped ([`names`],
//! [`Experiment::named`]); [`Experiment::load`] reads a user's own. Keys are the fields of [`Cell`] and [`Group`].
//! `[defaults]` holds for every cell, `[[cell]]` lists cells, each `[[axis]]` multiplies them by its values, and
//! `[quick]` and `[full]` say what the reduced and the long version change:
//!
//! ```toml
//! name = "mine"
//! title = "Goodput of two copies of BERT by the target"
//! kind = "goodput"
//! policies = ["sextant", "eager"]     # all when absent
//! seeds = 3
//! cell_name = "{devices}-{target_ms}ms"
//!
//! [defaults]
//! profile = "symphony-zoo-a100"       # or a path
//! models = ["BERT"]
//! copies = 2
//! devices = 4
//! measured_s = 10.0
//!
//! [[axis]]
//! key = "target_ms"
//! values = [20.0, 40.0]
//! ```
//!
//! [`run`] measures every (cell, policy) of a [`Plan`] on a few threads and hands over [`Record`]s in an order that
//! does not depend on the threads.

mod build;
mod cell;
mod check;
mod format;
mod label;
mod measure;
mod memory;
mod part;
mod resume;
mod run;
mod spread;
mod summary;
mod timeline;

use std::path::{Path, PathBuf};

use sextant_baselines::Policy;

use sextant_simulator::{Error, Record};

pub use cell::{Arrivals, Cell, Criterion, DeviceType, Group, NetworkSpec, Popularity, Segment};
pub use memory::{MemorySpec, Scatter};
pub use run::run;

/// What is measured in each cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The highest rate at which the targets are met: `goodput_rps`, `fluid_bound_rps`,
    /// `clairvoyant_bound_rps`, ..
    Goodput,
    /// Goodput in the fleet's shape, relative to that of the scheduler alone with all devices in one pool:
    /// `fleet_over_pool_ratio`.
    Shapes,
    /// One run at the cell's rate: `satisfaction_share`, `good_rps`, `p99_ms`, `busy_share`, ..
    Sweep,
    /// Runs over the cell's targets: the smallest target that is met, `full_satisfaction_target_ms`.
    Ladder,
    /// Goodput, then runs below and above it: `good_over_peak_share`, ..
    FlatTop,
    /// Runs at multiples of the rate that the cell's first type of device carries alone: where requests run and what
    /// they cost, `dear_share_percent`, `cost_per_1k_usd`, ..
    Prices,
    /// One run at the cell's rates on devices whose memory is limited: cold starts, loads, failures
    /// by reason, over time.
    Timeline,
    /// Requests per window and backend behind round-robin frontends (Symphony, table 2).
    Spread,
}

/// Which part of an experiment to run, and how.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Policies; empty for the experiment's own choice.
    pub policies: Vec<Policy>,
    /// Seeds are `1..=seeds`; 0 for the experiment's own number.
    pub seeds: u64,
    /// Names of the cells; empty for all.
    pub cells: Vec<String>,
    /// Run only this many cells, drawn by `sample_seed`.
    pub sample: Option<usize>,
    /// Seed of the draw.
    pub sample_seed: u64,
    /// The reduced version: seconds instead of minutes.
    pub quick: bool,
    /// The published length, if the usual one is shorter.
    pub full: bool,
    /// Number of parallel runs; 0 for one per core.
    pub threads: usize,
    /// A file of JSON lines. Finished cells are appended to it, and cells in it are not run again.
    pub resume: Option<PathBuf>,
}

/// Events while an experiment runs.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A (cell, policy) has finished with all its seeds; events come in the order in which they finish.
    Progress(Progress<'a>),
    /// A figure. Figures come in the order of the report, as early as this order is known.
    Record(&'a Record),
}

/// The progress of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Units finished, those found in [`Plan::resume`] included.
    pub done: usize,
    /// Units in total.
    pub total: usize,
    /// The cell of the unit that has just ended.
    pub cell: &'a str,
    /// Its policy.
    pub policy: Option<Policy>,
}

/// An experiment as read from its file.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Name.
    pub name: String,
    /// What the experiment shows, in one line.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What is measured.
    pub kind: Kind,
    /// Policies that are compared by default.
    pub policies: Vec<Policy>,
    /// Default number of seeds.
    pub seeds: u64,
    /// The cells, in the order of the report.
    pub cells: Vec<Cell>,
    /// The reduced version.
    pub quick: Variation,
    /// The version of the published length; without cells if that is the usual version.
    pub full: Variation,
}

/// Another version of an experiment.
#[derive(Debug, Clone, Default)]
pub struct Variation {
    /// Its cells.
    pub cells: Vec<Cell>,
    /// Its seeds.
    pub seeds: u64,
}

macro_rules! shipped {
    ($($name:literal,)*) => {
        const SHIPPED: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../experiments/", $name, ".toml"))),)*
        ];
    };
}

shipped! {
    "symphony-table2",
    "symphony-table4",
    "symphony-zoo",
    "symphony-fig4",
    "symphony-fig7",
    "symphony-fig10",
    "symphony-fig13",
    "fleet-shape",
    "prices",
    "clockwork-fig5",
    "clockwork-fig6",
    "clockwork-fig7",
    "clockwork-fig8",
    "clockwork-fig9",
    "clockwork-fig11",
}

/// Names of the shipped experiments.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

// === impl Experiment ===

impl Experiment {
    /// A shipped experiment.
    ///
    /// # Errors
    /// When there is no experiment of that name; the message lists the names.
    pub fn named(name: &str) -> Result<Self, Error> {
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        let (name, text) = shipped.ok_or_else(|| Error::unknown("experiment", name, &names()))?;
        Self::parse(text, name)
    }

    /// The experiment in a file.
    ///
    /// # Errors
    /// When the file cannot be read or parsed; the message names the file and the line or cell.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(source) => Err(Error::Read { file, source }),
        }
    }

    /// The experiment in `text`; `file` names the source in errors.
    ///
    /// # Errors
    /// When the text cannot be parsed.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        format::parse(text, file)
    }
}
