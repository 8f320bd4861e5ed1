//! Shapes and strides.

use sextant_engine::Error;
use sextant_types::DataType;

use super::{
    Call,
    context::{Device, Lowering},
    convolution::fill,
};
use crate::operation::{Address, Copy, Element, MAX_RANK, Operand, Operation, Sizes, Symbolic};

/// Row-major strides, in elements.
pub(super) fn strides(dims: &[u64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for at in (1..dims.len()).rev() {
        strides[at - 1] = strides[at] * dims[at] as i64;
    }
    strides
}

/// The common shape of two operands by the rules of multidirectional broadcasting.
pub(super) fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let dim = |dims: &[u64], at: usize| {
        let missing = rank - dims.len();
        if at < missing { 1 } else { dims[at - missing] }
    };
    (0..rank)
        .map(|at| match (dim(a, at), dim(b, at)) {
            (a, b) if a == b => Some(a),
            (1, other) | (other, 1) => Some(other),
            _ => None,
        })
        .collect()
}

/// Strides of a contiguous tensor of `dims` viewed as `to`; 0 where one value is used for a whole dimension.
pub(super) fn expanded(dims: &[u64], to: &[u64]) -> Vec<i64> {
    let own = strides(dims);
    let missing = to.len() - dims.len();
    let stride = |at: usize| match at.checked_sub(missing) {
        Some(at) if dims[at] != 1 => own[at],
        _ => 0,
    };
    (0..to.len()).map(stride).collect()
}

/// Sizes and strides of several operands with the fewest dimensions that describe them; `None` if these are more than a
/// device takes.
pub(super) fn merge<const N: usize>(
    dims: &[u64],
    strides: [&[i64]; N],
) -> Option<(Sizes, [[i64; MAX_RANK]; N])> {
    let mut merged: Vec<(u64, [i64; N])> = Vec::new();
    for (at, size) in dims.iter().enumerate() {
        let own = strides.map(|strides| strides[at]);
        if *size == 1 {
            continue;
        }
        match merged.last_mut() {
            Some((before, steps)) if (0..N).all(|n| steps[n] == own[n] * *size as i64) => {
                *before *= size;
                *steps = own;
            }
            _ => merged.push((*size, own)),
        }
    }
    let sizes: Vec<u64> = merged.iter().map(|(size, _)| *size).collect();
    let sizes = Sizes::new(&sizes)?;
    let mut found = [[0; MAX_RANK]; N];
    for (at, (_, own)) in merged.iter().enumerate() {
        (0..N).for_each(|n| found[n][at] = own[n]);
    }
    Some((sizes, found))
}

/// A strided view of elements.
pub(super) struct View<'a> {
    pub address: Address<Symbolic>,
    pub strides: &'a [i64],
    pub element: Element,
}

impl Lowering<'_> {
    /// Copies one view to another of the same sizes.
    pub(super) fn copy(
        &mut self,
        call: &Call<'_>,
        dims: &[u64],
        x: &View<'_>,
        y: &View<'_>,
    ) -> Result<(), Error> {
        let (sizes, strides) = merge(dims, [x.strides, y.strides])
            .ok_or_else(|| call.unsupported("it needs more than six dimensions"))?;
        let operand = |view: &View<'_>, strides| Operand {
            address: view.address,
            strides,
        };
        if sizes.count() > 0 {
            self.emit(Operation::Copy(Copy {
                x: operand(x, strides[0]),
                x_element: x.element,
                y: operand(y, strides[1]),
                y_element: y.element,
                sizes,
            }));
        }
        Ok(())
    }

    /// A new contiguous tensor of `dims` whose elements are those of `x` at the given strides.
    pub(super) fn gathered(
        &mut self,
        call: &Call<'_>,
        x: &Device,
        offset: i64,
        dims: &[u64],
        from: &[i64],
    ) -> Result<Device, Error> {
        let y = self.activation(call, dims, x.data_type)?;
        let bytes = offset * x.element.bytes() as i64;
        let source = View {
            address: x.address.moved(bytes),
            strides: from,
            element: x.element,
        };
        let to = strides(dims);
        let target = View {
            address: y.address,
            strides: &to,
            element: y.element,
        };
        self.copy(call, dims, &source, &target)?;
        Ok(y)
    }

    /// The same values in row-major order.
    pub(super) fn row_major(&mut self, x: &Device) -> Device {
        match x.channels_last {
            true => self.reordered(x, x.dims[1], false),
            false => x.clone(),
        }
    }

    /// The same images with the channels last and `channels` channels; added channels are 0.
    pub(super) fn channels_last(&mut self, x: &Device, channels: u64) -> Device {
        match x.channels_last && x.dims[1] == channels {
            true => x.clone(),
            false => self.reordered(x, channels, true),
        }
    }

    /// Images moved from one order of dimensions to the other.
    fn reordered(&mut self, x: &Device, channels: u64, channels_last: bool) -> Device {
        let (batch, given) = (x.dims[0], x.dims[1]);
        let pixels: u64 = x.dims[2..].iter().product();
        let mut dims = x.dims.clone();
        dims[1] = channels;
        if given == channels && (channels == 1 || pixels == 1) {
            return Device {
                channels_last,
                ..x.clone()
            };
        }
        let y = Device {
            address: self.scratch(batch * channels * pixels * x.element.bytes()),
            dims,
            channels_last,
            ..x.clone()
        };
        if channels > given {
            fill(self, &y, 0.0);
        }
        let planes = |channels: u64| [channels * pixels, pixels, 1].map(u64::cast_signed);
        let last = |channels: u64| [channels * pixels, 1, channels].map(u64::cast_signed);
        // The innermost dimension is the one that is contiguous in the output.
        let (from, to, order) = match channels_last {
            true => (planes(given), last(channels), [0, 2, 1]),
            false => (last(given), planes(channels), [0, 1, 2]),
        };
        let operand = |address, strides: [i64; 3]| {
            let [outer, middle, inner] = order.map(|dim| strides[dim]);
            Operand {
                address,
                strides: [outer, middle, inner, 0, 0, 0],
            }
        };
        let [outer, middle, inner] = order.map(|dim| [batch, given, pixels][dim]);
        if x.count() > 0 {
            self.emit(Operation::Copy(Copy {
                x: operand(x.address, from),
                x_element: x.element,
                y: operand(y.address, to),
                y_element: y.element,
                sizes: Sizes {
                    rank: 3,
                    sizes: [outer, middle, inner, 1, 1, 1],
                },
            }));
        }
        y
    }

    /// The same values in another type; the same bytes if both types are stored alike.
    pub(super) fn converted(
        &mut self,
        x: &Device,
        data_type: DataType,
        element: Element,
    ) -> Device {
        if x.element == element {
            return Device {
                data_type,
                ..x.clone()
            };
        }
        let count = x.count();
        let y = Device {
            address: self.scratch(count * element.bytes()),
            dims: x.dims.clone(),
            channels_last: x.channels_last,
            data_type,
            element,
        };
        let line = |address| Operand {
            address,
            strides: [1, 0, 0, 0, 0, 0],
        };
        let sizes = [count, 1, 1, 1, 1, 1];
        if count > 0 {
            self.emit(Operation::Copy(Copy {
                x: line(x.address),
                x_element: x.element,
                y: line(y.address),
                y_element: element,
                sizes: Sizes { rank: 1, sizes },
            }));
        }
        y
    }
}
