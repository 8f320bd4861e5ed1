//! Room for the memory of requests: their bodies, what is made of them, and answers that clients have not taken.
//!
//! A body takes more memory than its text: an empty string takes three bytes in JSON, and eighty and more in ONNX
//! Runtime. So a part of the room is reserved before each allocation, and given back when it is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use sextant_types::Code;

use crate::problem::Problem;

/// The memory of all requests.
///
/// The last quarter is for small reservations: a few large requests that never end do not shut out small ones.
#[derive(Debug, Clone)]
pub struct Room(Arc<Space>);

#[derive(Debug)]
struct Space {
    taken_bytes: AtomicUsize,
    max_bytes: usize,
}

/// A body is small if it is smaller than the room divided by this.
const SMALL_BODY_PART: usize = 4096;

/// What is made of a body is small if it is smaller than the room divided by this.
const SMALL_PART: usize = 256;

/// Time after which there may be room again, milliseconds.
const RETRY_MS: u64 = 100;

/// A part of the room, which is given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    room: Room,
    bytes: usize,
    /// The reservation is small up to this size, bytes.
    small_bytes: usize,
}

/// Bytes and their reservation.
struct AccountedBytes {
    bytes: Vec<u8>,
    _taken: Reservation,
}

// === impl Room ===

impl Room {
    /// Room for `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Space {
            taken_bytes: AtomicUsize::new(0),
            max_bytes,
        }))
    }

    /// An empty reservation for what is made of a body.
    pub fn take(&self) -> Reservation {
        self.part(SMALL_PART)
    }

    /// An empty reservation for a body.
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
    /// Bytes of this reservation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Splits off `bytes` of this reservation.
    pub fn split(&mut self, bytes: usize) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reservation {
            room: self.room.clone(),
            bytes,
            small_bytes: self.small_bytes,
        }
    }

    /// Makes the reservation larger by `bytes`.
    ///
    /// # Errors
    /// [`Code::Overloaded`] if others have the room, [`Code::TooLarge`] if there is never as much room.
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

    /// Makes the reservation smaller by `bytes`, at most to nothing.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let space = &self.room.0;
        space.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Makes the reservation as large as `bytes`, in either direction.
    ///
    /// # Errors
    /// Those of [`Reservation::grow`].
    pub fn resize(&mut self, bytes: usize) -> Result<(), Problem> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.give_back(self.bytes - bytes);
                Ok(())
            }
        }
    }

    /// The bytes of an answer, which hold this reservation until the last of them is written or dropped.
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
