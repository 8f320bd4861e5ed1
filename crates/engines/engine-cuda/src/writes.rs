//! Writes the data of a batch into the staging area, with several threads where that pays.

use std::thread;

use sextant_engine::Error;

/// Bytes from which on several threads write: one core of a processor copies some ten gigabytes a second, the device's
/// bus takes more than fifty.
const SHARED: u64 = 8 << 20;

/// Number of threads in that case.
const THREADS: u64 = 4;

/// Largest piece of one thread. No other thread waits for a piece that one thread has begun.
const PIECE: usize = 1 << 20;

/// Zeros that are written at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Contiguous pieces of memory, from offset 0 on.
#[derive(Default)]
pub(crate) struct Writes<'a> {
    pieces: Vec<(u64, &'a [u8])>,
    end: u64,
}

// === impl Writes ===

impl<'a> Writes<'a> {
    /// Appends these bytes.
    pub fn bytes(&mut self, bytes: &'a [u8]) {
        for piece in bytes.chunks(PIECE) {
            self.pieces.push((self.end, piece));
            self.end += piece.len() as u64;
        }
    }

    /// Appends zeros up to the offset `until`.
    pub fn zeros(&mut self, until: u64) {
        while self.end < until {
            let length = (until - self.end).min(ZEROS.len() as u64);
            self.bytes(&ZEROS[..length as usize]);
        }
    }

    /// Calls `write` with each piece and its offset.
    pub fn carry_out(
        self,
        write: impl Fn(u64, &[u8]) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let all = |pieces: &[(u64, &[u8])]| {
            let mut pieces = pieces.iter();
            pieces.try_for_each(|(offset, bytes)| write(*offset, bytes))
        };
        if self.end < SHARED {
            return all(&self.pieces);
        }
        let from = |share: u64| {
            let first = share * (self.end / THREADS);
            self.pieces.partition_point(|(offset, _)| *offset < first)
        };
        let share = |number: u64| match number + 1 {
            THREADS => &self.pieces[from(number)..],
            next => &self.pieces[from(number)..from(next)],
        };
        thread::scope(|scope| {
            let spawn = |it| thread::Builder::new().spawn_scoped(scope, move || all(it));
            let others = (1..THREADS).map(|number| spawn(share(number)).map_err(|_| number));
            let others: Vec<_> = others.collect();
            let first = all(share(0));
            let panicked = |_| Err(Error::Failed("a copy of inputs panicked".to_owned()));
            let others = others.into_iter().map(|other| match other {
                Ok(thread) => thread.join().unwrap_or_else(panicked),
                // The system gives no further thread, so this thread writes the part.
                Err(number) => all(share(number)),
            });
            others.fold(first, Result::and)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn all_is_written_once_whoever_writes() {
        for (size, pieces) in [(10, 3), (3 << 20, 7)] {
            let contents: Vec<Vec<u8>> = (1..=pieces).map(|of| vec![of; size]).collect();
            let mut writes = Writes::default();
            writes.zeros(5);
            contents.iter().for_each(|content| writes.bytes(content));
            let length = 5 + size * contents.len() + 70_000;
            writes.zeros(length as u64);
            let memory = Mutex::new(vec![9; length]);
            let write = |offset: u64, bytes: &[u8]| {
                let mut memory = memory.lock().expect("nobody panicked");
                memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            writes.carry_out(write).expect("it is written");
            let expected: Vec<u8> = [vec![0; 5], contents.concat(), vec![0; 70_000]].concat();
            assert!(
                memory.into_inner().expect("nobody panicked") == expected,
                "{size}"
            );
        }
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let content = vec![1; 3 << 20];
        let mut writes = Writes::default();
        (0..8).for_each(|_| writes.bytes(&content));
        let write = |offset: u64, _: &[u8]| match offset > 20 << 20 {
            true => Err(Error::Failed("full".to_owned())),
            false => Ok(()),
        };
        assert_eq!(
            writes.carry_out(write),
            Err(Error::Failed("full".to_owned()))
        );
    }
}
