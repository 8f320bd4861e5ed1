//! Registration over real stores and a real engine.

mod batches;
mod bed;
mod company;
mod crash;
mod digits;
mod extensions;
mod fits;
mod growth;
mod half;
mod large;
mod manifests;
mod optional;
mod ranges;
mod ranks;
mod refusals;
mod service;
mod unlabelled;
