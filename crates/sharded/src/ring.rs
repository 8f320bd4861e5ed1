//! Messages of a few words from one thread to another, in order, of a bounded number.

use crate::sync::{Arc, AtomicU64, Ordering};

/// The end that puts messages in.
#[derive(Debug)]
pub struct Sender<const W: usize> {
    ring: Arc<Ring<W>>,
    /// Messages sent so far.
    tail: u64,
    /// Messages that were taken when it was last looked at.
    head: u64,
}

/// The end that takes them out.
#[derive(Debug)]
pub struct Receiver<const W: usize> {
    ring: Arc<Ring<W>>,
    /// Messages taken so far.
    head: u64,
}

#[derive(Debug)]
struct Ring<const W: usize> {
    cells: Box<[[AtomicU64; W]]>,
    head: Line,
    tail: Line,
}

/// On a cache line of its own: the two ends belong to different threads.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

/// A ring for at least `capacity` messages.
pub fn ring<const W: usize>(capacity: usize) -> (Sender<W>, Receiver<W>) {
    let count = capacity.max(1).next_power_of_two();
    let cell = |_| std::array::from_fn(|_| AtomicU64::new(0));
    let ring = Arc::new(Ring {
        cells: (0..count).map(cell).collect(),
        head: Line(AtomicU64::new(0)),
        tail: Line(AtomicU64::new(0)),
    });
    let sender = Sender {
        ring: Arc::clone(&ring),
        tail: 0,
        head: 0,
    };
    (sender, Receiver { ring, head: 0 })
}

// === impl Sender ===

impl<const W: usize> Sender<W> {
    /// Puts a message in; `false` when there is no room.
    #[inline]
    pub fn send(&mut self, message: [u64; W]) -> bool {
        let count = self.ring.cells.len() as u64;
        if self.tail - self.head == count {
            self.head = self.ring.head.0.load(Ordering::Acquire);
            if self.tail - self.head == count {
                return false;
            }
        }
        let cell = &self.ring.cells[(self.tail % count) as usize];
        for (slot, word) in cell.iter().zip(message) {
            slot.store(word, Ordering::Relaxed);
        }
        self.tail += 1;
        self.ring.tail.0.store(self.tail, Ordering::Release);
        true
    }
}

// === impl Receiver ===

impl<const W: usize> Receiver<W> {
    /// Takes the oldest message.
    #[inline]
    pub fn receive(&mut self) -> Option<[u64; W]> {
        if self.is_empty() {
            return None;
        }
        let count = self.ring.cells.len() as u64;
        let cell = &self.ring.cells[(self.head % count) as usize];
        let message = std::array::from_fn(|at| cell[at].load(Ordering::Relaxed));
        self.head += 1;
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(message)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.tail.0.load(Ordering::Acquire) == self.head
    }
}
