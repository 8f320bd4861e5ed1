//! The published baselines that keep their own queues: Clockwork, Nexus, Clipper. Properties over
//! random histories on a virtual clock, and the signature of each.

mod clipper;
mod clockwork;
mod histories;
mod nexus;
mod world;
