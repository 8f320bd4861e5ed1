//! Operations element by element, and copies.

use super::{Activation, Address, Element, Placed};

/// Most dimensions of strided operands.
pub const MAX_RANK: usize = 6;

/// `y = function(x)`, element by element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unary<S = Placed> {
    /// What is computed.
    pub function: UnaryFunction,
    /// Input.
    pub x: Address<S>,
    /// Output.
    pub y: Address<S>,
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
pub struct Binary<S = Placed> {
    /// What is computed.
    pub function: BinaryFunction,
    /// Left operand.
    pub a: Operand<S>,
    /// Right operand.
    pub b: Operand<S>,
    /// Output, contiguous.
    pub y: Address<S>,
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
    /// Of integers: towards zero.
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
pub struct Operand<S = Placed> {
    /// The element at index 0 of every dimension.
    pub address: Address<S>,
    /// Elements between neighbours in each dimension; 0 where one value is used for a whole dimension. Never negative,
    /// except in the source of a [`Copy`](struct@Copy).
    pub strides: [i64; MAX_RANK],
}

/// Sizes of `rank` dimensions; the remaining sizes are 1. A scalar has rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Dimensions in use.
    pub rank: usize,
    /// Their sizes.
    pub sizes: [u64; MAX_RANK],
}

/// `y = condition ? a : b`, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Select<S = Placed> {
    /// Booleans.
    pub condition: Operand<S>,
    /// Where true.
    pub a: Operand<S>,
    /// Where false.
    pub b: Operand<S>,
    /// Output, contiguous.
    pub y: Address<S>,
    /// Sizes of the output.
    pub sizes: Sizes,
    /// Type of `a`, `b` and `y`: any.
    pub element: Element,
}

/// Copies between strided tensors, and converts: floats to integers towards zero, every value except 0 to `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy<S = Placed> {
    /// Source.
    pub x: Operand<S>,
    /// Its type.
    pub x_element: Element,
    /// Destination; no stride is 0 where the size is above 1.
    pub y: Operand<S>,
    /// Its type.
    pub y_element: Element,
    /// Sizes of both.
    pub sizes: Sizes,
}

/// Sets every element of a strided tensor to one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill<S = Placed> {
    /// Destination.
    pub y: Operand<S>,
    /// Sizes.
    pub sizes: Sizes,
    /// The value, converted to the element type.
    pub value: f64,
    /// Type.
    pub element: Element,
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

    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.sizes.iter().product()
    }
}

// === impl Binary ===

impl<S> Binary<S> {
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
    /// Whether the result is a boolean, whatever the operands.
    pub fn is_comparison(self) -> bool {
        use BinaryFunction::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        matches!(self, Equal | Less | LessOrEqual | Greater | GreaterOrEqual)
    }
}
