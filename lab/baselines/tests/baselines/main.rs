//! The published baselines that keep their own queues: Clockwork, Nexus, Clipper. The tests check properties over
//! random histories on a virtual clock, and the typical behaviour of each policy.

mod clipper;
mod clockwork;
mod histories;
mod nexus;
mod world;
