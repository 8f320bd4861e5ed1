//! The scheduler spread over threads: model-local state on many, one that ranks (Symphony, section
//! 4.5).
//!
//! A [`ModelShard`] owns the requests of some models and forms their candidates with the rules of
//! `sextant_policies::schedule`, on a thread of its own and without sharing anything with other
//! shards. A [`Ranker`] owns the devices: it sees one candidate per model, and gives a free device
//! to the first by rank. Between the two lie a [`board`] of latest values (a newer candidate
//! overwrites the last, so the ranker does work per batch, not per request), and two [`ring`]s: for
//! grants, and for what became of them. [`Sharded`] runs one thread each.
//!
//! While a grant is under way its device counts as taken for ever and its model gets no other; the
//! shard uses the grant or gives it back at once. Every thread's loop is a plain `step` function.
//!
//! What differs from the single-threaded core: the devices are of one pool, a batch takes one slot,
//! and a rule sees all devices as idle ([`sextant_policies::schedule::View::pool`]), since the shard
//! does not know better. `eager` and `symphony` don't look at that: without delays they decide here
//! what they decide there, batch by batch. What `sextant` starts before its time on a pool that is
//! mostly idle starts at its time here. Of several slots that may be granted ahead at one instant a
//! model gets one, and the next after it has answered.
//!
//! **Invariant:** shards share nothing. No lock is taken per request, per candidate or per grant,
//! only to sleep and to hand in work from outside.

pub mod board;
mod clock;
mod dirty;
mod links;
mod ranker;
pub mod ring;
mod shard;
mod slot;
mod sync;
mod threads;
mod waker;

#[cfg(test)]
mod interleavings;

pub use board::Candidate;
pub use clock::{Clock, SystemClock};
pub use dirty::DirtySet;
pub use links::{Grant, Lane, Reply, Ticket, lane};
pub use ranker::{Placed, Ranker};
pub use shard::{Batch, ModelShard, Outcome, ShardSettings};
pub use slot::LatestSlot;
pub use threads::{
    Control, Inbox, Message, Parts, Place, RankThread, ShardThread, Sharded, ShardedSettings,
    assemble,
};
pub use waker::Waker;
