//! Launches along one dimension.

use sextant_engine::Error;

use super::{Launch, Parameters, aligned, float_only, suffix, unsupported};
use crate::operation::{Address, Arg, Element, LayerNorm, Reduce, ReduceFunction, Softmax, Span};

pub(super) fn reduce(it: &Reduce) -> Result<Option<Launch>, Error> {
    number_only("a reduction", it.element)?;
    if it.function == ReduceFunction::L2 {
        float_only("a root", it.element)?;
    }
    let function = match it.function {
        ReduceFunction::Sum => 0,
        ReduceFunction::Mean => 1,
        ReduceFunction::Max => 2,
        ReduceFunction::Min => 3,
        ReduceFunction::Product => 4,
        ReduceFunction::L2 => 5,
        ReduceFunction::SumSquare => 6,
    };
    let line = Line::new("reduce", it.x, it.y, &it.span, it.element);
    Ok(line.launch(|parameters| parameters.i32(function)))
}

pub(super) fn arg(it: &Arg) -> Result<Option<Launch>, Error> {
    number_only("an index of an extreme value", it.element)?;
    let (largest, last) = (i32::from(it.largest), i32::from(it.last));
    let line = Line::new("arg", it.x, it.y, &it.span, it.element);
    Ok(line.launch(|parameters| parameters.i32(largest).i32(last)))
}

pub(super) fn softmax(it: &Softmax) -> Result<Option<Launch>, Error> {
    float_only("softmax", it.element)?;
    let line = Line::new("softmax", it.x, it.y, &it.span, it.element);
    let rows = it.span.reduced();
    let short = in_registers(it.span.length, &[it.x, it.y]);
    if it.span.inner == 1 && rows > 0 && short {
        let parameters = Parameters::default()
            .address(it.x)
            .address(it.y)
            .u64s(&[rows, it.span.length])
            .i32(i32::from(it.logarithm));
        let kernel = format!("softmax_warps_{}", suffix(it.element));
        return Ok(Some(Launch::warps(kernel, rows, parameters)));
    }
    Ok(line.launch(|parameters| parameters.i32(i32::from(it.logarithm))))
}

pub(super) fn layer_norm(it: &LayerNorm) -> Result<Option<Launch>, Error> {
    float_only("layer normalisation", it.element)?;
    if it.rows * it.length == 0 {
        return Ok(None);
    }
    let parameters = Parameters::default()
        .address(it.x)
        .address(it.y)
        .optional(it.scale)
        .optional(it.shift)
        .u64s(&[it.rows, it.length])
        .f32(it.epsilon);
    let suffix = suffix(it.element);
    if in_registers(it.length, &[it.x, it.y]) {
        let kernel = format!("layer_norm_warps_{suffix}");
        return Ok(Some(Launch::warps(kernel, it.rows, parameters)));
    }
    let kernel = format!("layer_norm_{suffix}");
    Ok(Some(Launch::rows(kernel, it.rows, it.length, parameters)))
}

/// Whether one warp holds a row in its registers: four neighbouring values a lane at a time.
fn in_registers(length: u64, addresses: &[Address]) -> bool {
    const MOST: u64 = 8 * 32 * 4;
    (4..=MOST).contains(&length) && length.is_multiple_of(4) && aligned(addresses)
}

/// A kernel that has a form for rows and one for columns.
struct Line<'a> {
    family: &'static str,
    x: Address,
    y: Address,
    span: &'a Span,
    element: Element,
}

// === impl Line ===

impl<'a> Line<'a> {
    fn new(family: &'static str, x: Address, y: Address, span: &'a Span, element: Element) -> Self {
        Self {
            family,
            x,
            y,
            span,
            element,
        }
    }

    fn launch(&self, last: impl FnOnce(Parameters) -> Parameters) -> Option<Launch> {
        let Span { length, inner, .. } = *self.span;
        let lines = self.span.reduced();
        if lines == 0 || length == 0 {
            return None;
        }
        let family = self.family;
        let suffix = suffix(self.element);
        let parameters = Parameters::default()
            .address(self.x)
            .address(self.y)
            .u64s(&[lines, length]);
        Some(if inner == 1 {
            let kernel = format!("{family}_rows_{suffix}");
            Launch::rows(kernel, lines, length, last(parameters))
        } else {
            let kernel = format!("{family}_columns_{suffix}");
            Launch::flat(kernel, lines, last(parameters.u64(inner)))
        })
    }
}

fn number_only(text: &str, element: Element) -> Result<(), Error> {
    match element {
        Element::I8 | Element::U8 | Element::Bool => Err(unsupported(text, element)),
        _ => Ok(()),
    }
}
