use sextant_engine_cuda::operation::{Copy, Element, Fill, Operand, Operation, Select};

use crate::cases::{ALL, Arena, Checker, FLOATS, operand, sizes, stored_float};

#[test]
fn conversions() {
    let mut checker = Checker::new();
    let mut seed = 100;
    for x_element in ALL {
        for y_element in ALL {
            seed += 1;
            let dims = [3, 5, 7];
            let mut arena = Arena::new(seed);
            let x = arena.tensor(x_element, 105, 0);
            if x_element.is_float() {
                let special = [f32::NAN, f32::INFINITY, -1e30, -0.0, 0.99, -2.5, 1e-6];
                for (at, value) in (0..).zip(special) {
                    arena.put(x + at * x_element.bytes(), &stored_float(x_element, value));
                }
            }
            let y = arena.room(y_element, 105, 0);
            checker.check(
                arena,
                Operation::Copy(Copy {
                    x: operand(x, &dims, &[]),
                    x_element,
                    y: operand(y, &dims, &[]),
                    y_element,
                    sizes: sizes(&dims),
                }),
            );
        }
    }
}

#[test]
fn transposes() {
    let mut checker = Checker::new();
    let mut seed = 300;
    for element in ALL {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0], [2, 0, 1]] {
            for (skew, dims) in [
                (0, [4, 6, 16]),
                (1, [4, 6, 16]),
                (0, [3, 40, 67]),
                (0, [33, 2, 9]),
            ] {
                seed += 1;
                let dims: [u64; 3] = dims;
                let count = dims.iter().product();
                let mut arena = Arena::new(seed);
                let x = operand(arena.tensor(element, count, skew), &dims, &[]);
                let turned = order.map(|dim| dims[dim]);
                let mut strides = [0; 6];
                for (to, from) in order.into_iter().enumerate() {
                    strides[to] = x.strides[from];
                }
                let y = arena.room(element, count, 0);
                checker.check(
                    arena,
                    Operation::Copy(Copy {
                        x: Operand { strides, ..x },
                        x_element: element,
                        y: operand(y, &turned, &[]),
                        y_element: element,
                        sizes: sizes(&turned),
                    }),
                );
            }
        }
    }
}

/// Joining and padding write into a part of the output; slices may run backwards.
#[test]
fn parts() {
    let mut checker = Checker::new();
    let mut seed = 500;
    for element in ALL {
        for columns in [4, 5] {
            seed += 1;
            let dims = [3, columns];
            let mut arena = Arena::new(seed);
            let start = arena.tensor(element, 3 * columns, 0);
            let end = start + (3 * columns - 1) * element.bytes();
            let backwards = Operand {
                address: end,
                strides: [-(columns as i64), -1, 0, 0, 0, 0],
            };
            let room = arena.room(element, 3 * 12, 0);
            let part = Operand {
                address: room + 4 * element.bytes(),
                strides: [12, 1, 0, 0, 0, 0],
            };
            for x in [backwards, operand(start, &dims, &[])] {
                checker.check(
                    copy_of(&arena, seed),
                    Operation::Copy(Copy {
                        x,
                        x_element: element,
                        y: part,
                        y_element: element,
                        sizes: sizes(&dims),
                    }),
                );
            }
            let value = if FLOATS.contains(&element) { -1.5 } else { 3.0 };
            checker.check(
                arena,
                Operation::Fill(Fill {
                    y: part,
                    sizes: sizes(&dims),
                    value,
                    element,
                }),
            );
        }
    }
}

/// Contiguous elements are filled several at a time.
#[test]
fn fills() {
    let mut checker = Checker::new();
    for (seed, element) in (600..).zip(ALL) {
        for count in [35, 36, 40] {
            for value in [-2.0, -100.0, 3.0] {
                let mut arena = Arena::new(seed);
                let y = arena.room(element, count, 0);
                checker.check(
                    arena,
                    Operation::Fill(Fill {
                        y: operand(y, &[count], &[]),
                        sizes: sizes(&[count]),
                        value,
                        element,
                    }),
                );
            }
        }
    }
}

fn copy_of(arena: &Arena, seed: u64) -> Arena {
    let mut copy = Arena::new(seed);
    copy.bytes.clone_from(&arena.bytes);
    copy
}

#[test]
fn selection() {
    let mut checker = Checker::new();
    for (seed, element) in (700..).zip(ALL) {
        for repeated in [&[][..], &[0], &[1], &[0, 1]] {
            let dims = [9, 14];
            let mut arena = Arena::new(seed);
            let condition = arena.tensor(Element::Bool, 126, 0);
            let a = arena.tensor(element, 126, 0);
            let b = arena.tensor(element, 126, 0);
            let y = arena.room(element, 126, 0);
            checker.check(
                arena,
                Operation::Select(Select {
                    condition: operand(condition, &dims, repeated),
                    a: operand(a, &dims, &[]),
                    b: operand(b, &dims, &[0, 1]),
                    y,
                    sizes: sizes(&dims),
                    element,
                }),
            );
        }
    }
}
