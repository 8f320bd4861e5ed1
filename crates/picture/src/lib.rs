//! One picture of the fleet: what the metadata store's view comes to in numbers, once for each change of it.
//!
//! Entry points: [`Snapshot::build`] says what is known of each variant on each kind of device, how soon it could start
//! there, and what may answer an application or a model, as [`sextant_selection`] takes it. [`Picture::new`] has the
//! planner's input ([`Picture::input`]): needs, variants that meet them, types of devices. [`desired`] says what is kept
//! loaded before anyone asks, [`seats`] which workers may leave, [`frontier`] which variants are worth considering.
//!
//! Dispatcher, autoscaler and simulator take these and assemble none of their own: the simulator makes a
//! [`View`](sextant_metadata::View) of its devices. A variant has one number in all of it, its [`Interner`]'s.
//!
//! **Invariant:** no clock, no async, no lock, no I/O. Order never depends on a hash: those tables that are hashed are
//! only looked up.

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
