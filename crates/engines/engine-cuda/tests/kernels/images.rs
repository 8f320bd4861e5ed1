use sextant_engine_cuda::operation::{
    Activation, Arithmetic, Convolution, Im2col, Method, Operation, Pool, PoolFunction, Window,
};

use crate::cases::{ALL, Arena, Checker, FLOATS};

fn windows() -> [Window; 5] {
    let window = |in_size, kernel, strides, dilations, pads_begin, pads_end| {
        let mut window = Window {
            in_size,
            out_size: [1, 1],
            kernel,
            strides,
            dilations,
            pads_begin,
            pads_end,
        };
        for dim in 0..2 {
            let reach = window.dilations[dim] * (window.kernel[dim] - 1) + 1;
            let padded = window.in_size[dim] + window.pads_begin[dim] + window.pads_end[dim];
            window.out_size[dim] = (padded - reach) / window.strides[dim] + 1;
        }
        window
    };
    let mut ceiling = window([7, 8], [3, 3], [2, 2], [1, 1], [1, 1], [1, 1]);
    ceiling.out_size[1] += 1;
    [
        window([6, 9], [1, 1], [1, 1], [1, 1], [0, 0], [0, 0]),
        window([7, 8], [3, 3], [1, 1], [1, 1], [1, 1], [1, 1]),
        window([9, 7], [3, 2], [2, 1], [1, 2], [0, 2], [2, 1]),
        window([5, 5], [5, 5], [1, 1], [1, 1], [0, 0], [0, 0]),
        ceiling,
    ]
}

#[test]
fn pooling() {
    use PoolFunction::{Average, AverageWithPadding, Max};
    let mut checker = Checker::new();
    for (seed, element) in (60..).zip(FLOATS) {
        for window in windows() {
            for function in [Max, Average, AverageWithPadding] {
                for (inner, skew) in [(1, 0), (3, 0), (16, 0), (16, 1)] {
                    let mut arena = Arena::new(seed);
                    let x = arena.tensor(element, 5 * inner * window.in_count(), skew);
                    let y = arena.room(element, 5 * inner * window.out_count(), 0);
                    checker.check(
                        arena,
                        Operation::Pool(Pool {
                            function,
                            x,
                            y,
                            planes: 5,
                            inner,
                            window,
                            element,
                        }),
                    );
                }
            }
        }
    }
}

#[test]
fn unfolding() {
    let mut checker = Checker::new();
    for (seed, element) in (70..).zip(ALL.into_iter().filter(|it| it.is_float())) {
        for window in windows() {
            let mut arena = Arena::new(seed);
            let x = arena.tensor(element, 6 * window.in_count(), 0);
            let count = 6 * window.kernel_count() * window.out_count();
            let y = arena.room(element, count, 0);
            checker.check(
                arena,
                Operation::Im2col(Im2col {
                    x,
                    y,
                    batch: 2,
                    channels: 3,
                    window,
                    element,
                }),
            );
        }
    }
}

#[test]
fn convolutions_by_definition() {
    let mut checker = Checker::new();
    let mut seed = 80;
    for element in FLOATS {
        for window in windows() {
            for (in_channels, out_channels, groups) in [(3, 4, 1), (6, 6, 6), (4, 6, 2)] {
                seed += 1;
                let mut arena = Arena::new(seed);
                let depth = in_channels / groups * window.kernel_count();
                let x = arena.tensor(element, 2 * in_channels * window.in_count(), 0);
                let weights = arena.tensor(element, out_channels * depth, 0);
                let bias = (seed % 2 == 0).then(|| arena.tensor(element, out_channels, 0));
                let count = 2 * out_channels * window.out_count();
                let y = arena.room(element, count, 0);
                let convolution = Convolution {
                    x,
                    weights,
                    bias,
                    addend: None,
                    y,
                    channels_last: false,
                    batch: 2,
                    in_channels,
                    out_channels,
                    groups,
                    window,
                    activation: [Activation::None, Activation::Relu][seed as usize % 2],
                    element,
                    arithmetic: Arithmetic::Full,
                    method: Method::Direct,
                };
                checker.refuse(&Operation::Convolution(Convolution {
                    method: Method::Library,
                    ..convolution
                }));
                checker.refuse(&Operation::Convolution(Convolution {
                    channels_last: true,
                    ..convolution
                }));
                checker.refuse(&Operation::Convolution(Convolution {
                    addend: Some(y),
                    ..convolution
                }));
                checker.check(arena, Operation::Convolution(convolution));
            }
        }
    }
}
