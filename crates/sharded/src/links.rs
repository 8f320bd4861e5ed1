//! What a shard and the ranker tell each other.

use sextant_policies::schedule::Nanos;

use crate::{
    board::{Reader, Writer, board},
    ring::{Receiver, Sender, ring},
};

/// Names a batch on its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// The slot.
    pub slot: u32,
    /// Counts up; never used twice.
    pub number: u64,
}

/// A device is a model's for one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The model; its number within the shard on the shard's side.
    pub model: u32,
    /// Which slot, for which batch.
    pub ticket: Ticket,
    /// When the slot is free; 0 when it is idle.
    pub free_at: Nanos,
}

/// What became of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// A batch was sent; it should end then.
    Used {
        /// ns.
        until: Nanos,
    },
    /// There was no batch to send.
    Unused {
        /// From when there will be one for this slot if nothing else happens: a slot that is free
        /// soon can be too early for a small batch, which needs less time to be sent than a large
        /// one. [`sextant_policies::schedule::NEVER`] when there is nothing.
        again: Nanos,
    },
    /// The batch has left its device. Comes after `Used`.
    Done,
}

/// Both ends of the connection of one shard.
#[derive(Debug)]
pub struct Lane {
    /// For the shard: where candidates are written.
    pub writer: Writer,
    /// For the shard: where replies are put.
    pub replies: Sender<3>,
    /// For the shard: where grants come from.
    pub grants: Receiver<3>,
    /// For the ranker: where candidates are read.
    pub reader: Reader,
    /// For the ranker: where replies come from.
    pub replied: Receiver<3>,
    /// For the ranker: where grants are put.
    pub granted: Sender<3>,
}

/// The connection of a shard of `models` models.
pub fn lane(models: u32) -> Lane {
    let (writer, reader) = board(models);
    // A model has one grant under way, so grants always have room. Replies that find none wait.
    let (granted, grants) = ring(models as usize);
    let (replies, replied) = ring(2 * models as usize);
    Lane {
        writer,
        replies,
        grants,
        reader,
        replied,
        granted,
    }
}

// === impl Grant ===

impl Grant {
    pub(crate) fn words(self) -> [u64; 3] {
        let Ticket { slot, number } = self.ticket;
        [pair(self.model, slot), number, self.free_at]
    }

    pub(crate) fn from_words([pair, number, free_at]: [u64; 3]) -> Self {
        let (model, slot) = split(pair);
        Self {
            model,
            ticket: Ticket { slot, number },
            free_at,
        }
    }
}

// === impl Reply ===

impl Reply {
    pub(crate) fn words(self, model: u32, ticket: Ticket) -> [u64; 3] {
        let (what, at) = match self {
            Self::Used { until } => (0, until),
            Self::Unused { again } => (1, again),
            Self::Done => (2, 0),
        };
        // The number shares its word: 2^62 batches are not reached.
        [pair(model, ticket.slot), ticket.number << 2 | what, at]
    }

    pub(crate) fn from_words([pair, what, at]: [u64; 3]) -> (u32, Ticket, Self) {
        let (model, slot) = split(pair);
        let number = what >> 2;
        let reply = match what & 3 {
            0 => Self::Used { until: at },
            1 => Self::Unused { again: at },
            _ => Self::Done,
        };
        (model, Ticket { slot, number }, reply)
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

fn split(pair: u64) -> (u32, u32) {
    (pair as u32, (pair >> 32) as u32)
}
