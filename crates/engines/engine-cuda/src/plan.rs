//! Places for everything that a lowered graph needs. They are fixed before any batch comes.
//!
//! Entry points: [`Program::plan`] places activations in a workspace by their lifetimes; [`Packing::new`] places
//! weights in pages.

use std::ops::Range;

use bytes::Bytes;
use sextant_types::DataType;

use crate::{
    lower::{ALIGNMENT, Content, Draft, OFFSET_BITS},
    operation::{Address, Operation, Planned, Symbolic},
};

/// This bit is set in an address inside a weight. The number of the weight follows, then the offset.
const WEIGHT: u64 = 1 << 63;

/// A graph for one set of input shapes. Its addresses are offsets into the workspace, or name a weight, until
/// [`Self::bind`] knows where both lie.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    operations: Vec<Operation<Planned>>,
    /// Bytes of workspace in use.
    pub workspace_bytes: u64,
    /// The data that comes with a batch: a range of the workspace.
    pub input: Range<Address<Planned>>,
    /// In the signature's order.
    pub inputs: Vec<Slot>,
    /// Constants that come with a batch: offset into [`Self::input`] and bytes.
    pub constants: Vec<(u64, Bytes)>,
    outputs: Vec<(Address<Planned>, Slot)>,
    /// Bytes of all outputs, each aligned.
    pub output_bytes: u64,
}

/// A tensor among a batch's inputs or outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Offset into the inputs, or the outputs.
    pub offset: u64,
    /// Type of the elements.
    pub data_type: DataType,
    /// Shape.
    pub dims: Vec<u64>,
}

/// Page and offset of each weight. They are the same for all batch sizes and for every load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    places: Vec<(u32, u64)>,
    /// Bytes in use of each page.
    pub used_bytes: Vec<u64>,
}

/// A buffer with its lifetime: operations `from..=to`.
struct Life {
    buffer: usize,
    bytes: u64,
    from: usize,
    to: usize,
}

// === impl Program ===

impl Program {
    /// Places the buffers of a draft. Larger buffers come first; each gets the lowest offset that no buffer alive at
    /// the same time occupies.
    pub fn plan(draft: Draft) -> Self {
        let lives = lives(&draft);
        let offsets = place(&draft, lives);
        let workspace_bytes = offsets
            .iter()
            .zip(&draft.buffers)
            .filter_map(|(offset, buffer)| Some((*offset)? + buffer.bytes))
            .max()
            .unwrap_or(0);
        let address = |symbolic: Address<Symbolic>| {
            let (buffer, offset) = parts(symbolic.get());
            Address::new(match draft.buffers[buffer].content {
                Content::Weight(index) => WEIGHT | (index as u64) << OFFSET_BITS | offset,
                _ => offsets[buffer].unwrap_or(0) + offset,
            })
        };
        let operations = draft.operations.iter();
        let operations = operations.map(|it| it.map_addresses(address)).collect();
        let mut output_bytes = 0;
        let outputs = draft.outputs.iter().map(|port| {
            let slot = Slot {
                offset: output_bytes,
                data_type: port.data_type,
                dims: port.dims.clone(),
            };
            output_bytes = (output_bytes + slot.bytes()).next_multiple_of(ALIGNMENT);
            (address(port.address), slot)
        });
        let outputs = outputs.collect();
        let input = Address::new(offsets[0].unwrap_or(0));
        let inputs = draft.inputs.into_iter().map(|port| Slot {
            offset: port.address.get(),
            data_type: port.data_type,
            dims: port.dims,
        });
        Self {
            operations,
            workspace_bytes,
            input: input..input + draft.buffers[0].bytes,
            inputs: inputs.collect(),
            constants: draft.constants,
            outputs,
            output_bytes,
        }
    }

    /// The operations with the workspace at `workspace` and each weight at the address that `weight` returns.
    pub fn bind(
        &self,
        workspace: Address,
        weight: impl Fn(usize) -> Address,
    ) -> (Vec<Operation>, Vec<(Address, Slot)>) {
        let place = |planned: Address<Planned>| match planned.get() & WEIGHT {
            0 => workspace + planned.get(),
            _ => {
                let (index, offset) = parts(planned.get() & !WEIGHT);
                weight(index) + offset
            }
        };
        let operations = self.operations.iter().map(|it| it.map_addresses(place));
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|(address, slot)| (place(*address), slot.clone()));
        (operations.collect(), outputs.collect())
    }

    /// Whether the first dimension of every output is `rows`.
    pub fn has_rows(&self, rows: u64) -> bool {
        let mut slots = self.outputs.iter().map(|(_, slot)| slot);
        slots.all(|slot| slot.dims.first() == Some(&rows))
    }

    /// Number of operations in a run.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }
}

// === impl Slot ===

impl Slot {
    /// Bytes of the tensor.
    pub fn bytes(&self) -> u64 {
        let size = self.data_type.size().unwrap_or(1) as u64;
        self.dims.iter().product::<u64>() * size
    }
}

// === impl Packing ===

impl Packing {
    /// Packs weights of the given sizes, none larger than a page. Larger weights come first; each goes into the first
    /// page with room for it.
    pub fn new(sizes: &[u64], page_bytes: u64) -> Self {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|index| (std::cmp::Reverse(sizes[*index]), *index));
        let mut places = vec![(0, 0); sizes.len()];
        let mut used_bytes: Vec<u64> = Vec::new();
        for index in order {
            let start = |used: u64| used.next_multiple_of(ALIGNMENT);
            let fits = |used: &u64| start(*used) + sizes[index] <= page_bytes;
            let page = used_bytes.iter().position(fits).unwrap_or(used_bytes.len());
            if page == used_bytes.len() {
                used_bytes.push(0);
            }
            places[index] = (page as u32, start(used_bytes[page]));
            used_bytes[page] = places[index].1 + sizes[index];
        }
        Self { places, used_bytes }
    }

    /// Pages in use.
    pub fn pages(&self) -> usize {
        self.used_bytes.len()
    }

    /// Page and offset of a weight.
    pub fn place(&self, weight: usize) -> (u32, u64) {
        self.places[weight]
    }

    /// The contents of the pages, with zeros between the weights.
    pub fn images(&self, contents: &[Bytes]) -> Vec<Bytes> {
        let mut images: Vec<Vec<u8>> = self
            .used_bytes
            .iter()
            .map(|used| vec![0; *used as usize])
            .collect();
        for ((page, offset), content) in self.places.iter().zip(contents) {
            let start = *offset as usize;
            images[*page as usize][start..start + content.len()].copy_from_slice(content);
        }
        images.into_iter().map(Bytes::from).collect()
    }
}

/// The number of a buffer or a weight, and the offset into it.
fn parts(address: u64) -> (usize, u64) {
    let offset = address & ((1 << OFFSET_BITS) - 1);
    ((address >> OFFSET_BITS) as usize, offset)
}

/// The lifetime of each buffer except the weights. Inputs live from the first operation on, outputs until the last.
fn lives(draft: &Draft) -> Vec<Life> {
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; draft.buffers.len()];
    spans[0] = Some((0, 0));
    let mut touch = |buffer: usize, at: usize| {
        let (from, to) = spans[buffer].unwrap_or((at, at));
        spans[buffer] = Some((from.min(at), to.max(at)));
    };
    for (at, operation) in draft.operations.iter().enumerate() {
        let writes = operation.writes();
        let ranges = operation.reads().into_iter().chain([writes]);
        ranges.for_each(|range| touch(parts(range.start.get()).0, at));
    }
    for port in &draft.outputs {
        touch(parts(port.address.get()).0, draft.operations.len());
    }
    let activation = |buffer: usize| !matches!(draft.buffers[buffer].content, Content::Weight(_));
    let alive = spans.iter().enumerate().filter_map(|(buffer, span)| {
        let (from, to) = (*span)?;
        activation(buffer).then_some(Life {
            buffer,
            bytes: draft.buffers[buffer].bytes,
            from,
            to,
        })
    });
    alive.collect()
}

fn place(draft: &Draft, mut lives: Vec<Life>) -> Vec<Option<u64>> {
    lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.buffer));
    let mut offsets = vec![None; draft.buffers.len()];
    let mut placed: Vec<(u64, &Life)> = Vec::new();
    for life in &lives {
        let mut at = 0;
        for (start, other) in &placed {
            let together = life.from <= other.to && other.from <= life.to;
            if !together {
                continue;
            }
            if at + life.bytes <= *start {
                break;
            }
            at = at.max((start + other.bytes).next_multiple_of(ALIGNMENT));
        }
        offsets[life.buffer] = Some(at);
        let position = placed.partition_point(|(start, _)| *start <= at);
        placed.insert(position, (at, life));
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_lie_apart_in_as_many_pages_as_needed() {
        let sizes = [700, 300, 1024, 10, 256, 1, 500];
        let packing = Packing::new(&sizes, 1024);
        let mut ranges: Vec<(u32, u64, u64)> = (0..sizes.len())
            .map(|index| {
                let (page, offset) = packing.place(index);
                (page, offset, offset + sizes[index])
            })
            .collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(
                pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1,
                "{ranges:?}"
            );
        }
        assert!(
            ranges
                .iter()
                .all(|(_, start, end)| start % ALIGNMENT == 0 && *end <= 1024)
        );
        assert_eq!(packing.pages(), 4);
    }
}
