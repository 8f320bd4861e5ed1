//! Placement through its public interface: demand, and what each policy does in small histories.

mod away;
mod demand;
mod pinned;
mod small;
mod unloads;
