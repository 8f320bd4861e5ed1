//! A container as the engine reports it.

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use sextant_provider::{Machine, MachineId, State};
use sextant_types::{DeviceTypeName, WorkerId};

/// The label with the fleet that it belongs to.
pub(crate) const LABEL_FLEET: &str = "sextant.fleet";
/// The label with its pool.
pub(crate) const LABEL_POOL: &str = "sextant.pool";
/// The label with its name.
pub(crate) const LABEL_MACHINE: &str = "sextant.machine";

/// The text between its name and the time at which it is ended.
const ENDING: &str = ".ending-";

/// A machine's container.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    /// The engine's id.
    pub(crate) id: String,
    /// The fleet's name.
    pub(crate) name: String,
    pool: String,
    since_ms: u64,
    /// When it is ended, ms since the Unix epoch, if it is to end.
    pub(crate) ending_by_ms: Option<u64>,
    pub(crate) life: Life,
    /// The status text, for people.
    pub(crate) status: String,
}

/// The state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Created, and not started.
    Made,
    Runs,
    Ended,
    /// Being removed.
    Leaves,
}

/// The name of a container that is to end.
pub(crate) fn ending_name(name: &str, by_ms: u64) -> String {
    format!("{name}{ENDING}{by_ms}")
}

// === impl Container ===

impl Container {
    /// `None` if it lacks the labels: then it is not a container of the provider.
    pub(crate) fn read(summary: ContainerSummary) -> Option<Self> {
        let mut labels = summary.labels?;
        let name = labels.remove(LABEL_MACHINE)?;
        let names = summary.names.unwrap_or_default();
        let ending_by_ms = names.iter().find_map(|full| ending(full, &name));
        let created_s = summary.created.unwrap_or_default();
        Some(Self {
            id: summary.id?,
            pool: labels.remove(LABEL_POOL)?,
            since_ms: u64::try_from(created_s)
                .unwrap_or_default()
                .saturating_mul(1000),
            ending_by_ms,
            life: life(summary.state),
            status: summary.status.unwrap_or_default(),
            name,
        })
    }

    pub(crate) fn is_of(&self, pool: &DeviceTypeName) -> bool {
        self.pool == pool.as_str()
    }

    /// Whether it has not ended and is not to end.
    pub(crate) fn stays(&self) -> bool {
        self.is_there() && self.ending_by_ms.is_none()
    }

    pub(crate) fn is_there(&self) -> bool {
        matches!(self.life, Life::Made | Life::Runs)
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine {
            id: MachineId(self.name.clone()),
            worker: WorkerId::new(&self.name).ok(),
            state: match (self.ending_by_ms, self.life) {
                (Some(_), _) => State::Ending,
                (None, Life::Made) => State::Starting,
                (None, _) => State::Running,
            },
            since_ms: self.since_ms,
        }
    }
}

/// The time in a name, if the name is the machine's with the mark.
fn ending(full: &str, name: &str) -> Option<u64> {
    let rest = full.strip_prefix('/')?.strip_prefix(name)?;
    rest.strip_prefix(ENDING)?.parse().ok()
}

fn life(state: Option<ContainerSummaryStateEnum>) -> Life {
    use ContainerSummaryStateEnum as Summary;
    match state {
        Some(Summary::CREATED) => Life::Made,
        Some(Summary::EXITED | Summary::DEAD) => Life::Ended,
        Some(Summary::REMOVING) => Life::Leaves,
        _ => Life::Runs,
    }
}
