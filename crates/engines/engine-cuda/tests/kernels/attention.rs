use sextant_engine_cuda::operation::{
    Address, Attention, Element, Heads, Operand, Operation, Rows,
};

use crate::cases::{Arena, Checker, stored_float};

const HALVES: [Element; 2] = [Element::F16, Element::Bf16];
/// Batch, heads, queries, keys, depth: every kernel, whole and partial tiles, one tile and several.
const HEADS: [[u64; 5]; 10] = [
    [1, 1, 1, 1, 8],
    [2, 3, 7, 7, 16],
    [1, 2, 64, 64, 32],
    [2, 1, 65, 63, 64],
    [1, 2, 128, 128, 64],
    [1, 1, 70, 130, 40],
    [2, 2, 1, 200, 64],
    [1, 1, 33, 100, 80],
    [1, 1, 17, 65, 96],
    [1, 2, 20, 97, 128],
];

/// The shape of a mask.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mask {
    None,
    /// One row for each sequence.
    Keys,
    /// One matrix for all heads.
    Pairs,
    /// A full mask, one value for each score.
    Whole,
}

/// The layout of heads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HeadLayout {
    /// Head by head, as after a transposition.
    Heads,
    /// Token by token; the inputs are parts of one row.
    Tokens,
}

fn heads([batch, heads, queries, keys, depth]: [u64; 5]) -> Heads {
    Heads {
        batch,
        heads,
        queries,
        keys,
        depth,
    }
}

/// Strides of `rows` rows. A token has `parts` parts, of which one is used.
fn steps(sizes: &Heads, rows: u64, lying: HeadLayout, parts: u64) -> [i64; 3] {
    let Heads { heads, depth, .. } = *sizes;
    let strides = match lying {
        HeadLayout::Heads => [heads * rows * depth, rows * depth, depth],
        HeadLayout::Tokens => [rows * heads * depth * parts, depth, heads * depth * parts],
    };
    strides.map(u64::cast_signed)
}

fn mask(arena: &mut Arena, sizes: &Heads, kind: Mask, element: Element) -> Option<Operand> {
    let Heads {
        batch,
        heads,
        queries,
        keys,
        ..
    } = *sizes;
    let pairs = queries * keys;
    let (count, strides) = match kind {
        Mask::None => return None,
        Mask::Keys => (batch * keys, [keys, 0, 0, 1]),
        Mask::Pairs => (pairs, [0, 0, keys, 1]),
        Mask::Whole => (batch * heads * pairs, [heads * pairs, pairs, keys, 1]),
    };
    let address = arena.tensor(element, count, 1);
    // Some positions are hidden, in both ways that exporters use.
    for at in (0..count).filter(|at| at % 3 == 1) {
        let value = if at % 2 == 0 {
            f32::NEG_INFINITY
        } else {
            f32::MIN
        };
        let value = match (element, value.is_finite()) {
            (Element::F16, true) => -65504.0,
            (_, true) => half::bf16::MIN.to_f32(),
            _ => value,
        };
        arena.put(
            address + at * element.bytes(),
            &stored_float(element, value),
        );
    }
    let [batch, head, query, key] = strides.map(u64::cast_signed);
    Some(Operand {
        address,
        strides: [batch, head, query, key, 0, 0],
    })
}

fn attention(
    arena: &mut Arena,
    sizes: Heads,
    lying: HeadLayout,
    kind: Mask,
    element: Element,
) -> Attention {
    let Heads {
        batch,
        heads,
        queries,
        keys,
        depth,
    } = sizes;
    let width = heads * depth;
    let tensor = |arena: &mut Arena, rows: u64| arena.tensor(element, batch * rows * width, 0);
    let (q, k, v) = match lying {
        HeadLayout::Tokens if queries == keys => {
            let all = tensor(arena, keys * 3);
            let part = |index: u64| all + index * width * element.bytes();
            (part(0), part(1), part(2))
        }
        _ => (
            tensor(arena, queries),
            tensor(arena, keys),
            tensor(arena, keys),
        ),
    };
    let parts = if lying == HeadLayout::Tokens && queries == keys {
        3
    } else {
        1
    };
    let operand = |address: Address, count: u64, parts: u64| Rows {
        address,
        strides: steps(&sizes, count, lying, parts),
    };
    let attention = Attention {
        q: operand(q, queries, parts),
        k: operand(k, keys, parts),
        v: operand(v, keys, parts),
        mask: mask(arena, &sizes, kind, element),
        y: operand(arena.room(element, batch * queries * width, 0), queries, 1),
        heads: sizes,
        alpha: 0.25 / (depth as f32).sqrt(),
        element,
    };
    positive(arena, &attention);
    attention
}

/// Makes values positive: sums of values of both signs cancel, and cannot be compared.
fn positive(arena: &mut Arena, it: &Attention) {
    let Heads {
        batch,
        heads,
        keys,
        depth,
        ..
    } = it.heads;
    for index in 0..batch * heads * keys * depth {
        let at = [
            index / depth / keys / heads,
            index / depth / keys % heads,
            index / depth % keys,
            index % depth,
        ];
        let steps = at.iter().zip(it.v.operand().strides);
        let offset: u64 = steps.map(|(at, step)| at * step.cast_unsigned()).sum();
        let value = stored_float(it.element, arena.numbers.float().abs() + 0.1);
        arena.put(it.v.address + offset * it.element.bytes(), &value);
    }
}

#[test]
fn heads_of_all_sizes() {
    let mut checker = Checker::new();
    let mut seed = 9000;
    for element in HALVES {
        for sizes in HEADS.map(heads) {
            for lying in [HeadLayout::Heads, HeadLayout::Tokens] {
                seed += 1;
                let mut arena = Arena::new(seed);
                let kind = [Mask::None, Mask::Keys, Mask::Pairs, Mask::Whole][seed as usize % 4];
                let operation = attention(&mut arena, sizes, lying, kind, element);
                checker.check(arena, Operation::Attention(operation));
            }
        }
    }
}

#[test]
fn masks_of_all_shapes() {
    let mut checker = Checker::new();
    let mut seed = 9500;
    for element in HALVES {
        for sizes in [[2, 2, 9, 70, 16], [1, 3, 66, 5, 64], [2, 1, 3, 40, 96]].map(heads) {
            for kind in [Mask::None, Mask::Keys, Mask::Pairs, Mask::Whole] {
                seed += 1;
                let mut arena = Arena::new(seed);
                let operation = attention(&mut arena, sizes, HeadLayout::Tokens, kind, element);
                checker.check(arena, Operation::Attention(operation));
            }
        }
    }
}

/// Softmax of only negative infinities is NaN. Softmax of only the lowest numbers gives every key the same weight.
#[test]
fn rows_that_are_hidden_whole() {
    let mut checker = Checker::new();
    for element in HALVES {
        let lowest = match element {
            Element::F16 => half::f16::MIN.to_f32(),
            _ => half::bf16::MIN.to_f32(),
        };
        for (seed, value) in [(9900, f32::NEG_INFINITY), (9901, lowest)] {
            let mut arena = Arena::new(seed);
            let sizes = heads([2, 2, 5, 67, 32]);
            let operation = attention(&mut arena, sizes, HeadLayout::Heads, Mask::Keys, element);
            let mask = operation.mask.expect("asked for");
            let value = stored_float(element, value);
            // All keys of the first sequence, and the keys of the first tile of the second one.
            for at in 0..67 + 64 {
                arena.put(mask.address + at * element.bytes(), &value);
            }
            checker.check(arena, Operation::Attention(operation));
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused() {
    let mut checker = Checker::new();
    let mut arena = Arena::new(9990);
    let sizes = heads([1, 2, 4, 4, 16]);
    let good = attention(
        &mut arena,
        sizes,
        HeadLayout::Heads,
        Mask::None,
        Element::F16,
    );
    let mut skewed = good;
    skewed.k.address = good.k.address + 2;
    let mut steps = good;
    steps.q.strides[2] = 20;
    let mut deep = good;
    deep.heads.depth = 136;
    let mut odd = good;
    odd.heads.depth = 12;
    let single = Attention {
        element: Element::F32,
        ..good
    };
    for wrong in [skewed, steps, deep, odd, single] {
        checker.refuse(&Operation::Attention(wrong));
    }
}
