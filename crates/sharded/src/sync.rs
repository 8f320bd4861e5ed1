//! The primitives of threads: the standard ones, and in this crate's unit tests those of a checker
//! that tries many interleavings.

#[cfg(test)]
pub(crate) use shuttle::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
        mpsc,
    },
    thread,
};
#[cfg(not(test))]
pub(crate) use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
        mpsc,
    },
    thread,
};
