//! Room for what requests hold: their bodies, what is made of them, and answers that wait to be taken.
//!
//! What a body becomes is larger than the body: an empty string in JSON is three bytes, and eighty and more in ONNX
//! Runtime. So a part of the room is taken for each before it is made, and given back when it is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use sextant_types::Code;

use crate::problem::Problem;

/// The memory of all requests.
///
/// The last quarter is for small ones: a few large ones that never end do not shut the small ones out.
#[derive(Debug, Clone)]
pub struct Room(Arc<Space>);

#[derive(Debug)]
struct Space {
    taken_bytes: AtomicUsize,
    max_bytes: usize,
}

/// A body that is smaller than this part of the room is small.
const SMALL_BODY_PART: usize = 4096;

/// What is made of a body is small where it is smaller than this part.
const SMALL_PART: usize = 256;

/// After so long there may be room again, milliseconds.
const RETRY_MS: u64 = 100;

/// A part of the room, which is given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    room: Room,
    bytes: usize,
    /// Up to so many bytes it is a small one.
    small_bytes: usize,
}

/// Bytes and their part of the room.
struct AccountedBytes {
    bytes: Vec<u8>,
    _taken: Reservation,
}

// === impl Room ===

impl Room {
    /// Room for so many bytes.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Space {
            taken_bytes: AtomicUsize::new(0),
            max_bytes,
        }))
    }

    /// A part for what is made of a body; it is empty yet.
    pub fn take(&self) -> Reservation {
        self.part(SMALL_PART)
    }

    /// A part for a body; it is empty yet.
    pub fn take_body(&self) -> Reservation {
        self.part(SMALL_BODY_PART)
    }

    fn part(&self, small_part: usize) -> Reservation {
        Reservation {
            room: self.clone(),
            bytes: 0,
            small_bytes: self.0.max_bytes / small_part,
        }
    }
}

// === impl Reservation ===

impl Reservation {
    /// Bytes of this part.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` of this part, as one of its own.
    pub fn split(&mut self, bytes: usize) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reservation {
            room: self.room.clone(),
            bytes,
            small_bytes: self.small_bytes,
        }
    }

    /// Makes the part so many bytes larger.
    ///
    /// # Errors
    /// [`Code::Overloaded`] where others have the room, [`Code::TooLarge`] where there will never be as much.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let wanted = self.bytes.saturating_add(bytes);
        let space = &self.room.0;
        let most = space.max_bytes;
        let is_small = wanted <= self.small_bytes;
        let open = if is_small { most } else { most - most / 4 };
        let fitting = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= open);
        let order = Ordering::Relaxed;
        let taken = space.taken_bytes.fetch_update(order, order, fitting);
        match taken {
            Ok(_) => {
                self.bytes = wanted;
                Ok(())
            }
            Err(_) if wanted > open => Err(too_much(wanted, open)),
            Err(taken) => Err(overloaded(wanted, taken)),
        }
    }

    /// Makes the part so many bytes smaller, at most as many as it has.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let space = &self.room.0;
        space.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Makes the part as large as this, in either direction.
    ///
    /// # Errors
    /// As [`Reservation::grow`] has them.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Problem> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.give_back(self.bytes - bytes);
                Ok(())
            }
        }
    }

    /// The bytes of an answer, which have this part until the last of them is written or dropped.
    pub fn keep(self, bytes: Vec<u8>) -> Bytes {
        let kept = AccountedBytes {
            bytes,
            _taken: self,
        };
        Bytes::from_owner(kept)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let space = &self.room.0;
        space.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for AccountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn overloaded(wanted: usize, taken: usize) -> Problem {
    let detail = format!(
        "the requests in flight hold `{taken}` bytes, which leaves no room for the `{wanted}` that this one makes"
    );
    Problem::new(Code::Overloaded, detail).retry_after_ms(RETRY_MS)
}

fn too_much(wanted: usize, open: usize) -> Problem {
    let detail = format!(
        "the request makes `{wanted}` bytes, more than the `{open}` that `limits.max_body_bytes_in_flight` leaves to \
         one: send it in parts"
    );
    Problem::new(Code::TooLarge, detail)
}
