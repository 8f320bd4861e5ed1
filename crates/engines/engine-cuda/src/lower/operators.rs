//! The table of operators.

use sextant_engine::Error;

use super::{
    context::{Lowering, Value},
    convolution, elementwise, linear, moves,
    node::Call,
    normalize, pairs, pool, reduce, select, shape,
};

/// Lowers a call. Returns one value for each output, or fewer if the rest is not supported.
pub(super) type Operator = fn(&mut Lowering<'_>, &Call<'_>) -> Result<Vec<Value>, Error>;

/// The operators of the standard set that have an implementation.
pub const OPERATORS: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "Cos",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pad",
    "Pow",
    "Range",
    "Reciprocal",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Round",
    "Selu",
    "Shape",
    "Sigmoid",
    "Sign",
    "Sin",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Tanh",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Where",
    "Xor",
];

pub(super) fn find(op_type: &str) -> Option<Operator> {
    if elementwise::unary_function(op_type).is_some() {
        return Some(elementwise::unary);
    }
    if pairs::binary_function(op_type).is_some() {
        return Some(pairs::binary);
    }
    if reduce::function(op_type).is_some() {
        return Some(reduce::reduce);
    }
    Some(match op_type {
        "Cast" => elementwise::cast,
        "Clip" => elementwise::clip,
        "Identity" | "Dropout" => elementwise::identity,
        "Max" | "Min" | "Sum" | "Mean" => pairs::variadic,
        "PRelu" => pairs::prelu,
        "Where" => select::choose,
        "Gather" => select::gather,
        "Gemm" => linear::gemm,
        "MatMul" => linear::matmul,
        "Conv" => convolution::conv,
        "MaxPool" | "AveragePool" => pool::pool,
        "GlobalAveragePool" | "GlobalMaxPool" => reduce::global_pool,
        "ArgMax" | "ArgMin" => reduce::arg,
        "Softmax" | "LogSoftmax" => normalize::softmax,
        "LayerNormalization" => normalize::layer_norm,
        "BatchNormalization" => normalize::batch_norm,
        "InstanceNormalization" => normalize::instance_norm,
        "Constant" => shape::constant,
        "ConstantOfShape" => shape::constant_of_shape,
        "Range" => shape::range,
        "Shape" => shape::shape,
        "Size" => shape::size,
        "Reshape" => shape::reshape,
        "Flatten" => shape::flatten,
        "Squeeze" => shape::squeeze,
        "Unsqueeze" => shape::unsqueeze,
        "Transpose" => moves::transpose,
        "Expand" => moves::expand,
        "Tile" => moves::tile,
        "DepthToSpace" => moves::depth_to_space,
        "Slice" => moves::slice,
        "Split" => moves::split,
        "Concat" => moves::concat,
        "Pad" => moves::pad,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_what_there_is() {
        for name in OPERATORS {
            assert!(find(name).is_some(), "{name}");
        }
        assert!(OPERATORS.is_sorted());
    }
}
