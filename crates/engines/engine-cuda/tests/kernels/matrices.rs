use sextant_engine_cuda::operation::{
    Activation, Arithmetic, Element, Gather, Gemm, Matrix, Operation,
};

use crate::cases::{ALL, Arena, Checker, FLOATS};

#[test]
fn products() {
    let mut checker = Checker::new();
    let mut seed = 8000;
    for element in FLOATS {
        for (m, n, k, batch) in [(1, 1, 1, 1), (17, 5, 33, 1), (16, 32, 16, 3), (3, 40, 7, 2)] {
            for turned in 0..4 {
                seed += 1;
                let mut arena = Arena::new(seed);
                let gap = seed % 3;
                let mut matrix = |rows: u64, columns: u64, transposed: bool, shared: bool| {
                    let (rows, columns) = if transposed {
                        (columns, rows)
                    } else {
                        (rows, columns)
                    };
                    let row_stride = columns + gap;
                    let count = batch * rows * row_stride;
                    Matrix {
                        address: arena.tensor(element, count, 0),
                        row_stride,
                        batch_stride: if shared { 0 } else { rows * row_stride },
                        transposed,
                    }
                };
                let a = matrix(m, k, turned & 1 == 1, false);
                let b = matrix(k, n, turned & 2 == 2, seed % 2 == 0);
                let c = matrix(m, n, false, false);
                let bias = (seed % 2 == 1).then(|| arena.tensor(element, n, 0));
                let count = batch * m * c.row_stride;
                let addend = (seed % 3 == 1).then(|| arena.tensor(element, count, 0));
                checker.check(
                    arena,
                    Operation::Gemm(Gemm {
                        a,
                        b,
                        c,
                        bias,
                        addend,
                        m,
                        n,
                        k,
                        batch,
                        alpha: 0.125,
                        activation: [Activation::None, Activation::Relu][seed as usize / 2 % 2],
                        element,
                        arithmetic: Arithmetic::Full,
                    }),
                );
            }
        }
    }
}

#[test]
fn rows_of_tables() {
    let mut checker = Checker::new();
    let mut seed = 9000;
    for element in ALL {
        for index in [Element::I64, Element::I32] {
            // All rows, and the second part of a table in two parts.
            for (rows, first_row) in [(7, 0), (4, 3)] {
                seed += 1;
                let mut arena = Arena::new(seed);
                let (outer, inner, count) = (2, 5, 9);
                let table = arena.tensor(element, outer * rows * inner, 0);
                // The values are in -8..=8: some count from the end, some are outside.
                let indices = arena.tensor(index, count, 0);
                let y = arena.room(element, outer * inner * count, 0);
                checker.check(
                    arena,
                    Operation::Gather(Gather {
                        table,
                        indices,
                        y,
                        outer,
                        rows,
                        inner,
                        count,
                        first_row,
                        all_rows: 7,
                        element,
                        index,
                    }),
                );
            }
        }
    }
}
