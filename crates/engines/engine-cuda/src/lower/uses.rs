//! Readers and writers of the buffers of a draft.

use std::collections::BTreeMap;

use super::{Content, Draft, OFFSET_BITS};
use crate::operation::{Address, Symbolic};

/// The readers and writers of each buffer.
pub(super) struct Uses {
    /// The operations that write each buffer.
    writers: BTreeMap<u64, Vec<usize>>,
    /// The operations that read each buffer, once for each operand.
    readers: BTreeMap<u64, Vec<usize>>,
    /// How often each buffer is read, outputs of the graph included.
    reads: BTreeMap<u64, usize>,
}

// === impl Uses ===

impl Uses {
    pub fn new(draft: &Draft) -> Self {
        let mut uses = Self {
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            reads: BTreeMap::new(),
        };
        for (index, operation) in draft.operations.iter().enumerate() {
            let written = buffer(operation.writes().start);
            uses.writers.entry(written).or_default().push(index);
            for read in operation.reads() {
                let read = buffer(read.start);
                uses.readers.entry(read).or_default().push(index);
                *uses.reads.entry(read).or_default() += 1;
            }
        }
        for port in &draft.outputs {
            *uses.reads.entry(buffer(port.address)).or_default() += 1;
        }
        uses
    }

    /// The only operation that writes a buffer.
    pub fn only_writer(&self, address: Address<Symbolic>) -> Option<usize> {
        match self.writers.get(&buffer(address))?.as_slice() {
            [writer] => Some(*writer),
            _ => None,
        }
    }

    /// The only operation that writes a buffer, if the buffer is read once.
    pub fn only_producer(&self, address: Address<Symbolic>) -> Option<usize> {
        let producer = self.only_writer(address)?;
        (self.reads.get(&buffer(address)) == Some(&1)).then_some(producer)
    }

    /// The only operation that reads a buffer, if the buffer is no output.
    pub fn only_reader(&self, address: Address<Symbolic>) -> Option<usize> {
        let [reader] = self.readers.get(&buffer(address))?.as_slice() else {
            return None;
        };
        (self.reads.get(&buffer(address)) == Some(&1)).then_some(*reader)
    }
}

/// Drops operations whose results nothing reads any more.
pub(super) fn drop_unread(draft: &mut Draft) {
    let mut reads = Uses::new(draft).reads;
    let mut kept = Vec::with_capacity(draft.operations.len());
    for operation in std::mem::take(&mut draft.operations).into_iter().rev() {
        let written = buffer(operation.writes().start);
        let scratch = draft.buffers[written as usize].content == Content::Activation;
        if scratch && reads.get(&written).is_none_or(|count| *count == 0) {
            for read in operation.reads() {
                let count = reads.get_mut(&buffer(read.start));
                count.into_iter().for_each(|count| *count -= 1);
            }
            continue;
        }
        kept.push(operation);
    }
    kept.reverse();
    draft.operations = kept;
}

/// The number of the buffer that an address lies in.
pub(super) fn buffer(address: Address<Symbolic>) -> u64 {
    address.get() >> OFFSET_BITS
}
