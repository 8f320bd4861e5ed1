//! One picture of the fleet: the metadata store's view in numbers, computed once for each change of it.
//!
//! Entry points: [`Snapshot::build`] computes what is known of each variant on each kind of device, how soon it could
//! start there, and what may answer an application or a model, in the form that [`sextant_selection`] takes.
//! [`Picture::new`] computes the planner's input ([`Picture::input`]): needs, variants that meet them, types of
//! devices. [`desired`] determines what is kept loaded before anyone asks, [`seats`] which workers may leave, and
//! [`frontier`] which variants are worth considering.
//!
//! Dispatcher, autoscaler and simulator use these and build no picture of their own. The simulator makes a
//! [`View`](sextant_metadata::View) of its devices. A variant has the same number everywhere in the picture, that of
//! its [`Interner`].
//!
//! **Invariant:** no clock, no async, no lock, no I/O. Order never depends on a hash: hashed tables are only looked up
//! in.

mod feasible;
pub mod frontier;
mod index;
mod input_size;
mod loading;
mod look;
mod need;
mod picture;
mod pipelines;
pub mod seats;
mod tenants;

pub use crate::{
    index::{
        DEFAULT_SLOT_HOUR_USD, Host, IndexedVariant, Interner, Queueing, Scope, Snapshot,
        Surroundings, Usable,
    },
    input_size::InputSize,
    loading::{ahead_s, desired, in_order},
    look::kept_warm,
    need::{Forecast, Need, StepLoad},
    picture::{Kind, Options, Picture},
    pipelines::{Plans, Staff},
    tenants::Set,
};
