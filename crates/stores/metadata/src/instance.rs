//! The state machine of an instance (INFaaS section 1.3, with the states a real system adds).
//!
//! ```text
//! inactive -> loading -> active <-> overloaded / interfered -> draining -> inactive
//!    ^  failed <-'          (any state that holds a model may fail) ------> failed
//! ```
//!
//! The machine is total: [`apply`] answers each state and command with the next record or with a reason. Hysteresis
//! (when to report an overload) is the task of the reporter, not of the machine.

use std::fmt;

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, VariantId, WorkerId};

use crate::{Error, Transition};

/// A variant on a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    /// The variant that is loaded, or is to be loaded.
    pub variant: VariantId,
    /// The worker that holds it.
    pub worker: WorkerId,
}

impl InstanceKey {
    /// Pairs a variant with a worker.
    pub fn new(variant: VariantId, worker: WorkerId) -> Self {
        Self { variant, worker }
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.variant, self.worker)
    }
}

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// Not loaded; it holds nothing.
    Inactive,
    /// It is being fetched and loaded.
    Loading,
    /// Loaded, with room for more work.
    Active,
    /// Its worker has no more room or time. It is selected after active instances.
    Overloaded,
    /// Not overloaded, but slower than its profile. It is selected after active instances.
    Interfered,
    /// It finishes the batches that it has accepted.
    Draining,
    /// It could not be loaded, or it broke.
    Failed,
}

impl InstanceState {
    /// Every state, in order of declaration.
    pub const ALL: [Self; 7] = [
        Self::Inactive,
        Self::Loading,
        Self::Active,
        Self::Overloaded,
        Self::Interfered,
        Self::Draining,
        Self::Failed,
    ];

    /// The lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Loading => "loading",
            Self::Active => "active",
            Self::Overloaded => "overloaded",
            Self::Interfered => "interfered",
            Self::Draining => "draining",
            Self::Failed => "failed",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the model is in memory and runs batches: active, overloaded, interfered.
    pub fn is_serving(self) -> bool {
        matches!(self, Self::Active | Self::Overloaded | Self::Interfered)
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The record of one instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The variant and the worker.
    pub key: InstanceKey,
    /// The application that the variant answers for.
    pub application: ApplicationId,
    /// The state.
    pub state: InstanceState,
    /// Grows by one with each transition; never used twice for the same key.
    pub version: u64,
    /// When it entered its state, ms since the Unix epoch.
    pub since_ms: u64,
    /// When its lease lapses unless its worker's heartbeat renews it, ms since the Unix epoch. Renewal is not a
    /// transition: it changes neither the version nor the state.
    pub lease_until_ms: u64,
    /// Share of its worker's device time that its online batches take, 0 to 1.
    pub load: f64,
    /// The reason for its state, if there is one.
    pub reason: Option<String>,
}

impl Instance {
    /// An instance that was never loaded, to which the first command is applied. `version` is one that the key has left
    /// behind, 0 for a new key.
    pub fn absent(key: InstanceKey, application: ApplicationId, version: u64) -> Self {
        Self {
            key,
            application,
            state: InstanceState::Inactive,
            version,
            since_ms: 0,
            lease_until_ms: 0,
            load: 0.0,
            reason: None,
        }
    }
}

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Begin to load it.
    Load,
    /// It is ready to run.
    Loaded,
    /// It could not be loaded.
    LoadFailed {
        /// The reason.
        reason: String,
    },
    /// Its worker has no more room or time.
    Overload,
    /// It is slower than its profile without being overloaded.
    Interfere,
    /// It is back to normal.
    Recover,
    /// Accept no more batches and finish the accepted ones.
    Drain,
    /// Its memory is given back.
    Unloaded,
    /// It broke after it was loaded.
    Fail {
        /// The reason.
        reason: String,
    },
    /// Its worker let the lease lapse.
    Expire,
    /// Its measured load; changes no state.
    Report {
        /// Share of its worker's device time that its online batches take, 0 to 1.
        load: f64,
    },
}

impl Command {
    /// `load`, `load_failed`, ..
    pub fn name(&self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Loaded => "loaded",
            Self::LoadFailed { .. } => "load_failed",
            Self::Overload => "overload",
            Self::Interfere => "interfere",
            Self::Recover => "recover",
            Self::Drain => "drain",
            Self::Unloaded => "unloaded",
            Self::Fail { .. } => "fail",
            Self::Expire => "expire",
            Self::Report { .. } => "report",
        }
    }
}

/// Why the state machine refused a command; the instance is unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The state has no such transition.
    #[error("instance `{key}` is {state}: `{command}` does not apply")]
    State {
        /// The instance.
        key: InstanceKey,
        /// The present state.
        state: InstanceState,
        /// The refused command.
        command: &'static str,
    },
    /// The lease has not lapsed.
    #[error("the lease of instance `{key}` is valid until `{lease_until_ms}` (now `{now_ms}`)")]
    LeaseHeld {
        /// The instance.
        key: InstanceKey,
        /// End of the lease, ms since the Unix epoch.
        lease_until_ms: u64,
        /// The given time, ms since the Unix epoch.
        now_ms: u64,
    },
    /// A load that is not a number from 0 to 1.
    #[error("instance `{key}` reports a load of `{load}`: it must be from 0 to 1")]
    Load {
        /// The instance.
        key: InstanceKey,
        /// The refused value.
        load: f64,
    },
}

/// The state machine: the record after `command` at `now_ms`, with the next version, or the reason for a refusal.
pub fn apply(current: &Instance, command: &Command, now_ms: u64) -> Result<Instance, Rejection> {
    check(current, command, now_ms)?;
    let state = successor(current.state, command).ok_or_else(|| Rejection::State {
        key: current.key.clone(),
        state: current.state,
        command: command.name(),
    })?;
    let moved = state != current.state;
    Ok(Instance {
        key: current.key.clone(),
        application: current.application.clone(),
        state,
        version: current.version + 1,
        since_ms: if moved { now_ms } else { current.since_ms },
        lease_until_ms: current.lease_until_ms,
        load: load_after(current, state, command),
        reason: if moved {
            reason(command)
        } else {
            current.reason.clone()
        },
    })
}

/// [`apply`] for the application that a transition names. An instance belongs to the application for which it was
/// loaded. Once it holds nothing, it belongs to the application that loads it next: a deleted model may be registered
/// for another application, and its variants then have the same names.
pub fn carry_out(
    current: &Instance,
    transition: &Transition,
    now_ms: u64,
) -> Result<Instance, Error> {
    let command = &transition.command;
    if current.application == transition.application {
        return Ok(apply(current, command, now_ms)?);
    }
    let holds_nothing = matches!(
        current.state,
        InstanceState::Inactive | InstanceState::Failed
    );
    if !holds_nothing || !matches!(command, Command::Load) {
        return Err(Error::OtherApplication {
            key: current.key.clone(),
            application: current.application.clone(),
        });
    }
    let taken_over = Instance {
        application: transition.application.clone(),
        ..current.clone()
    };
    Ok(apply(&taken_over, command, now_ms)?)
}

fn check(current: &Instance, command: &Command, now_ms: u64) -> Result<(), Rejection> {
    match command {
        Command::Expire if now_ms < current.lease_until_ms => Err(Rejection::LeaseHeld {
            key: current.key.clone(),
            lease_until_ms: current.lease_until_ms,
            now_ms,
        }),
        Command::Report { load } if !(0.0..=1.0).contains(load) => Err(Rejection::Load {
            key: current.key.clone(),
            load: *load,
        }),
        _ => Ok(()),
    }
}

/// The transition table. Overloaded and interfered may follow each other directly, because the monitor that reports
/// them sees one condition per period.
fn successor(state: InstanceState, command: &Command) -> Option<InstanceState> {
    use InstanceState::{Active, Draining, Failed, Inactive, Interfered, Loading, Overloaded};
    match (command, state) {
        (Command::Load, Inactive | Failed) => Some(Loading),
        (Command::Loaded, Loading) => Some(Active),
        (Command::LoadFailed { .. }, Loading) => Some(Failed),
        (Command::Overload, Active | Interfered) => Some(Overloaded),
        (Command::Interfere, Active | Overloaded) => Some(Interfered),
        (Command::Recover, Overloaded | Interfered) => Some(Active),
        (Command::Drain, Active | Overloaded | Interfered) => Some(Draining),
        (Command::Unloaded, Draining | Failed) => Some(Inactive),
        (Command::Fail { .. }, Active | Overloaded | Interfered | Draining) => Some(Failed),
        (Command::Expire, Loading | Active | Overloaded | Interfered | Draining | Failed) => {
            Some(Inactive)
        }
        (Command::Report { .. }, Active | Overloaded | Interfered | Draining) => Some(state),
        _ => None,
    }
}

fn load_after(current: &Instance, state: InstanceState, command: &Command) -> f64 {
    match command {
        Command::Report { load } => *load,
        _ if state.is_serving() || state == InstanceState::Draining => current.load,
        _ => 0.0,
    }
}

fn reason(command: &Command) -> Option<String> {
    match command {
        Command::LoadFailed { reason } | Command::Fail { reason } => Some(reason.clone()),
        Command::Expire => Some("the worker's lease lapsed".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
