//! Addresses typed by their stage, and moving an operation from one stage to another.

use std::{
    fmt::{self, Debug},
    hash::Hash,
    marker::PhantomData,
    ops::{Add, Sub},
};

use super::{
    Affine, Arg, Attention, Binary, Convolution, Copy, Fill, Gather, Gemm, Im2col, LayerNorm,
    Matrix, Operand, Operation, Pool, Reduce, Rows, Select, Softmax, Unary,
};

/// The kind of memory that addresses point into.
pub trait Stage: std::marker::Copy + Debug + Ord + Hash {}

/// Declares a stage.
macro_rules! stage {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {}

        impl Stage for $name {}
    };
}

stage! {
    /// A buffer of a [`Draft`](crate::lower::Draft) and an offset into it.
    Symbolic
}

stage! {
    /// An offset into the workspace of a [`Program`](crate::plan::Program), or a weight of the program and an offset
    /// into it.
    Planned
}

stage! {
    /// The arena of the device.
    Placed
}

stage! {
    /// The pinned staging area of the host.
    Staging
}

/// A byte address. Only addresses of the same stage can be combined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address<S = Placed>(u64, PhantomData<S>);

// === impl Address ===

impl<S> Address<S> {
    /// The address of a number.
    pub const fn new(at: u64) -> Self {
        Self(at, PhantomData)
    }

    /// Its number.
    pub const fn get(self) -> u64
    where
        S: std::marker::Copy,
    {
        self.0
    }

    /// The address that lies `bytes` bytes behind this one, or before it if negative.
    pub(crate) fn moved(self, bytes: i64) -> Self
    where
        S: std::marker::Copy,
    {
        Self::new(self.0.wrapping_add_signed(bytes))
    }
}

impl<S> Debug for Address<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<S> Add<u64> for Address<S> {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self::new(self.0 + bytes)
    }
}

impl<S> Sub for Address<S> {
    type Output = u64;

    fn sub(self, before: Self) -> u64 {
        self.0 - before.0
    }
}

/// A structure that holds addresses.
trait Relocate<S, T> {
    type There;

    /// The same structure with the addresses that `place` returns.
    fn at(self, place: &dyn Fn(Address<S>) -> Address<T>) -> Self::There;
}

impl<S, T> Relocate<S, T> for Address<S> {
    type There = Address<T>;

    fn at(self, place: &dyn Fn(Self) -> Address<T>) -> Address<T> {
        place(self)
    }
}

impl<S, T> Relocate<S, T> for Option<Address<S>> {
    type There = Option<Address<T>>;

    fn at(self, place: &dyn Fn(Address<S>) -> Address<T>) -> Option<Address<T>> {
        self.map(place)
    }
}

/// Rebuilds a structure with some fields relocated and the others unchanged.
macro_rules! again {
    ($it:expr, $place:expr, $name:ident: $($moved:ident)*; $($kept:ident)*) => {
        $name {
            $($moved: $it.$moved.at($place),)*
            $($kept: $it.$kept,)*
        }
    };
}

impl<S, T> Relocate<S, T> for Operand<S> {
    type There = Operand<T>;

    fn at(self, place: &dyn Fn(Address<S>) -> Address<T>) -> Operand<T> {
        again!(self, place, Operand: address; strides)
    }
}

impl<S, T> Relocate<S, T> for Rows<S> {
    type There = Rows<T>;

    fn at(self, place: &dyn Fn(Address<S>) -> Address<T>) -> Rows<T> {
        again!(self, place, Rows: address; strides)
    }
}

impl<S, T> Relocate<S, T> for Option<Operand<S>> {
    type There = Option<Operand<T>>;

    fn at(self, place: &dyn Fn(Address<S>) -> Address<T>) -> Option<Operand<T>> {
        self.map(|it| it.at(place))
    }
}

impl<S, T> Relocate<S, T> for Matrix<S> {
    type There = Matrix<T>;

    fn at(self, place: &dyn Fn(Address<S>) -> Address<T>) -> Matrix<T> {
        again!(self, place, Matrix: address; row_stride batch_stride transposed)
    }
}

/// The same operation with every address replaced.
pub(super) fn map<S: Stage, T: Stage>(
    operation: &Operation<S>,
    to: &dyn Fn(Address<S>) -> Address<T>,
) -> Operation<T> {
    match operation {
        Operation::Gemm(it) => Operation::Gemm(
            again!(it, to, Gemm: a b c bias addend; m n k batch alpha activation element arithmetic),
        ),
        Operation::Convolution(it) => Operation::Convolution(again!(it, to, Convolution:
            x weights bias addend y;
            channels_last batch in_channels out_channels groups window activation element arithmetic method)),
        Operation::Im2col(it) => {
            Operation::Im2col(again!(it, to, Im2col: x y; batch channels window element))
        }
        Operation::Affine(it) => Operation::Affine(
            again!(it, to, Affine: x y scale shift; outer channels inner activation element),
        ),
        Operation::Pool(it) => {
            Operation::Pool(again!(it, to, Pool: x y; function planes inner window element))
        }
        Operation::Unary(it) => {
            Operation::Unary(again!(it, to, Unary: x y; function count element))
        }
        Operation::Binary(it) => {
            Operation::Binary(again!(it, to, Binary: a b y; function sizes activation element))
        }
        Operation::Select(it) => {
            Operation::Select(again!(it, to, Select: condition a b y; sizes element))
        }
        Operation::Reduce(it) => {
            Operation::Reduce(again!(it, to, Reduce: x y; function span element))
        }
        Operation::Arg(it) => Operation::Arg(again!(it, to, Arg: x y; largest last span element)),
        Operation::Softmax(it) => {
            Operation::Softmax(again!(it, to, Softmax: x y; logarithm span element))
        }
        Operation::LayerNorm(it) => Operation::LayerNorm(
            again!(it, to, LayerNorm: x y scale shift; rows length epsilon element),
        ),
        Operation::Attention(it) => {
            Operation::Attention(again!(it, to, Attention: q k v mask y; heads alpha element))
        }
        Operation::Gather(it) => Operation::Gather(again!(it, to, Gather:
            table indices y; outer rows inner count first_row all_rows element index)),
        Operation::Copy(it) => {
            Operation::Copy(again!(it, to, Copy: x y; x_element y_element sizes))
        }
        Operation::Fill(it) => Operation::Fill(again!(it, to, Fill: y; sizes value element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Element;

    #[test]
    fn an_operation_comes_to_another_stage_with_all_its_addresses() {
        let planned: Operation<Planned> = Operation::LayerNorm(LayerNorm {
            x: Address::new(0),
            y: Address::new(256),
            scale: Some(Address::new(512)),
            shift: None,
            rows: 2,
            length: 4,
            epsilon: 1e-5,
            element: Element::F32,
        });
        let placed = planned.map_addresses(|at| Address::<Placed>::new(at.get() + 4096));
        let reads = placed.reads().into_iter().map(|range| range.start.get());
        assert_eq!(reads.collect::<Vec<_>>(), [4096 + 512, 4096]);
        assert_eq!(placed.writes(), Address::new(4352)..Address::new(4352 + 32));
    }
}
