//! Finds values that follow from sums of 64-bit integers that a 32-bit engine cuts.
//!
//! A sum of inputs that is converted to a float has lost its bits beyond 32 by then, and so has everything that is
//! computed from it. Sizes and positions are no inputs: no tensor has as many elements. An input that is moved by a
//! constant is not followed either: it exceeds 32 bits only at their very end. A lookup by such a sum reports that the
//! number is too large; a lookup by a remainder of the sum finds another element.

use std::collections::{HashMap, HashSet};

use sextant_types::DataType;

use super::{MOST, PASS_ON_FIRST, POSITIONS, Range, SMALL, UNITS, declared};
use crate::{
    proto::{GraphProto, NodeProto},
    tensor::element_type,
};

/// Operators whose results may be larger than their inputs.
const SUMS: [&str; 6] = ["Add", "Sub", "Sum", "Mul", "ReduceSum", "CumSum"];

/// A sum of two inputs may have this size.
const FAR: f64 = 2.0 * MOST;

/// What is known of the values so far.
#[derive(Default)]
struct Values<'g> {
    /// Integers of 64 bits.
    wide: HashSet<&'g str>,
    /// Constants, sizes, positions, and values that are computed from these alone.
    sizes: HashSet<&'g str>,
    /// Sums that may be cut, and all values that follow from them.
    cut: HashSet<&'g str>,
    /// The integers among these that are small again.
    hidden: HashSet<&'g str>,
}

/// Values of the main graph that follow from sums which may be cut. For each value it is known how large it can be, and
/// whether it has floats.
pub(super) fn cut<'g>(
    graph: &'g GraphProto,
    known: &HashMap<&'g str, Range>,
    floats: &HashSet<&'g str>,
) -> HashSet<&'g str> {
    let mut values = Values::default();
    let inputs = graph.input.iter();
    let inputs = inputs.filter(|it| declared(it) == Some(DataType::Int64));
    values.wide.extend(inputs.map(|it| it.name()));
    let constants = graph.initializer.iter();
    values.sizes.extend(constants.map(|it| it.name()));
    for node in &graph.node {
        values.follow(node, (known, floats));
    }
    values.cut
}

// === impl Values ===

impl<'g> Values<'g> {
    fn follow(
        &mut self,
        node: &'g NodeProto,
        (known, floats): (&HashMap<&'g str, Range>, &HashSet<&'g str>),
    ) {
        let operator = node.op_type();
        let (data, others) = operands(node);
        let any = |set: &HashSet<&str>, names: &[&str]| names.iter().any(|it| set.contains(*it));
        let is_cut = any(&self.cut, &data);
        let is_hidden = any(&self.hidden, &data) || any(&self.hidden, &others);
        let follows = is_cut || is_hidden;
        let are_sizes = data
            .iter()
            .chain(&others)
            .all(|it| self.sizes.contains(*it));
        let is_size = !follows && (are_sizes || POSITIONS.contains(&operator));
        let is_wide = match operator {
            "Cast" => makes_wide(node),
            operator if UNITS.contains(&operator) => false,
            operator => POSITIONS.contains(&operator) || any(&self.wide, &data),
        };
        let hides = is_cut && (SMALL.contains(&operator) || UNITS.contains(&operator));
        for output in node.output.iter().map(String::as_str) {
            let is_integer = !floats.contains(output);
            let most = known.get(output).map_or(f64::INFINITY, |it| it.most);
            let is_far = most.is_finite() && most >= FAR;
            let is_sum = SUMS.contains(&operator) && is_integer && is_wide && !is_size && is_far;
            for (set, is_in) in [
                (&mut self.wide, is_integer && is_wide),
                (&mut self.sizes, is_size),
                (&mut self.cut, follows || is_sum),
                (&mut self.hidden, is_integer && (hides || is_hidden)),
            ] {
                if is_in {
                    set.insert(output);
                }
            }
        }
    }
}

fn makes_wide(node: &NodeProto) -> bool {
    let to = node.attribute("to").map(|to| i32::try_from(to.i()));
    to.and_then(Result::ok).and_then(element_type) == Some(DataType::Int64)
}

/// The inputs from which a node's result is computed, and the others: shapes, axes, positions. None if only the shape
/// of the input matters.
fn operands(node: &NodeProto) -> (Vec<&str>, Vec<&str>) {
    let is_data = |at: usize| match node.op_type() {
        "TopK" | "Resize" | "Upsample" | "CumSum" | "ReduceSum" => at == 0,
        operator if PASS_ON_FIRST.contains(&operator) => at == 0,
        "ScatterElements" | "ScatterND" | "Pad" => at == 0 || at == 2,
        _ => true,
    };
    if matches!(node.op_type(), "Shape" | "Size" | "ConstantOfShape") {
        return (Vec::new(), Vec::new());
    }
    let inputs = node.input.iter().map(String::as_str).enumerate();
    let given = inputs.filter(|(_, name)| !name.is_empty());
    let (data, others): (Vec<_>, Vec<_>) = given.partition(|(at, _)| is_data(*at));
    (names(data), names(others))
}

fn names(of: Vec<(usize, &str)>) -> Vec<&str> {
    of.into_iter().map(|(_, name)| name).collect()
}
