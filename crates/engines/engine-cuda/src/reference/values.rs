//! Elements as numbers.

use half::{bf16, f16};
use sextant_engine::Error;

use super::{Memory, fault};
use crate::operation::{Address, Element, MAX_RANK, Operand, Sizes};

/// Contiguous floats.
pub(super) fn floats(
    memory: &Memory,
    at: Address,
    count: u64,
    element: Element,
) -> Result<Vec<f32>, Error> {
    let bytes = memory.read(at..at + count * element.bytes())?;
    Ok(match element {
        Element::F32 => bytemuck::pod_collect_to_vec(bytes),
        _ => bytes
            .chunks_exact(element.bytes() as usize)
            .map(|bytes| float(element, bytes))
            .collect(),
    })
}

/// Contiguous integers or booleans.
pub(super) fn integers(
    memory: &Memory,
    at: Address,
    count: u64,
    element: Element,
) -> Result<Vec<i64>, Error> {
    let bytes = memory.read(at..at + count * element.bytes())?;
    let chunks = bytes.chunks_exact(element.bytes() as usize);
    Ok(chunks.map(|bytes| integer(element, bytes)).collect())
}

/// Writes contiguous floats, rounded to the storage type.
pub(super) fn store_floats(
    memory: &mut Memory,
    at: Address,
    element: Element,
    values: &[f32],
) -> Result<(), Error> {
    if element == Element::F32 {
        return memory.write(at, bytemuck::cast_slice(values));
    }
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| from_float(element, *value))
        .collect();
    memory.write(at, &bytes)
}

/// Writes contiguous integers or booleans.
pub(super) fn store_integers(
    memory: &mut Memory,
    at: Address,
    element: Element,
    values: &[i64],
) -> Result<(), Error> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| from_integer(element, *value))
        .collect();
    memory.write(at, &bytes)
}

/// The stored bytes of each strided element, in the order of the sizes.
pub(super) fn strided<'a>(
    memory: &'a Memory,
    operand: &Operand,
    sizes: &Sizes,
    element: Element,
) -> Result<Vec<&'a [u8]>, Error> {
    let size = element.bytes();
    offsets(operand, sizes)
        .into_iter()
        .map(|offset| {
            let at = address(operand, offset, size)?;
            memory.read(at..at + size)
        })
        .collect()
}

/// Writes strided elements, given as bytes.
pub(super) fn store_strided(
    memory: &mut Memory,
    operand: &Operand,
    sizes: &Sizes,
    element: Element,
    values: impl IntoIterator<Item = Vec<u8>>,
) -> Result<(), Error> {
    let size = element.bytes();
    for (offset, value) in offsets(operand, sizes).into_iter().zip(values) {
        memory.write(address(operand, offset, size)?, &value)?;
    }
    Ok(())
}

fn address(operand: &Operand, offset: i64, size: u64) -> Result<Address, Error> {
    let at = operand.address.get();
    let at = at.checked_add_signed(offset * size as i64);
    at.map(Address::new)
        .ok_or_else(|| fault("a stride leads before the memory"))
}

/// Offsets of all elements, in elements.
fn offsets(operand: &Operand, sizes: &Sizes) -> Vec<i64> {
    let mut offsets = vec![0];
    for dim in 0..MAX_RANK {
        let (size, stride) = (sizes.sizes[dim] as i64, operand.strides[dim]);
        if size == 1 {
            continue;
        }
        offsets = offsets
            .iter()
            .flat_map(|offset| (0..size).map(move |at| offset + at * stride))
            .collect();
    }
    offsets
}

/// A stored float.
pub(super) fn float(element: Element, bytes: &[u8]) -> f32 {
    match (element, bytes) {
        (Element::F32, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
        (Element::F16, [a, b]) => f16::from_le_bytes([*a, *b]).to_f32(),
        (Element::Bf16, [a, b]) => bf16::from_le_bytes([*a, *b]).to_f32(),
        _ => integer(element, bytes) as f32,
    }
}

/// A stored integer; floats towards zero.
pub(super) fn integer(element: Element, bytes: &[u8]) -> i64 {
    match (element, bytes) {
        (Element::I64, bytes) => i64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        (Element::I32, [a, b, c, d]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        (Element::I8, [byte]) => i64::from(*byte as i8),
        (Element::U8, [byte]) => i64::from(*byte),
        (Element::Bool, [byte]) => i64::from(*byte != 0),
        _ => float(element, bytes) as i64,
    }
}

/// The bytes of a float in a storage type.
pub(super) fn from_float(element: Element, value: f32) -> Vec<u8> {
    match element {
        Element::F32 => value.to_le_bytes().to_vec(),
        Element::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Element::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        Element::Bool => vec![u8::from(value != 0.0)],
        _ => from_integer(element, value as i64),
    }
}

/// The bytes of an integer in a storage type; what does not fit is cut off.
pub(super) fn from_integer(element: Element, value: i64) -> Vec<u8> {
    match element {
        Element::I64 => value.to_le_bytes().to_vec(),
        Element::I32 => (value as i32).to_le_bytes().to_vec(),
        Element::I8 | Element::U8 => vec![value as u8],
        Element::Bool => vec![u8::from(value != 0)],
        _ => from_float(element, value as f32),
    }
}

/// Rounds to the 10-bit mantissa of TF32, halves to even.
pub(super) fn tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    let round = 0xfff + ((bits >> 13) & 1);
    f32::from_bits(bits.wrapping_add(round) & !0x1fff)
}
