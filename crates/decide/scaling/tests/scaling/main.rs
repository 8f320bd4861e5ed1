//! Plans: which devices, and what runs on them.

mod awaited;
mod batches;
mod measured;
mod packing;
mod preferred;
mod presence;
mod problems;
mod programs;
mod reserved;
mod scaler;
mod shared;
mod symphony;
