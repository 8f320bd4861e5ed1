use sextant_engine_cuda::operation::{
    Activation, Affine, Binary, BinaryFunction as B, Element, Operation, Unary, UnaryFunction as U,
};

use crate::cases::{ALL, Arena, Checker, FLOATS, operand, sizes, stored_float};

const UNARY: [U; 28] = [
    U::Relu,
    U::LeakyRelu { alpha: 0.25 },
    U::Elu { alpha: 1.5 },
    U::Selu {
        alpha: 1.6733,
        gamma: 1.0507,
    },
    U::Sigmoid,
    U::HardSigmoid {
        alpha: 0.2,
        beta: 0.5,
    },
    U::HardSwish,
    U::Silu,
    U::Tanh,
    U::Erf,
    U::Gelu,
    U::GeluTanh,
    U::Softplus,
    U::Softsign,
    U::Exp,
    U::Log,
    U::Sqrt,
    U::Reciprocal,
    U::Neg,
    U::Abs,
    U::Sign,
    U::Floor,
    U::Ceil,
    U::Round,
    U::Sin,
    U::Cos,
    U::Clip {
        min: -1.25,
        max: 2.5,
    },
    U::Not,
];

const BINARY: [B; 15] = [
    B::Add,
    B::Sub,
    B::Mul,
    B::Div,
    B::Pow,
    B::Min,
    B::Max,
    B::Equal,
    B::Less,
    B::LessOrEqual,
    B::Greater,
    B::GreaterOrEqual,
    B::And,
    B::Or,
    B::Xor,
];

/// Values for which every function must give a sensible result.
const SPECIAL: [f32; 10] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    2.5,
    -1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-7,
];

#[test]
fn functions_of_one_value() {
    let mut checker = Checker::new();
    for (seed, element) in (1..).zip(ALL) {
        for (at, function) in UNARY.into_iter().enumerate() {
            // A multiple of the pack, a count with a rest, and one that cannot be packed.
            let (count, skew) = [(64, 0), (1003, 0), (77, 1)][at % 3];
            let mut arena = Arena::new(seed * 100 + at as u64);
            let x = arena.tensor(element, count, skew);
            if element.is_float() {
                for (place, value) in (0..).zip(SPECIAL) {
                    let bytes = stored_float(element, value);
                    arena.put(x + place * element.bytes(), &bytes);
                }
            }
            let y = arena.room(element, count, skew);
            let operation = Operation::Unary(Unary {
                function,
                x,
                y,
                count,
                element,
            });
            let of_integers = matches!(
                function,
                U::Relu | U::Neg | U::Abs | U::Sign | U::Clip { .. } | U::Not
            );
            if element.is_float() == (function == U::Not) || !(element.is_float() || of_integers) {
                checker.refuse(&operation);
            } else {
                checker.check(arena, operation);
            }
        }
    }
}

#[test]
fn functions_of_two_values() {
    let mut checker = Checker::new();
    // The dimensions, and the dimensions in which a and b repeat.
    let shapes: [(&[u64], &[usize], &[usize]); 7] = [
        (&[], &[], &[]),
        (&[129], &[], &[]),
        (&[5, 8, 13], &[], &[0, 1, 2]),
        (&[4, 16], &[0, 1], &[]),
        (&[3, 7, 10], &[], &[0, 1]),
        (&[3, 1, 7, 5], &[0], &[2]),
        (&[2, 3, 2, 2, 3, 2], &[1, 4], &[0, 3]),
    ];
    let mut seed = 7;
    for element in ALL {
        for function in BINARY {
            seed += 1;
            let (dims, a_repeats, b_repeats) = shapes[seed as usize % shapes.len()];
            let logical = matches!(function, B::And | B::Or | B::Xor);
            let mut arena = Arena::new(seed);
            let count = dims.iter().product::<u64>();
            let a = arena.tensor(element, count, seed % 2);
            let b = arena.tensor(element, count, 0);
            let result = if function.is_comparison() {
                Element::Bool
            } else {
                element
            };
            let y = arena.room(result, count, 0);
            let activation = match element.is_float() && !function.is_comparison() && seed % 3 == 0
            {
                true => Activation::Relu,
                false => Activation::None,
            };
            let operation = Operation::Binary(Binary {
                function,
                a: operand(a, dims, a_repeats),
                b: operand(b, dims, b_repeats),
                y,
                sizes: sizes(dims),
                activation,
                element,
            });
            if logical && element.is_float() {
                checker.refuse(&operation);
            } else {
                checker.check(arena, operation);
            }
        }
    }
}

#[test]
fn addition_in_every_shape() {
    let mut checker = Checker::new();
    let dims_of: [&[u64]; 5] = [&[], &[257], &[6, 9], &[4, 3, 8], &[3, 2, 16]];
    for (seed, element) in (900..).zip(FLOATS) {
        for dims in dims_of {
            for repeated in [&[][..], &[0], &[1], &[0, 1], &[0, 1, 2]] {
                for skew in 0..2 {
                    let mut arena = Arena::new(seed);
                    let count = dims.iter().product::<u64>();
                    let a = arena.tensor(element, count, 0);
                    let b = arena.tensor(element, count, skew);
                    let y = arena.room(element, count, 0);
                    checker.check(
                        arena,
                        Operation::Binary(Binary {
                            function: B::Add,
                            a: operand(a, dims, &[]),
                            b: operand(b, dims, repeated),
                            y,
                            sizes: sizes(dims),
                            activation: Activation::None,
                            element,
                        }),
                    );
                }
            }
        }
    }
}

#[test]
fn scale_and_shift() {
    let mut checker = Checker::new();
    for (seed, element) in (40..).zip(FLOATS) {
        for (outer, channels, inner) in [(3, 5, 17), (40, 33, 1), (1, 1, 300)] {
            for given in 0..4 {
                let mut arena = Arena::new(seed);
                let count = outer * channels * inner;
                let x = arena.tensor(element, count, 0);
                let scale = (given & 1 == 1).then(|| arena.tensor(element, channels, 0));
                let shift = (given & 2 == 2).then(|| arena.tensor(element, channels, 1));
                let y = arena.room(element, count, 0);
                checker.check(
                    arena,
                    Operation::Affine(Affine {
                        x,
                        y,
                        scale,
                        shift,
                        outer,
                        channels,
                        inner,
                        activation: [Activation::None, Activation::Relu][given as usize % 2],
                        element,
                    }),
                );
            }
        }
    }
}
