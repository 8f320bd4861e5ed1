use sextant_engine_cuda::operation::{
    Address, Arg, Element, LayerNorm, Operation, Reduce, ReduceFunction as R, Softmax, Span,
};

use crate::cases::{Arena, Checker, FLOATS, LONG_INTEGERS, stored_float};

const SPANS: [Span; 8] = [
    span(5, 1, 1),
    span(3, 49, 1),
    span(1, 1000, 1),
    span(2, 33, 1),
    span(7, 136, 1),
    span(2, 1028, 1),
    span(3, 10, 21),
    span(1, 64, 300),
];

const fn span(outer: u64, length: u64, inner: u64) -> Span {
    Span {
        outer,
        length,
        inner,
    }
}

#[test]
fn reductions() {
    use R::{L2, Max, Mean, Min, Product, Sum, SumSquare};
    let mut checker = Checker::new();
    let mut seed = 3000;
    for element in FLOATS.into_iter().chain(LONG_INTEGERS) {
        for function in [Sum, Mean, Max, Min, Product, L2, SumSquare] {
            for span in SPANS {
                seed += 1;
                let mut arena = Arena::new(seed);
                let x = arena.tensor(element, span.count(), 0);
                if function == Product || matches!(function, Sum | Mean) {
                    keep_positive(&mut arena, x, element, span.count(), function == Product);
                }
                let y = arena.room(element, span.reduced(), 0);
                let operation = Operation::Reduce(Reduce {
                    function,
                    x,
                    y,
                    span,
                    element,
                });
                if function == L2 && !element.is_float() {
                    checker.refuse(&operation);
                } else {
                    checker.check(arena, operation);
                }
            }
        }
    }
}

/// Makes values positive: sums of values of both signs cancel, and long products overflow; neither can be compared.
fn keep_positive(arena: &mut Arena, at: Address, element: Element, count: u64, near_one: bool) {
    if !element.is_float() {
        return;
    }
    for index in 0..count {
        let value = arena.numbers.float().abs();
        let value = if near_one { 1.0 + value / 400.0 } else { value };
        let bytes = stored_float(element, value);
        arena.put(at + index * element.bytes(), &bytes);
    }
}

#[test]
fn indices_of_extremes() {
    let mut checker = Checker::new();
    let mut seed = 5000;
    // There are few different integers, so that many values are equal.
    for element in FLOATS.into_iter().chain(LONG_INTEGERS) {
        for span in SPANS {
            for choice in 0..4 {
                seed += 1;
                let mut arena = Arena::new(seed);
                let x = arena.tensor(element, span.count(), 0);
                let y = arena.room(Element::I64, span.reduced(), 0);
                checker.check(
                    arena,
                    Operation::Arg(Arg {
                        largest: choice & 1 == 1,
                        last: choice & 2 == 2,
                        x,
                        y,
                        span,
                        element,
                    }),
                );
            }
        }
    }
}

#[test]
fn softmax() {
    let mut checker = Checker::new();
    let mut seed = 6000;
    for element in FLOATS {
        for span in SPANS {
            for logarithm in [false, true] {
                seed += 1;
                let mut arena = Arena::new(seed);
                let x = arena.tensor(element, span.count(), 0);
                // Masked positions of attention.
                let masked = stored_float(element, f32::NEG_INFINITY);
                if span.length > 2 {
                    arena.put(x + span.inner * element.bytes(), &masked);
                }
                let y = arena.room(element, span.count(), 0);
                checker.check(
                    arena,
                    Operation::Softmax(Softmax {
                        logarithm,
                        x,
                        y,
                        span,
                        element,
                    }),
                );
            }
        }
    }
}

#[test]
fn layer_normalisation() {
    let mut checker = Checker::new();
    let mut seed = 7000;
    for element in FLOATS {
        for (rows, length) in [(4, 1), (3, 33), (9, 128), (1, 768), (2, 1028)] {
            for given in 0..4 {
                seed += 1;
                let mut arena = Arena::new(seed);
                let x = arena.tensor(element, rows * length, 0);
                let scale = (given & 1 == 1).then(|| arena.tensor(element, length, 0));
                let shift = (given & 2 == 2).then(|| arena.tensor(element, length, 0));
                let y = arena.room(element, rows * length, 0);
                checker.check(
                    arena,
                    Operation::LayerNorm(LayerNorm {
                        x,
                        y,
                        scale,
                        shift,
                        rows,
                        length,
                        epsilon: 1e-5,
                        element,
                    }),
                );
            }
        }
    }
}
