//! What a device can be asked to compute.
//!
//! Every parameter is static: addresses are byte offsets into the arena, shapes and strides are
//! numbers. An [`Operation`] that was prepared once can therefore be captured into a graph and
//! replayed without a look at the host.
//!
//! There are few operations, said generally: one strided [`Copy`] serves transposing, slicing,
//! expanding, joining, padding and conversion; operators that only change a shape cost nothing and
//! do not appear here. Arithmetic is in 32-bit floats whatever the storage, sums included; a result
//! is rounded once, when it is stored. Integers are computed in 64 bits.
//!
//! Contract of all operations: tensors are row-major and contiguous unless strides are given;
//! addresses are multiples of their element's size; output ranges overlap no input range and no
//! other output; counts of zero compute nothing.

use std::ops::Range;

mod address;
mod extent;

/// Most dimensions of strided operands.
pub const MAX_RANK: usize = 6;

/// A byte offset into the arena.
pub type Address = u64;

/// Type of an element in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    Bf16,
    /// Signed 64-bit.
    I64,
    /// Signed 32-bit.
    I32,
    /// Signed 8-bit.
    I8,
    /// Unsigned 8-bit.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

/// How products of 32-bit floats are computed. Half types are multiplied exactly and summed in 32
/// bits either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arithmetic {
    /// In full 32-bit floats.
    Full,
    /// On tensor cores, factors rounded to 10-bit mantissas (TF32).
    Tf32,
}

/// Applied to a result before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(x, 0)`.
    Relu,
}

/// One computation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each variant's type says it")]
pub enum Operation {
    Gemm(Gemm),
    Convolution(Convolution),
    Im2col(Im2col),
    Affine(Affine),
    Pool(Pool),
    Unary(Unary),
    Binary(Binary),
    Select(Select),
    Reduce(Reduce),
    Arg(Arg),
    Softmax(Softmax),
    LayerNorm(LayerNorm),
    Gather(Gather),
    Copy(Copy),
    Fill(Fill),
}

/// `c[i] = activation(alpha * op(a[i]) * op(b[i]) + bias)` for `i` in `0..batch`: `op(a)` is
/// `m x k`, `op(b)` `k x n`, `c` `m x n`, all row-major, `bias` one value for each of the n columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Left factor: `m x k`, or `k x m` where transposed.
    pub a: Matrix,
    /// Right factor: `k x n`, or `n x k` where transposed.
    pub b: Matrix,
    /// Product; never transposed.
    pub c: Matrix,
    /// `n` values.
    pub bias: Option<Address>,
    /// Rows of the product.
    pub m: u64,
    /// Columns of the product.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Products, at least 1.
    pub batch: u64,
    /// Factor of each product.
    pub alpha: f32,
    /// Applied last.
    pub activation: Activation,
    /// Type of a, b, c and bias: a float.
    pub element: Element,
    /// For 32-bit floats.
    pub arithmetic: Arithmetic,
}

/// A matrix, or a batch of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// First element.
    pub address: Address,
    /// Elements from one stored row to the next.
    pub row_stride: u64,
    /// Elements from one matrix of the batch to the next; 0 where all use the same.
    pub batch_stride: u64,
    /// Whether it is stored transposed.
    pub transposed: bool,
}

/// A two-dimensional convolution of `[batch, channels, height, width]` images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convolution {
    /// Input `[batch, in_channels, in_size]`.
    pub x: Address,
    /// Weights `[out_channels, in_channels / groups, kernel]`.
    pub weights: Address,
    /// One value for each output channel.
    pub bias: Option<Address>,
    /// Output `[batch, out_channels, window.out_size]`.
    pub y: Address,
    /// Images.
    pub batch: u64,
    /// Channels of the input.
    pub in_channels: u64,
    /// Channels of the output.
    pub out_channels: u64,
    /// Independent groups of channels; divides both.
    pub groups: u64,
    /// The moving window.
    pub window: Window,
    /// Applied last.
    pub activation: Activation,
    /// Type of all operands: a float.
    pub element: Element,
    /// For 32-bit floats.
    pub arithmetic: Arithmetic,
    /// Who computes it.
    pub method: Method,
}

/// Who computes a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// The device's library. Planned only where [`crate::driver::Driver::has_convolution`] says so,
    /// and only with symmetric padding.
    Library,
    /// A kernel with one thread for each output element, for any padding and any groups: what
    /// grouped convolutions use without a library.
    Direct,
}

/// A window that moves over an image; `[height, width]` everywhere. Output positions may reach
/// beyond the padding at the end (ceiling mode): what lies outside the image is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Size of the input image.
    pub in_size: [u64; 2],
    /// Size of the output image.
    pub out_size: [u64; 2],
    /// Size of the window.
    pub kernel: [u64; 2],
    /// Steps between windows.
    pub strides: [u64; 2],
    /// Steps inside a window.
    pub dilations: [u64; 2],
    /// Padding before the image: top, left.
    pub pads_begin: [u64; 2],
    /// Padding behind the image: bottom, right.
    pub pads_end: [u64; 2],
}

/// Unfolds images for a convolution by [`Gemm`]: `y[b][c * kernel + at][position]` is the input under
/// element `at` of the window at `position`, 0 in the padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Im2col {
    /// Input `[batch, channels, in_size]`.
    pub x: Address,
    /// Output `[batch, channels * kernel, out_size]`.
    pub y: Address,
    /// Images.
    pub batch: u64,
    /// Channels.
    pub channels: u64,
    /// The moving window.
    pub window: Window,
    /// Type of both.
    pub element: Element,
}

/// `y = activation(x * scale[channel] + shift[channel])` over `[outer, channels, inner]`: batch
/// normalisation at inference, and the bias of a convolution by [`Gemm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine {
    /// Input.
    pub x: Address,
    /// Output.
    pub y: Address,
    /// `channels` values; 1 where absent.
    pub scale: Option<Address>,
    /// `channels` values; 0 where absent.
    pub shift: Option<Address>,
    /// Product of the dimensions before the channels.
    pub outer: u64,
    /// Channels.
    pub channels: u64,
    /// Product of the dimensions after the channels.
    pub inner: u64,
    /// Applied last.
    pub activation: Activation,
    /// Type of all operands: a float.
    pub element: Element,
}

/// Pooling over `planes` images (batch times channels).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// What is taken from each window.
    pub function: PoolFunction,
    /// Input `[planes, in_size]`.
    pub x: Address,
    /// Output `[planes, out_size]`.
    pub y: Address,
    /// Images.
    pub planes: u64,
    /// The moving window.
    pub window: Window,
    /// Type of both: a float.
    pub element: Element,
}

/// What pooling takes from a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolFunction {
    /// The largest value inside the image.
    Max,
    /// The mean of the values inside the image.
    Average,
    /// The sum of the values inside the image over the number of window elements that lie inside the
    /// image or its declared padding.
    AverageWithPadding,
}

/// `y = function(x)`, element by element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unary {
    /// What is computed.
    pub function: UnaryFunction,
    /// Input.
    pub x: Address,
    /// Output.
    pub y: Address,
    /// Elements.
    pub count: u64,
    /// Type of both. Floats; also integers for `Neg`, `Abs`, `Sign`, `Relu` and `Clip`; `Bool` for
    /// `Not`.
    pub element: Element,
}

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names and formulas say it")]
pub enum UnaryFunction {
    /// `max(x, 0)`.
    Relu,
    /// `x` or, below 0, `alpha * x`.
    LeakyRelu {
        alpha: f32,
    },
    /// `x` or, below 0, `alpha * (exp(x) - 1)`.
    Elu {
        alpha: f32,
    },
    /// `gamma * x` or, not above 0, `gamma * alpha * (exp(x) - 1)`.
    Selu {
        alpha: f32,
        gamma: f32,
    },
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `clamp(alpha * x + beta, 0, 1)`.
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    /// `x * clamp(x / 6 + 1 / 2, 0, 1)`.
    HardSwish,
    /// `x * sigmoid(x)`.
    Silu,
    Tanh,
    Erf,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
    GeluTanh,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
    Exp,
    Log,
    Sqrt,
    /// `1 / x`.
    Reciprocal,
    Neg,
    Abs,
    /// -1, 0 or 1.
    Sign,
    Floor,
    Ceil,
    /// To the nearest integer, halves to the even one.
    Round,
    Sin,
    Cos,
    /// `clamp(x, min, max)`; infinite where there is no bound.
    Clip {
        min: f32,
        max: f32,
    },
    /// Of booleans.
    Not,
}

/// `y = activation(function(a, b))`, element by element over `layout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binary {
    /// What is computed.
    pub function: BinaryFunction,
    /// Left operand.
    pub a: Operand,
    /// Right operand.
    pub b: Operand,
    /// Output, contiguous.
    pub y: Address,
    /// Sizes of the output.
    pub sizes: Sizes,
    /// Applied last; `None` unless the elements are floats and the function is arithmetic.
    pub activation: Activation,
    /// Type of the operands. The output is of the same type for arithmetic and `Bool` for
    /// comparisons; `And`, `Or` and `Xor` take `Bool`.
    pub element: Element,
}

/// A function of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BinaryFunction {
    Add,
    Sub,
    Mul,
    /// Of integers: towards zero; 0 for a division by 0.
    Div,
    Pow,
    Min,
    Max,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Xor,
}

/// A strided operand; the sizes belong to the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// The element at index 0 of every dimension.
    pub address: Address,
    /// Elements between neighbours in each dimension; 0 where one value serves a whole dimension.
    /// Never negative except in the source of a [`Copy`].
    pub strides: [i64; MAX_RANK],
}

/// Sizes of `rank` dimensions; those behind are 1. A scalar has rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Dimensions in use.
    pub rank: usize,
    /// Their sizes.
    pub sizes: [u64; MAX_RANK],
}

/// `y = condition ? a : b`, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Select {
    /// Booleans.
    pub condition: Operand,
    /// Where true.
    pub a: Operand,
    /// Where false.
    pub b: Operand,
    /// Output, contiguous.
    pub y: Address,
    /// Sizes of the output.
    pub sizes: Sizes,
    /// Type of `a`, `b` and `y`: any.
    pub element: Element,
}

/// Reduces the middle dimension of `[outer, length, inner]` to `[outer, inner]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduce {
    /// What is computed.
    pub function: ReduceFunction,
    /// Input.
    pub x: Address,
    /// Output.
    pub y: Address,
    /// The dimensions.
    pub span: Span,
    /// Type of both: a float or an integer of 32 or 64 bits.
    pub element: Element,
}

/// A tensor as seen by operations along one dimension: `[outer, length, inner]`, contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Product of the dimensions before.
    pub outer: u64,
    /// The dimension, at least 1.
    pub length: u64,
    /// Product of the dimensions after.
    pub inner: u64,
}

/// A function of many values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReduceFunction {
    Sum,
    Mean,
    Max,
    Min,
    Product,
    /// Root of the sum of squares.
    L2,
    SumSquare,
}

/// The index of an extreme value along the middle dimension: `[outer, length, inner]` to
/// `[outer, inner]` of `I64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arg {
    /// Whether the largest value is looked for, else the smallest.
    pub largest: bool,
    /// Whether the last of equal values counts, else the first.
    pub last: bool,
    /// Input.
    pub x: Address,
    /// Output, `I64`.
    pub y: Address,
    /// The dimensions.
    pub span: Span,
    /// Type of the input: a float or an integer of 32 or 64 bits.
    pub element: Element,
}

/// Softmax along the middle dimension; the largest value is subtracted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softmax {
    /// Whether the logarithm is stored.
    pub logarithm: bool,
    /// Input.
    pub x: Address,
    /// Output.
    pub y: Address,
    /// The dimensions.
    pub span: Span,
    /// Type of both: a float.
    pub element: Element,
}

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + shift` over each row; the variance is that of
/// the population.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm {
    /// Input `[rows, length]`.
    pub x: Address,
    /// Output `[rows, length]`.
    pub y: Address,
    /// `length` values.
    pub scale: Option<Address>,
    /// `length` values.
    pub shift: Option<Address>,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub length: u64,
    /// Added to the variance.
    pub epsilon: f32,
    /// Type of all operands: a float.
    pub element: Element,
}

/// `y[o][i][..] = table[o][index(i) - first_row][..]` for the indices that fall into the rows that
/// this part of the table has; other elements of `y` stay as they are. Negative indices count from
/// `all_rows`. An index outside `0..all_rows` gives zeros where `first_row` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// `[outer, rows, inner]`.
    pub table: Address,
    /// `count` integers.
    pub indices: Address,
    /// `[outer, count, inner]`.
    pub y: Address,
    /// Product of the dimensions before the axis.
    pub outer: u64,
    /// Rows of this part of the table.
    pub rows: u64,
    /// Product of the dimensions after the axis.
    pub inner: u64,
    /// Indices.
    pub count: u64,
    /// Index of this part's first row; 0 unless the table lies in several pages.
    pub first_row: u64,
    /// Rows of all parts.
    pub all_rows: u64,
    /// Type of table and output: any.
    pub element: Element,
    /// `I32` or `I64`.
    pub index: Element,
}

/// Copies between strided tensors and converts on the way: floats to integers towards zero,
/// anything but 0 to `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Source.
    pub x: Operand,
    /// Its type.
    pub x_element: Element,
    /// Destination; no stride is 0 where the size is above 1.
    pub y: Operand,
    /// Its type.
    pub y_element: Element,
    /// Sizes of both.
    pub sizes: Sizes,
}

/// Sets every element of a strided tensor to one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    /// Destination.
    pub y: Operand,
    /// Sizes.
    pub sizes: Sizes,
    /// The value, converted to the element type.
    pub value: f64,
    /// Type.
    pub element: Element,
}

// === impl Element ===

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }
}

// === impl Sizes ===

impl Sizes {
    /// Sizes of at most [`MAX_RANK`] dimensions.
    pub fn new(dims: &[u64]) -> Option<Self> {
        let mut sizes = [1; MAX_RANK];
        sizes.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(Self {
            rank: dims.len(),
            sizes,
        })
    }

    /// The dimensions in use.
    pub fn dims(&self) -> &[u64] {
        &self.sizes[..self.rank]
    }

    /// Elements.
    pub fn count(&self) -> u64 {
        self.sizes.iter().product()
    }
}

// === impl Binary ===

impl Binary {
    /// Type of the output.
    pub fn result(&self) -> Element {
        if self.function.is_comparison() {
            Element::Bool
        } else {
            self.element
        }
    }
}

// === impl BinaryFunction ===

impl BinaryFunction {
    /// Whether it answers with booleans whatever it compares.
    pub fn is_comparison(self) -> bool {
        use BinaryFunction::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        matches!(self, Equal | Less | LessOrEqual | Greater | GreaterOrEqual)
    }
}

// === impl Window ===

impl Window {
    /// Elements of the input image.
    pub fn in_count(&self) -> u64 {
        self.in_size[0] * self.in_size[1]
    }

    /// Elements of the output image.
    pub fn out_count(&self) -> u64 {
        self.out_size[0] * self.out_size[1]
    }

    /// Elements of the window.
    pub fn kernel_count(&self) -> u64 {
        self.kernel[0] * self.kernel[1]
    }
}

// === impl Span ===

impl Span {
    /// Elements before the reduction.
    pub fn count(&self) -> u64 {
        self.outer * self.length * self.inner
    }

    /// Elements after the reduction.
    pub fn reduced(&self) -> u64 {
        self.outer * self.inner
    }
}

// === impl Operation ===

impl Operation {
    /// Byte ranges of the arena that are read, gaps between strided elements included.
    pub fn reads(&self) -> Vec<Range<Address>> {
        extent::reads(self)
    }

    /// The byte range of the arena that is written, gaps between strided elements included.
    pub fn writes(&self) -> Range<Address> {
        extent::writes(self)
    }

    /// The same operation with every address replaced.
    pub fn map_addresses(&self, place: impl FnMut(Address) -> Address) -> Self {
        address::map(self, place)
    }

    /// The operation's name: `Gemm`, `Copy`, ..
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gemm(_) => "Gemm",
            Self::Convolution(_) => "Convolution",
            Self::Im2col(_) => "Im2col",
            Self::Affine(_) => "Affine",
            Self::Pool(_) => "Pool",
            Self::Unary(_) => "Unary",
            Self::Binary(_) => "Binary",
            Self::Select(_) => "Select",
            Self::Reduce(_) => "Reduce",
            Self::Arg(_) => "Arg",
            Self::Softmax(_) => "Softmax",
            Self::LayerNorm(_) => "LayerNorm",
            Self::Gather(_) => "Gather",
            Self::Copy(_) => "Copy",
            Self::Fill(_) => "Fill",
        }
    }
}
