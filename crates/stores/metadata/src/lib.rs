//! The shared state of a fleet: instances and their state machine, leases of workers, published variants, the desired
//! state, the demand, and the change feed that keeps a dispatcher's index current.
//!
//! Entry points: [`MetadataStore`] (the contract), [`InProcessStore`] (the default), [`apply`] (the state machine),
//! [`View`] (a replica fed by events), [`conformance`] (the suite that every store passes).
//!
//! **Invariant:** this crate takes no decision and reads no clock: time is an argument, in milliseconds since the Unix
//! epoch. No query waits for this crate.

mod costs;
mod demand;
mod desired;
mod error;
mod hardware;
mod in_process;
mod instance;
mod rate;
mod scaling;
mod store;
mod view;

pub mod conformance;

pub use costs::{CostRow, Costs};
pub use demand::{
    AgreementRow, ApplicationDemand, Demand, DeviceDemand, MOST_DEMAND_ROWS, StepDemand, TrialRow,
};
pub use desired::{Count, DesiredState, DesiredVariant, PlannedBatch};
pub use error::Error;
pub use hardware::{DeviceTypes, HardwareWarning};
pub use in_process::{DEFAULT_HISTORY, InProcessStore};
pub use instance::{Command, Instance, InstanceKey, InstanceState, Rejection, apply, carry_out};
pub use rate::{InProcessRates, Rate, RateStore};
pub use scaling::{
    Action, Alternative, Cutback, Decision, Input, Limit, MOST_DECISION_ROWS, MOST_DECISIONS, Pool,
    Subject,
};
pub use store::{
    Candidate, Changes, Cursor, Event, Leader, Lease, MetadataStore, Snapshot, Transition, Worker,
    WorkerRecord,
};
pub use view::View;
