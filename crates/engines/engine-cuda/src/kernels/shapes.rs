//! Launches over strided tensors.
//!
//! Dimensions that are contiguous in all operands are joined first. Most operands then turn out to be contiguous or
//! single values, and the strided kernels spend their time on index arithmetic.

use half::{bf16, f16};
use sextant_engine::Error;

use super::{
    GRID, Launch, Parameters, aligned, code, compute::activation, lanes, suffix, unsupported,
};
use crate::operation::{
    Activation, Address, Binary, BinaryFunction, Copy, Element, Fill, MAX_RANK, Operand, Select,
    Sizes,
};

pub(super) fn binary(it: &Binary) -> Result<Option<Launch>, Error> {
    let function = binary_code(it)?;
    let shape = Shape::joined(&it.sizes, [&it.a.strides, &it.b.strides]);
    let comparison = it.function.is_comparison();
    let family = if comparison {
        "comparison"
    } else {
        "arithmetic"
    };
    let suffix = suffix(it.element);
    let parameters = Parameters::default()
        .address(it.a.address)
        .address(it.b.address)
        .address(it.y)
        .u64(shape.count());
    let last = |parameters: Parameters| parameters.i32(function).i32(activation(it.activation));
    if shape.count() == 0 {
        return Ok(None);
    }
    let flat = shape
        .flat()
        .filter(|_| it.element.is_float() && !comparison);
    let Some([a, b]) = flat else {
        if let Some((packed, steps)) = packed(it, &shape) {
            let parameters = Parameters::default()
                .address(it.a.address)
                .address(it.b.address)
                .address(it.y)
                .u64(packed.count());
            let parameters = last(packed.put(parameters).u32(steps[0]).u32(steps[1]));
            let kernel = format!("arithmetic_packed_{suffix}");
            return Ok(Some(Launch::flat(kernel, packed.count(), parameters)));
        }
        let kernel = format!("{family}_{suffix}");
        let parameters = last(shape.put(parameters));
        return Ok(Some(Launch::flat(kernel, shape.count(), parameters)));
    };
    let mut packed = vec![it.y];
    packed.extend((a == 1).then_some(it.a.address));
    packed.extend((b == 1).then_some(it.b.address));
    let wide = aligned(&packed);
    let lanes = if wide { lanes(it.element) } else { 1 };
    let kernel = format!(
        "arithmetic_flat_{suffix}{}",
        if wide { "_wide" } else { "" }
    );
    let parameters = last(parameters.u32(a).u32(b));
    let items = shape.count().div_ceil(lanes);
    Ok(Some(Launch::flat(kernel, items, parameters)))
}

/// The shape in packs of 16 bytes, and for each operand whether it moves inside a pack; `None` unless each operand
/// moves with the output or not at all.
fn packed(it: &Binary, shape: &Shape<2>) -> Option<(Shape<2>, [u32; 2])> {
    let lanes = lanes(it.element);
    let (size, outer) = shape.sizes.split_last()?;
    let fits = |operand: usize, address: Address| -> Option<u32> {
        let (step, others) = shape.strides[operand].split_last()?;
        let even = others.iter().all(|it| it.unsigned_abs() % lanes == 0);
        match step {
            0 => Some(0),
            1 => (even && aligned(&[address])).then_some(1),
            _ => None,
        }
    };
    let steps = [fits(0, it.a.address)?, fits(1, it.b.address)?];
    let whole = size.is_multiple_of(lanes) && aligned(&[it.y]);
    if !whole || !it.element.is_float() || it.function.is_comparison() {
        return None;
    }
    let strides = std::array::from_fn(|operand| {
        let mut strides = shape.strides[operand].clone();
        if let Some(last) = strides.last_mut() {
            *last *= lanes as i64;
        }
        strides
    });
    let sizes = outer.iter().copied().chain([size / lanes]).collect();
    Some((Shape { sizes, strides }, steps))
}

fn binary_code(it: &Binary) -> Result<i32, Error> {
    use BinaryFunction as F;
    let (code, logical) = match it.function {
        F::Add => (0, false),
        F::Sub => (1, false),
        F::Mul => (2, false),
        F::Div => (3, false),
        F::Pow => (4, false),
        F::Min => (5, false),
        F::Max => (6, false),
        F::Equal => (7, false),
        F::Less => (8, false),
        F::LessOrEqual => (9, false),
        F::Greater => (10, false),
        F::GreaterOrEqual => (11, false),
        F::And => (12, true),
        F::Or => (13, true),
        F::Xor => (14, true),
    };
    let activated = it.activation != Activation::None;
    let wrong = match it.element.is_float() {
        true => logical || (activated && it.function.is_comparison()),
        false => activated,
    };
    match wrong {
        true => Err(unsupported(&format!("{:?}", it.function), it.element)),
        false => Ok(code),
    }
}

pub(super) fn select(it: &Select) -> Result<Option<Launch>, Error> {
    let strides = [&it.condition.strides, &it.a.strides, &it.b.strides];
    let shape = Shape::joined(&it.sizes, strides);
    let parameters = Parameters::default()
        .address(it.condition.address)
        .address(it.a.address)
        .address(it.b.address)
        .address(it.y)
        .u64(shape.count());
    let kernel = format!("select_{}", it.element.bytes());
    Ok(shape.launch(kernel, shape.put(parameters)))
}

pub(super) fn copy(it: &Copy) -> Result<Option<Launch>, Error> {
    let shape = Shape::joined(&it.sizes, [&it.x.strides, &it.y.strides]);
    let operands = |shape: &Shape<2>| {
        Parameters::default()
            .address(it.x.address)
            .address(it.y.address)
            .u64(shape.count())
    };
    if it.x_element != it.y_element {
        let ends = [it.x_element, it.y_element].map(suffix);
        let floats = it.x_element.is_float() && it.y_element.is_float();
        let single = it.x_element == Element::F32 || it.y_element == Element::F32;
        let flat = shape.flat() == Some([1, 1]) && aligned(&[it.x.address, it.y.address]);
        if floats && single && flat && shape.count() > 0 {
            let kernel = format!("convert_{}_{}", ends[0], ends[1]);
            let packs = shape.count().div_ceil(4);
            return Ok(Some(Launch::flat(kernel, packs, operands(&shape))));
        }
        let parameters = shape.put(operands(&shape));
        let parameters = parameters.i32(code(it.x_element)).i32(code(it.y_element));
        return Ok(shape.launch("convert".to_owned(), parameters));
    }
    let bytes = shape.count() * it.x_element.bytes();
    let addresses = [it.x.address, it.y.address];
    if shape.flat() == Some([1, 1]) && aligned(&addresses) && bytes.is_multiple_of(16) {
        let parameters = Parameters::default()
            .address(it.x.address)
            .address(it.y.address)
            .u64(bytes / 16);
        let launch = Launch::flat("copy_wide".to_owned(), bytes / 16, parameters);
        return Ok((bytes > 0).then_some(launch));
    }
    if let Some(launch) = turned(it, &shape) {
        return Ok(Some(launch));
    }
    let (shape, size) = shape.coarse(it.x_element.bytes(), addresses);
    let parameters = shape.put(operands(&shape));
    Ok(shape.launch(format!("copy_{size}"), parameters))
}

/// A copy that transposes matrices: elements that are neighbours on one side lie apart on the other. `None` for other
/// copies and for small matrices.
fn turned(it: &Copy, shape: &Shape<2>) -> Option<Launch> {
    const SIDE: u64 = 32;
    const SMALL: u64 = 8;
    let [x, y] = &shape.strides;
    let column = y.iter().rposition(|step| *step == 1)?;
    let row = x.iter().rposition(|step| *step == 1)?;
    let (rows, columns) = (shape.sizes[row], shape.sizes[column]);
    if row == column || rows < SMALL || columns < SMALL {
        return None;
    }
    let outer: Vec<usize> = (0..shape.sizes.len())
        .filter(|dim| ![row, column].contains(dim))
        .collect();
    let pick = |strides: &Vec<i64>| outer.iter().map(|dim| strides[*dim]).collect();
    let matrices = Shape {
        sizes: outer.iter().map(|dim| shape.sizes[*dim]).collect(),
        strides: [pick(x), pick(y)],
    };
    let parameters = Parameters::default()
        .address(it.x.address)
        .address(it.y.address)
        .u64s(&[rows, columns])
        .u64s(&[x[column].cast_unsigned(), y[row].cast_unsigned()])
        .u64(matrices.count());
    let tiles = rows.div_ceil(SIDE) * columns.div_ceil(SIDE) * matrices.count();
    Some(Launch {
        kernel: format!("transpose_{}", it.x_element.bytes()),
        grid: tiles.clamp(1, GRID) as u32,
        block: 256,
        parameters: matrices.put(parameters),
    })
}

pub(super) fn fill(it: &Fill) -> Result<Option<Launch>, Error> {
    let Operand { address, strides } = it.y;
    let mut shape = Shape::joined(&it.sizes, [&strides]);
    let (mut size, mut value) = (it.element.bytes(), bits(it.element, it.value));
    while size < 8 && shape.sizes.len() == 1 && shape.can_double(size, &[address]) {
        value |= value << (size * 8);
        size *= 2;
        shape.sizes[0] /= 2;
    }
    let parameters = Parameters::default().address(address).u64(shape.count());
    let parameters = shape.put(parameters).u64(value);
    Ok(shape.launch(format!("fill_{size}"), parameters))
}

/// A value as it is stored, in the low bytes; the other bytes are 0.
fn bits(element: Element, value: f64) -> u64 {
    match element {
        Element::F32 => u64::from((value as f32).to_bits()),
        Element::F16 => u64::from(f16::from_f32(value as f32).to_bits()),
        Element::Bf16 => u64::from(bf16::from_f32(value as f32).to_bits()),
        Element::Bool => u64::from(value as i64 != 0),
        _ => (value as i64).cast_unsigned() & (u64::MAX >> (64 - 8 * element.bytes())),
    }
}

/// Sizes and the strides of `N` operands.
struct Shape<const N: usize> {
    sizes: Vec<u64>,
    strides: [Vec<i64>; N],
}

// === impl Shape ===

impl<const N: usize> Shape<N> {
    /// Drops dimensions of size 1 and joins neighbouring dimensions that every operand can walk as one.
    fn joined(sizes: &Sizes, strides: [&[i64; MAX_RANK]; N]) -> Self {
        let mut shape = Self {
            sizes: Vec::new(),
            strides: std::array::from_fn(|_| Vec::new()),
        };
        for dim in (0..sizes.rank).filter(|dim| sizes.sizes[*dim] != 1) {
            shape.push(sizes.sizes[dim], strides.map(|strides| strides[dim]));
        }
        shape
    }

    fn push(&mut self, size: u64, strides: [i64; N]) {
        let follows = |operand: usize| {
            self.strides[operand].last() == Some(&(strides[operand] * size as i64))
        };
        if !self.sizes.is_empty() && (0..N).all(follows) {
            if let Some(last) = self.sizes.last_mut() {
                *last *= size;
            }
            for (all, stride) in self.strides.iter_mut().zip(strides) {
                all.pop();
                all.push(stride);
            }
            return;
        }
        self.sizes.push(size);
        for (all, stride) in self.strides.iter_mut().zip(strides) {
            all.push(stride);
        }
    }

    fn count(&self) -> u64 {
        self.sizes.iter().product()
    }

    /// The innermost strides if at most one dimension is left and each operand is contiguous or a single value.
    fn flat(&self) -> Option<[u32; N]> {
        if self.sizes.len() > 1 {
            return None;
        }
        let stride = |operand: usize| self.strides[operand].first().copied().unwrap_or(1);
        let strides: [i64; N] = std::array::from_fn(stride);
        let plain = strides.iter().all(|stride| matches!(stride, 0 | 1));
        plain.then(|| strides.map(|stride| stride as u32))
    }

    /// The same bytes as elements of up to 16 bytes, where neighbours always move together.
    fn coarse(mut self, mut element_bytes: u64, addresses: [Address; N]) -> (Self, u64) {
        while element_bytes < 16 && self.can_double(element_bytes, &addresses) {
            element_bytes *= 2;
            if let Some(last) = self.sizes.last_mut() {
                *last /= 2;
            }
            let inner = self.sizes.len() - 1;
            for strides in &mut self.strides {
                strides[..inner].iter_mut().for_each(|stride| *stride /= 2);
            }
        }
        (self, element_bytes)
    }

    fn can_double(&self, element_bytes: u64, addresses: &[Address; N]) -> bool {
        let Some((size, outer)) = self.sizes.split_last() else {
            return false;
        };
        let even = |strides: &Vec<i64>| {
            strides[outer.len()] == 1 && strides[..outer.len()].iter().all(|it| it % 2 == 0)
        };
        size % 2 == 0
            && *size > 0
            && self.strides.iter().all(even)
            && addresses
                .iter()
                .all(|it| it.get() % (element_bytes * 2) == 0)
    }

    /// Appends sizes and strides as the kernels take them.
    fn put(&self, mut parameters: Parameters) -> Parameters {
        // The structure begins with a 32-bit rank, but is aligned for its 64-bit sizes.
        parameters.align(8);
        let padded = |values: &[u64], default| {
            let mut all = [default; MAX_RANK];
            all[..values.len()].copy_from_slice(values);
            all
        };
        let parameters = parameters
            .i32(self.sizes.len() as i32)
            .u64s(&padded(&self.sizes, 1));
        let strides = self.strides.iter();
        strides.fold(parameters, |parameters, strides| {
            let strides: Vec<u64> = strides.iter().map(|it| it.cast_unsigned()).collect();
            parameters.u64s(&padded(&strides, 0))
        })
    }

    fn launch(&self, kernel: String, parameters: Parameters) -> Option<Launch> {
        let count = self.count();
        (count > 0).then(|| Launch::flat(kernel, count, parameters))
    }
}
