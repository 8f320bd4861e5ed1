//! Functions of one and two numbers.

use crate::operation::{Activation, BinaryFunction, UnaryFunction};

pub(super) fn activate(activation: Activation, value: f32) -> f32 {
    match activation {
        Activation::None => value,
        Activation::Relu => relu(value),
    }
}

/// Keeps NaN, unlike `f32::max`.
fn relu(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `None` if the function is not defined for floats.
pub(super) fn unary_float(function: UnaryFunction, x: f32) -> Option<f32> {
    use UnaryFunction as F;
    let below = |negative: f32| if x < 0.0 { negative } else { x };
    Some(match function {
        F::Relu => relu(x),
        F::LeakyRelu { alpha } => below(alpha * x),
        F::Elu { alpha } => below(alpha * x.exp_m1()),
        F::Selu { alpha, gamma } => gamma * below(alpha * x.exp_m1()),
        F::Sigmoid => sigmoid(x),
        F::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
        F::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        F::Silu => x * sigmoid(x),
        F::Tanh => x.tanh(),
        F::Erf => erf(x),
        F::Gelu => 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
        F::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        F::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        F::Softsign => x / (1.0 + x.abs()),
        F::Exp => x.exp(),
        F::Log => x.ln(),
        F::Sqrt => x.sqrt(),
        F::Reciprocal => 1.0 / x,
        F::Neg => -x,
        F::Abs => x.abs(),
        F::Sign if x == 0.0 => 0.0,
        F::Sign => x.signum(),
        F::Floor => x.floor(),
        F::Ceil => x.ceil(),
        F::Round => x.round_ties_even(),
        F::Sin => x.sin(),
        F::Cos => x.cos(),
        F::Clip { min, max } => x.max(min).min(max),
        F::Not => return None,
    })
}

/// `None` if the function is not defined for integers.
pub(super) fn unary_integer(function: UnaryFunction, x: i64) -> Option<i64> {
    use UnaryFunction as F;
    Some(match function {
        F::Relu => x.max(0),
        F::Neg => x.wrapping_neg(),
        F::Abs => x.wrapping_abs(),
        F::Sign => x.signum(),
        // Bounds beyond the range of integers saturate.
        F::Clip { min, max } => x.max(min.ceil() as i64).min(max.floor() as i64),
        F::Not => i64::from(x == 0),
        _ => return None,
    })
}

pub(super) fn binary_float(function: BinaryFunction, a: f32, b: f32) -> Option<f32> {
    use BinaryFunction as F;
    Some(match function {
        F::Add => a + b,
        F::Sub => a - b,
        F::Mul => a * b,
        F::Div => a / b,
        F::Pow => a.powf(b),
        F::Min => a.min(b),
        F::Max => a.max(b),
        _ => return None,
    })
}

pub(super) fn binary_integer(function: BinaryFunction, a: i64, b: i64) -> Option<i64> {
    use BinaryFunction as F;
    Some(match function {
        F::Add => a.wrapping_add(b),
        F::Sub => a.wrapping_sub(b),
        F::Mul => a.wrapping_mul(b),
        F::Div => a.checked_div(b).unwrap_or(0),
        F::Pow => power(a, b),
        F::Min => a.min(b),
        F::Max => a.max(b),
        F::And => i64::from(a != 0 && b != 0),
        F::Or => i64::from(a != 0 || b != 0),
        F::Xor => i64::from((a != 0) != (b != 0)),
        _ => return None,
    })
}

/// A negative exponent gives a fraction, which is rounded towards zero. An exponent above 32 bits gives 0, except for
/// the bases 1 and -1.
fn power(base: i64, exponent: i64) -> i64 {
    match (u32::try_from(exponent), base) {
        (Ok(exponent), _) => base.wrapping_pow(exponent),
        (Err(_), 1) => 1,
        (Err(_), -1) if exponent % 2 == 0 => 1,
        (Err(_), -1) => -1,
        (Err(_), _) => 0,
    }
}

/// The result of a comparison; `false` for any other function.
pub(super) fn compare<T: PartialOrd>(function: BinaryFunction, a: &T, b: &T) -> bool {
    use BinaryFunction as F;
    match function {
        F::Equal => a == b,
        F::Less => a < b,
        F::LessOrEqual => a <= b,
        F::Greater => a > b,
        F::GreaterOrEqual => a >= b,
        _ => false,
    }
}

/// The error function by its power series; beyond 4.5 it is 1 in 32 bits.
fn erf(x: f32) -> f32 {
    let x = f64::from(x);
    if x.is_nan() {
        return f32::NAN;
    }
    if x.abs() > 4.5 {
        return x.signum() as f32;
    }
    let (mut power, mut sum) = (x, x);
    for n in 1..100 {
        power *= -x * x / f64::from(n);
        sum += power / f64::from(2 * n + 1);
    }
    (sum * std::f64::consts::FRAC_2_SQRT_PI) as f32
}
