//! Applications that are answered by several steps.
//!
//! A [`Definition`] is what users write. [`Graph::new`] checks it against what is registered, and tells the
//! [`sextant_types::Signature`] of the whole. [`Pipelines`] is a dispatcher over another one: a query of an
//! application that is a pipeline goes through its graph (`run`), every other one straight on. So whoever asks a
//! dispatcher, over whichever protocol, asks a pipeline as it asks an application.
//!
//! The definition's form follows what users of other servers ask for: steps in a flat list, tensors named
//! `step.output`, no map where names match, conditions in the Common Expression Language, a step for each row of a
//! tensor. One latency target is of the whole; it is split over the steps by what they took lately, and anew at each
//! (`pace`). Queries that cannot finish are given up before they are served (`flight`), by the rules that the simulator has.

mod condition;
mod counts;
mod definition;
mod draw;
mod flight;
mod graph;
mod memory;
mod nesting;
mod pace;
mod python;
mod run;
mod service;
mod split;
mod whole;

pub use sextant_planning::Interval;

/// The JSON Schema of definitions, draft 2020-12.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Definition).to_value()
}

pub use crate::{
    counts::{Outcome, StepCounts, StepScale},
    definition::{
        Default, Definition, Input, OnError, Share, Sources, Step, StepTargets, Validation,
    },
    graph::{CheckContext, Graph, Invalid, Target},
    memory::{Memory, Part, UnboundedMemory},
    nesting::Nesting,
    python::{Call, CallResult, Function, Interpreter, NoPython, PythonOptions, PythonTensor},
    service::{LoadedPipeline, Pipelines},
    whole::{Measurement, StepShare, Whole},
};
