//! Independent renewal processes, merged.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_schedule::{IndexedHeap, Nanos};

use super::{
    gaps::{Gaps, Sampler},
    rate::{Cursor, Rate},
};
use crate::{Arrival, Error, Source};

/// The requests for one model.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// The model.
    pub model: u32,
    /// The distribution of the gaps between its requests.
    pub gaps: Gaps,
    /// Their rate.
    pub rate: Rate,
}

/// A source of independent streams.
#[derive(Debug)]
pub struct OpenLoop {
    streams: Vec<State>,
    /// By stream: the time of its next request.
    next: IndexedHeap<u32>,
}

#[derive(Debug)]
struct State {
    model: u32,
    sampler: Sampler,
    cursor: Cursor,
    random: ChaCha8Rng,
}

/// The generator of the `at`-th entity.
pub(super) fn child(seed: u64, at: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(at + 1);
    random
}

// === impl OpenLoop ===

impl OpenLoop {
    /// Streams from time 0 on.
    ///
    /// # Errors
    /// When a rate is negative or not finite, or a shape is not more than zero.
    pub fn new(streams: &[Stream], seed: u64) -> Result<Self, Error> {
        let mut source = Self {
            streams: Vec::with_capacity(streams.len()),
            next: IndexedHeap::default(),
        };
        for (at, stream) in streams.iter().enumerate() {
            let mut state = State {
                model: stream.model,
                sampler: stream.gaps.sampler()?,
                cursor: Cursor::new(&stream.rate)?,
                random: child(seed, at as u64),
            };
            // The first request comes after a part of a gap, because otherwise all streams would
            // begin together.
            let phase: f64 = state.random.random();
            let first = phase * state.sampler.sample(&mut state.random);
            if let Some(first) = state.cursor.advance(first) {
                source.next.set(at as u32, first as Nanos);
            }
            source.streams.push(state);
        }
        Ok(source)
    }
}

impl Source for OpenLoop {
    #[inline]
    fn peek(&mut self) -> Option<Nanos> {
        self.next.first().map(|(at, _)| at)
    }

    fn next(&mut self) -> Arrival {
        let (at, id) = self.next.first().expect("asked only when there is a next");
        let stream = &mut self.streams[id as usize];
        let gap = stream.sampler.sample(&mut stream.random);
        match stream.cursor.advance(gap) {
            Some(next) => self.next.set(id, next as Nanos),
            None => {
                self.next.remove(id);
            }
        }
        Arrival {
            at,
            model: stream.model,
            client: 0,
        }
    }
}
