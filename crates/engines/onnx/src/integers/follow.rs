//! What follows from sums of 64-bit integers that an engine of 32 bits cuts.
//!
//! A sum of inputs that is made a float has lost by then what it had beyond 32 bits, and so has all that is computed of
//! it. Sizes and positions are no inputs: no tensor has as many elements. Nor is an input that is moved by a constant
//! looked at: it leaves 32 bits at their very end alone. What is looked up by a sum says itself that it is too large; by a
//! remainder of one, it is another element.

use std::collections::{HashMap, HashSet};

use sextant_types::DataType;

use super::{MOST, PASS_ON_FIRST, POSITIONS, Range, SMALL, UNITS, declared};
use crate::{
    proto::{GraphProto, NodeProto},
    tensor::element_type,
};

/// Operators whose answers may be larger than what they are given.
const SUMS: [&str; 6] = ["Add", "Sub", "Sum", "Mul", "ReduceSum", "CumSum"];

/// A sum of two inputs may be as large.
const FAR: f64 = 2.0 * MOST;

/// What is known of the values so far.
#[derive(Default)]
struct Values<'g> {
    /// Integers of 64 bits.
    wide: HashSet<&'g str>,
    /// Constants, sizes, positions, and what is computed of these alone.
    sizes: HashSet<&'g str>,
    /// Sums that may be cut, and all that follows from them.
    cut: HashSet<&'g str>,
    /// Of these the integers that are small again.
    hidden: HashSet<&'g str>,
}

/// Values of the main graph that follow from sums which may be cut. Of each value it is known how large it can be, and
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

/// The inputs of which a node's answer is made, and the others: shapes, axes, positions. None where only the shape of
/// the input matters.
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
