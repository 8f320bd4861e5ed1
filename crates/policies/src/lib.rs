//! Every decision of Sextant, as pure code.
//!
//! Entry points: [`select`] (which variant answers a query), [`budget`] (whether its application can pay
//! it), [`controller`] (everything that happens
//! to it then), which joins [`schedule`] (which batch runs when) with [`placement`] (which models are
//! loaded on which device), [`parallelism`] (how many requests run
//! side by side, on how many threads), [`profile`] (how long a batch runs),
//! [`health`] (when an instance is overloaded or interfered), [`interference`] (what is done then),
//! [`wanted`] (which variants should be
//! loaded before anyone asks), [`scaling`] (how many devices of each type, and which variants on how
//! many), [`autoscale`] (how many replicas each application has), [`partition`] (which models share a
//! sub-cluster), [`throttle`] (when an offline job may run), [`clock_offset`] (how far two clocks are
//! apart).
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same actions and reasons. Live roles and the
//! simulator drive the same code.

pub mod autoscale;
pub mod budget;
pub mod clock_offset;
pub mod controller;
pub mod health;
pub mod interference;
mod named;
pub mod parallelism;
pub mod partition;
pub mod placement;
pub mod profile;
pub mod scaling;
pub mod schedule;
pub mod select;
pub mod throttle;
pub mod wanted;
