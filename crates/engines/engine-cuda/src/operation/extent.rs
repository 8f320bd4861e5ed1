//! The bytes that an operation touches.

use std::ops::Range;

use super::{
    Address, Attention, Binary, Convolution, Element, Gather, Gemm, MAX_RANK, Matrix, Operand,
    Operation, Select, Sizes, Stage,
};

pub(super) fn reads<S: Stage>(operation: &Operation<S>) -> Vec<Range<Address<S>>> {
    match operation {
        Operation::Gemm(it) => gemm_reads(it),
        Operation::Convolution(it) => convolution_reads(it),
        Operation::Im2col(it) => {
            let count = it.batch * it.channels * it.window.in_count();
            vec![plain(it.x, count, it.element)]
        }
        Operation::Affine(it) => {
            let count = it.outer * it.channels * it.inner;
            let vectors = [it.scale, it.shift].into_iter().flatten();
            let vectors = vectors.map(|at| plain(at, it.channels, it.element));
            vectors.chain([plain(it.x, count, it.element)]).collect()
        }
        Operation::Pool(it) => {
            let count = it.planes * it.window.in_count() * it.inner;
            vec![plain(it.x, count, it.element)]
        }
        Operation::Unary(it) => vec![plain(it.x, it.count, it.element)],
        Operation::Binary(Binary {
            a,
            b,
            sizes,
            element,
            ..
        }) => vec![strided(a, sizes, *element), strided(b, sizes, *element)],
        Operation::Select(it) => select_reads(it),
        Operation::Reduce(it) => vec![plain(it.x, it.span.count(), it.element)],
        Operation::Arg(it) => vec![plain(it.x, it.span.count(), it.element)],
        Operation::Softmax(it) => vec![plain(it.x, it.span.count(), it.element)],
        Operation::LayerNorm(it) => {
            let vectors = [it.scale, it.shift].into_iter().flatten();
            let vectors = vectors.map(|at| plain(at, it.length, it.element));
            let input = plain(it.x, it.rows * it.length, it.element);
            vectors.chain([input]).collect()
        }
        Operation::Attention(it) => attention_reads(it),
        Operation::Gather(it) => gather_reads(it),
        Operation::Copy(it) => vec![strided(&it.x, &it.sizes, it.x_element)],
        Operation::Fill(_) => Vec::new(),
    }
}

pub(super) fn writes<S: Stage>(operation: &Operation<S>) -> Range<Address<S>> {
    match operation {
        Operation::Gemm(it) => matrix(&it.c, it.m, it.n, it),
        Operation::Convolution(it) => {
            let count = it.batch * it.out_channels * it.window.out_count();
            plain(it.y, count, it.element)
        }
        Operation::Im2col(it) => {
            let rows = it.batch * it.channels * it.window.kernel_count();
            plain(it.y, rows * it.window.out_count(), it.element)
        }
        Operation::Affine(it) => plain(it.y, it.outer * it.channels * it.inner, it.element),
        Operation::Pool(it) => {
            let count = it.planes * it.window.out_count() * it.inner;
            plain(it.y, count, it.element)
        }
        Operation::Unary(it) => plain(it.y, it.count, it.element),
        Operation::Binary(it) => plain(it.y, it.sizes.count(), it.result()),
        Operation::Select(it) => plain(it.y, it.sizes.count(), it.element),
        Operation::Reduce(it) => plain(it.y, it.span.reduced(), it.element),
        Operation::Arg(it) => plain(it.y, it.span.reduced(), Element::I64),
        Operation::Softmax(it) => plain(it.y, it.span.count(), it.element),
        Operation::LayerNorm(it) => plain(it.y, it.rows * it.length, it.element),
        Operation::Attention(it) => strided(&it.y.operand(), &it.heads.of_queries(), it.element),
        Operation::Gather(it) => plain(it.y, it.outer * it.count * it.inner, it.element),
        Operation::Copy(it) => strided(&it.y, &it.sizes, it.y_element),
        Operation::Fill(it) => strided(&it.y, &it.sizes, it.element),
    }
}

fn gemm_reads<S: Stage>(it: &Gemm<S>) -> Vec<Range<Address<S>>> {
    let bias = it.bias.map(|at| plain(at, it.n, it.element));
    let factors = [matrix(&it.a, it.m, it.k, it), matrix(&it.b, it.k, it.n, it)];
    let addend = it.addend.map(|address| {
        let addend = Matrix { address, ..it.c };
        matrix(&addend, it.m, it.n, it)
    });
    factors.into_iter().chain(bias).chain(addend).collect()
}

fn convolution_reads<S: Stage>(it: &Convolution<S>) -> Vec<Range<Address<S>>> {
    let inputs = it.batch * it.in_channels * it.window.in_count();
    let weights = it.out_channels * (it.in_channels / it.groups) * it.window.kernel_count();
    let bias = it.bias.map(|at| plain(at, it.out_channels, it.element));
    let operands = [
        plain(it.x, inputs, it.element),
        plain(it.weights, weights, it.element),
    ];
    let outputs = it.batch * it.out_channels * it.window.out_count();
    let addend = it.addend.map(|at| plain(at, outputs, it.element));
    operands.into_iter().chain(bias).chain(addend).collect()
}

fn select_reads<S: Stage>(it: &Select<S>) -> Vec<Range<Address<S>>> {
    vec![
        strided(&it.condition, &it.sizes, Element::Bool),
        strided(&it.a, &it.sizes, it.element),
        strided(&it.b, &it.sizes, it.element),
    ]
}

fn attention_reads<S: Stage>(it: &Attention<S>) -> Vec<Range<Address<S>>> {
    let heads = &it.heads;
    let mask = it.mask.iter();
    let mask = mask.map(|mask| strided(mask, &heads.of_scores(), it.element));
    let own = [
        strided(&it.q.operand(), &heads.of_queries(), it.element),
        strided(&it.k.operand(), &heads.of_keys(), it.element),
        strided(&it.v.operand(), &heads.of_keys(), it.element),
    ];
    own.into_iter().chain(mask).collect()
}

fn gather_reads<S: Stage>(it: &Gather<S>) -> Vec<Range<Address<S>>> {
    vec![
        plain(it.table, it.outer * it.rows * it.inner, it.element),
        plain(it.indices, it.count, it.index),
    ]
}

fn plain<S: Stage>(address: Address<S>, count: u64, element: Element) -> Range<Address<S>> {
    address..address + count * element.bytes()
}

/// The bytes of a matrix that is `rows x columns` in the product; a transposed one is stored as `columns x rows`.
fn matrix<S: Stage>(it: &Matrix<S>, rows: u64, columns: u64, gemm: &Gemm<S>) -> Range<Address<S>> {
    let (rows, columns) = if it.transposed {
        (columns, rows)
    } else {
        (rows, columns)
    };
    if rows * columns * gemm.batch == 0 {
        return it.address..it.address;
    }
    let last = (gemm.batch - 1) * it.batch_stride + (rows - 1) * it.row_stride + columns - 1;
    plain(it.address, last + 1, gemm.element)
}

fn strided<S: Stage>(operand: &Operand<S>, sizes: &Sizes, element: Element) -> Range<Address<S>> {
    if sizes.count() == 0 {
        return operand.address..operand.address;
    }
    let steps = (0..MAX_RANK).map(|at| (sizes.sizes[at] as i64 - 1) * operand.strides[at]);
    let (mut first, mut last) = (0, 0);
    for step in steps {
        if step < 0 {
            first += step;
        } else {
            last += step;
        }
    }
    let bytes = element.bytes();
    let at = |index: i64| operand.address.moved(index * bytes as i64);
    at(first)..at(last) + bytes
}
