//! Operations over seeded values, and the comparison of results.

use half::{bf16, f16};
use sextant_engine_cuda::{
    kernels::{self, Launch},
    operation::{Address, Element, Operand, Operation, Sizes},
    reference::{self, Memory},
};

use crate::emulator::Emulator;

pub const FLOATS: [Element; 3] = [Element::F32, Element::F16, Element::Bf16];
pub const LONG_INTEGERS: [Element; 2] = [Element::I64, Element::I32];
pub const ALL: [Element; 8] = [
    Element::F32,
    Element::F16,
    Element::Bf16,
    Element::I64,
    Element::I32,
    Element::I8,
    Element::U8,
    Element::Bool,
];

/// A splitmix64 generator.
pub struct Numbers(pub u64);

/// An arena under construction.
pub struct Arena {
    pub bytes: Vec<u8>,
    pub numbers: Numbers,
    seed: u64,
}

/// Runs operations in the emulator and by their definition.
pub struct Checker {
    emulator: Emulator,
    checked: usize,
}

// === impl Numbers ===

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A number in -4..4.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32 * 8.0 - 4.0
    }
}

// === impl Arena ===

impl Arena {
    pub fn new(seed: u64) -> Self {
        Self {
            bytes: Vec::new(),
            numbers: Numbers(seed),
            seed,
        }
    }

    /// Space for elements, filled with meaningless bytes; aligned to 256 bytes plus `skew` elements.
    pub fn room(&mut self, element: Element, count: u64, skew: u64) -> Address {
        self.pad(256);
        let start = Address::new(self.bytes.len() as u64) + skew * element.bytes();
        let bytes = (skew + count) * element.bytes();
        for _ in 0..bytes {
            let byte = if element == Element::Bool { 1 } else { 0xff };
            self.bytes.push(byte);
        }
        start
    }

    /// A tensor of random values.
    pub fn tensor(&mut self, element: Element, count: u64, skew: u64) -> Address {
        let start = self.room(element, count, skew);
        for at in 0..count {
            let value = if element.is_float() {
                stored_float(element, self.numbers.float())
            } else {
                self.integer(element)
            };
            self.put(start + at * element.bytes(), &value);
        }
        start
    }

    fn integer(&mut self, element: Element) -> Vec<u8> {
        let value = self.numbers.below(17) as i64 - 8;
        match element {
            Element::I64 => value.to_le_bytes().to_vec(),
            Element::I32 => (value as i32).to_le_bytes().to_vec(),
            Element::Bool => vec![u8::from(value > 0)],
            _ => vec![value as u8],
        }
    }

    /// Overwrites bytes.
    pub fn put(&mut self, at: Address, bytes: &[u8]) {
        self.bytes[at.get() as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn pad(&mut self, to: usize) {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(to), 0xff);
    }
}

// === impl Checker ===

impl Checker {
    pub fn new() -> Self {
        Self {
            emulator: Emulator::start(),
            checked: 0,
        }
    }

    /// Compares the results of an operation over an arena.
    pub fn check(&mut self, mut arena: Arena, operation: Operation) {
        arena.pad(16);
        let what = format!("seed {}, {operation:?}", arena.seed);
        let expected =
            expected(&arena.bytes, &operation).unwrap_or_else(|it| panic!("{it}: {what}"));
        let launch = kernels::launch(&operation).unwrap_or_else(|it| panic!("{it}: {what}"));
        let launches: Vec<Launch> = launch.into_iter().collect();
        let found = self
            .emulator
            .run(&arena.bytes, &launches)
            .unwrap_or_else(|it| panic!("{it}: {what}"));
        let writes = operation.writes();
        let (element, tolerance) = output(&operation);
        let (start, end) = (writes.start.get() as usize, writes.end.get() as usize);
        assert!(
            found[..start] == arena.bytes[..start],
            "writes before: {what}"
        );
        assert!(found[end..] == arena.bytes[end..], "writes behind: {what}");
        let size = element.bytes() as usize;
        let pairs = found[start..end]
            .chunks(size)
            .zip(expected[start..end].chunks(size));
        for (at, (found, expected)) in pairs.enumerate() {
            assert!(
                close(element, found, expected, tolerance),
                "element {at} is {} and not {}: {what}",
                shown(element, found),
                shown(element, expected)
            );
        }
        self.checked += 1;
    }

    /// Checks that an operation has no launch.
    pub fn refuse(&mut self, operation: &Operation) {
        assert!(kernels::launch(operation).is_err(), "{operation:?}");
        self.checked += 1;
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || self.checked > 0,
            "nothing was checked"
        );
    }
}

fn expected(arena: &[u8], operation: &Operation) -> Result<Vec<u8>, sextant_engine::Error> {
    let mut memory = Memory::new(arena.len());
    memory.write(Address::new(0), arena)?;
    reference::compute(operation, &mut memory)?;
    Ok(memory
        .read(Address::new(0)..Address::new(arena.len() as u64))?
        .to_vec())
}

/// The type of an operation's output, and the number of roundings by which results may differ. Operations that only
/// move values or count must be exact.
fn output(operation: &Operation) -> (Element, f32) {
    match operation {
        Operation::Gemm(it) => (it.element, 4.0),
        Operation::Convolution(it) => (it.element, 4.0),
        Operation::Im2col(it) => (it.element, 0.0),
        Operation::Affine(it) => (it.element, 1.0),
        Operation::Pool(it) => (it.element, 2.0),
        Operation::Unary(it) => (it.element, 2.0),
        Operation::Binary(it) => (it.result(), 2.0),
        Operation::Select(it) => (it.element, 0.0),
        Operation::Reduce(it) => (it.element, 4.0),
        Operation::Arg(_) => (Element::I64, 0.0),
        Operation::Softmax(it) => (it.element, 4.0),
        Operation::LayerNorm(it) => (it.element, 4.0),
        Operation::Attention(it) => (it.element, 4.0),
        Operation::Gather(it) => (it.element, 0.0),
        Operation::Copy(it) => (it.y_element, 0.0),
        Operation::Fill(it) => (it.element, 0.0),
    }
}

/// Whether two stored values are equal within `roundings` roundings of their type. Arithmetic is in 32 bits, in which
/// sums in another order differ by more than one rounding.
fn close(element: Element, found: &[u8], expected: &[u8], roundings: f32) -> bool {
    if found == expected {
        return true;
    }
    if !element.is_float() || roundings == 0.0 {
        return false;
    }
    let (found, expected) = (float(element, found), float(element, expected));
    if found.is_nan() || expected.is_nan() {
        return found.is_nan() && expected.is_nan();
    }
    let unit = match element {
        Element::F16 => 2.0f32.powi(-10),
        Element::Bf16 => 2.0f32.powi(-7),
        _ => 2.0f32.powi(-20),
    };
    let difference = (found - expected).abs();
    difference <= roundings * unit * expected.abs() + 1e-6
}

pub fn float(element: Element, bytes: &[u8]) -> f32 {
    match (element, bytes) {
        (Element::F32, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
        (Element::F16, [a, b]) => f16::from_le_bytes([*a, *b]).to_f32(),
        (Element::Bf16, [a, b]) => bf16::from_le_bytes([*a, *b]).to_f32(),
        _ => f32::NAN,
    }
}

pub fn stored_float(element: Element, value: f32) -> Vec<u8> {
    match element {
        Element::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Element::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

fn shown(element: Element, bytes: &[u8]) -> String {
    match element.is_float() {
        true => format!("{}", float(element, bytes)),
        false => format!("{bytes:?}"),
    }
}

/// Sizes of a tensor.
pub fn sizes(dims: &[u64]) -> Sizes {
    Sizes::new(dims).expect("few dimensions")
}

/// A contiguous operand, with stride 0 in the dimensions `repeated`.
pub fn operand(address: Address, dims: &[u64], repeated: &[usize]) -> Operand {
    let mut strides = [0; 6];
    let mut step = 1;
    for dim in (0..dims.len()).rev() {
        if !repeated.contains(&dim) {
            strides[dim] = step;
            step *= dims[dim] as i64;
        }
    }
    Operand { address, strides }
}
