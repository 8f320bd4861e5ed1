//! Pipelines: applications that several steps answer.
//!
//! Users write a [`Definition`]. [`Graph::new`] checks the definition against what is registered and derives the
//! [`sextant_types::Signature`] of the whole. [`Pipelines`] is a dispatcher over another dispatcher. It runs a query of
//! an application that is a pipeline through the pipeline's graph (`run`) and passes every other query on. So a client
//! queries a pipeline as it queries an application, over every protocol.
//!
//! The form of the definition follows what users of other servers ask for: a flat list of steps, tensors named
//! `step.output`, no map where names match, conditions in the Common Expression Language, a step that runs for each row
//! of a tensor. The pipeline has one latency target. `pace` splits it over the steps by what they took lately, and
//! splits the rest anew at each step. `flight` gives up queries that cannot finish before they are served, by the rules
//! that the simulator uses.

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
