//! Limits the length of a line before it is parsed: parsing takes many times the memory of the line.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use sextant_types::{DataType, TensorSpec};

use super::{Invalid, RowShape, SetRequirements, labels, row_shape};

/// Bytes that every line may have, for names, brackets and labels.
const COMMON_BYTES: u64 = 64 << 10;

/// Further bytes of a line if a record may have any length.
const OPEN_BYTES: u64 = 16 << 20;

/// Most bytes of an element as text, with its separators.
const ELEMENT_BYTES: u64 = 64;

/// Bytes that a table's reader takes at once.
const AHEAD_BYTES: u64 = 64 << 10;

/// Most bytes of a record that fits, as text. It is a fixed number for texts, and if the model or its labels take any
/// length.
pub(super) fn most_bytes(expected: SetRequirements<'_>) -> Result<u64, Invalid> {
    let (label_type, label) = labels::untyped(expected)?;
    let is_any = matches!(expected.metric, sextant_types::Metric::Custom);
    let label = (!is_any).then(|| of_elements((label_type, label), 0));
    let signature = expected.signature;
    let of_input = |input: &TensorSpec| {
        let row = row_shape(input, signature.batched);
        of_elements((input.data_type, row), input.name.len() as u64)
    };
    let each = signature
        .inputs
        .iter()
        .map(of_input)
        .chain([label.flatten()]);
    let bytes = each.map(|bytes| bytes.unwrap_or(OPEN_BYTES));
    Ok(bytes.fold(COMMON_BYTES, u64::saturating_add))
}

/// Most bytes of elements as text, each with a name of at most `name` bytes; `None` if that is unlimited.
fn of_elements((data_type, row): (DataType, RowShape<'_>), name: u64) -> Option<u64> {
    let mut sizes = row.iter().copied();
    let elements = sizes.try_fold(1_u64, |product, size| Some(product.saturating_mul(size?)))?;
    (data_type != DataType::Bytes).then(|| elements.saturating_mul(ELEMENT_BYTES + name))
}

/// Refuses a line, counted from 1, that is longer than `most`.
pub(super) fn check(line: usize, bytes: &[u8], most: u64) -> Result<(), Invalid> {
    match bytes.len() as u64 > most {
        true => Err(Invalid::Line { line, limit: most }),
        false => Ok(()),
    }
}

/// A table whose bytes end with an error if a row is longer than allowed.
pub(super) struct Rows<'a> {
    bytes: &'a [u8],
    at: u64,
    end: End,
}

/// The position up to which a table may be read.
#[derive(Clone, Default)]
pub(super) struct End(Rc<Cell<u64>>);

impl<'a> Rows<'a> {
    /// A table whose first row may have `most` bytes.
    pub(super) fn of(bytes: &'a [u8], most: u64) -> (Self, End) {
        let end = End::default();
        end.allow(0, most);
        let rows = Self {
            bytes,
            at: 0,
            end: end.clone(),
        };
        (rows, end)
    }
}

impl End {
    /// Allows the row that begins at `start` to have `most` bytes.
    pub(super) fn allow(&self, start: u64, most: u64) {
        let end = start.saturating_add(most).saturating_add(AHEAD_BYTES);
        self.0.set(end);
    }
}

impl Read for Rows<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = self.end.0.get().saturating_sub(self.at);
        if allowed == 0 && !self.bytes.is_empty() {
            return Err(io::Error::other("a row is too long"));
        }
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
        let count = allowed.min(buffer.len()).min(self.bytes.len());
        let (now, rest) = self.bytes.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.bytes = rest;
        self.at += count as u64;
        Ok(count)
    }
}
