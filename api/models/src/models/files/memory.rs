//! The memory of a form. It is bounded, and counts among the bytes of all bodies in flight.

use sextant_types::Code;

use crate::{ApiState, problem::Problem, room::Reservation, upload::Progress};

/// Most parts of a form, fields and files together: as many as an archive may have files.
const MOST_PARTS: usize = 10_000;

/// Memory of a part in addition to its text: its place in a list or a map, and the allocator's share, bytes.
const PART_BYTES: usize = 128;

/// Memory of a file while it is stored: the piece that was read last, and the piece that is being written into the
/// store, bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The memory of one form. It is given back when this is dropped.
pub struct Memory {
    taken: Reservation,
    progress: Progress,
    most_bytes: usize,
    bytes: usize,
    parts: usize,
}

impl Memory {
    /// The memory of a form whose parser reports to `progress`.
    pub fn of(state: &ApiState, progress: Progress) -> Self {
        Self {
            taken: state.room().take_body(),
            progress,
            most_bytes: state.limits().max_body_bytes,
            bytes: 0,
            parts: 0,
        }
    }

    /// How much of the body has been parsed.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Counts one more part of any kind.
    pub fn begin_part(&mut self) -> Result<(), Problem> {
        self.progress.made();
        self.parts += 1;
        if self.parts > MOST_PARTS {
            let detail = format!(
                "the form has more than `{MOST_PARTS}` parts: send many files as one archive, as the part `model`"
            );
            return Err(Problem::new(Code::TooLarge, detail));
        }
        self.hold(PART_BYTES)
    }

    /// Reserves `bytes` more, for as long as the form is held.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes += bytes;
        if self.bytes > self.most_bytes {
            let detail = format!(
                "the fields of the form take more than `{}` bytes, which `limits.max_body_bytes` allows",
                self.most_bytes
            );
            return Err(Problem::new(Code::TooLarge, detail));
        }
        self.taken.grow(bytes)
    }

    /// Gives all of it back.
    pub fn give_back(&mut self) {
        drop(self.taken.split(usize::MAX));
        self.bytes = 0;
    }

    /// The memory of a file while it is stored.
    pub fn of_file(&mut self) -> Result<Reservation, Problem> {
        self.taken.grow(PIECE_BYTES)?;
        Ok(self.taken.split(PIECE_BYTES))
    }
}
