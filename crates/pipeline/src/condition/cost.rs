//! An upper bound of the cost of an expression, computed before its evaluation.
//!
//! The evaluator of the Common Expression Language has no limit of its own: two nested loops over a thousand elements
//! each take a million turns. This module follows the lengths of lists from the tensors on, expression by expression,
//! and derives how often each part is evaluated. It assumes that no loop ends early.

use std::collections::BTreeMap;

use cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, SelectExpr, operators,
    },
};
use sextant_types::{Data, Tensor};

/// Elements that are copied or compared in the time of one step of the evaluation.
const ELEMENTS_A_STEP: f64 = 8.0;

/// Bytes of a string that are copied or compared in the time of one element.
const BYTES_AN_ELEMENT: usize = 64;

/// Operators that read single elements and return one.
const PLAIN: [&str; 13] = [
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::NEGATE,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
];

/// Upper bounds of a value's length at each level of nested lists. A value that is no list has no level.
#[derive(Debug, Clone, Default)]
pub(super) struct Extent(Vec<f64>);

/// The sizes of the outputs of steps, by step and output.
pub(super) type Given<'g> = BTreeMap<&'g str, BTreeMap<&'g str, Extent>>;

/// Most parts of an expression that are evaluated. A part that is evaluated several times counts as often; copies and
/// comparisons of long values count as several.
pub(super) fn steps(of: &IdedExpr, given: &Given<'_>) -> f64 {
    let mut follower = Follower {
        given,
        variables: Vec::new(),
    };
    follower.bound(of).steps
}

/// Follows an expression.
struct Follower<'e> {
    given: &'e Given<'e>,
    /// The variables of the enclosing loops, the innermost last.
    variables: Vec<(&'e str, Extent)>,
}

/// The largest size of a value, and the cost of computing it.
struct Bound {
    extent: Extent,
    steps: f64,
}

// === impl Extent ===

impl Extent {
    /// The extent of a tensor as nested lists.
    pub(super) fn of(tensor: &Tensor) -> Self {
        let mut levels: Vec<f64> = tensor.shape().iter().map(|size| *size as f64).collect();
        if let Data::Strings(strings) = tensor.data() {
            let longest = strings.iter().map(|it| it.len()).max().unwrap_or_default();
            levels.push((longest / BYTES_AN_ELEMENT + 1) as f64);
        }
        Self(levels)
    }

    /// The extent of a list of such values.
    fn listed(&self, length: f64) -> Self {
        let items = self.0.iter().copied();
        Self(std::iter::once(length).chain(items).collect())
    }

    /// The extent of an element.
    fn item(&self) -> Self {
        Self(self.0.iter().skip(1).copied().collect())
    }

    /// The larger of two extents, level by level.
    fn or(&self, other: &Self) -> Self {
        let levels = self.0.len().max(other.0.len());
        let level = |of: &Self, at: usize| of.0.get(at).copied().unwrap_or_default();
        let larger = |at: usize| level(self, at).max(level(other, at));
        Self((0..levels).map(larger).collect())
    }

    /// The extent of two lists joined.
    fn and(&self, other: &Self) -> Self {
        let mut both = self.or(other);
        let length = self.length() + other.length();
        if let Some(first) = both.0.first_mut() {
            *first = length;
        }
        both
    }

    /// The extent of the list repeated `times` times.
    fn times(mut self, times: f64) -> Self {
        if let Some(first) = self.0.first_mut() {
            *first *= times;
        }
        self
    }

    fn length(&self) -> f64 {
        self.0.first().copied().unwrap_or_default()
    }

    fn elements(&self) -> f64 {
        self.0.iter().map(|level| level.max(1.0)).product()
    }
}

// === impl Follower ===

impl<'e> Follower<'e> {
    fn bound(&mut self, of: &'e IdedExpr) -> Bound {
        match &of.expr {
            Expr::Comprehension(of) => self.comprehension(of),
            Expr::Call(call) => self.call(call),
            Expr::Select(select) => self.select(select),
            Expr::List(list) => self.list(list.elements.iter()),
            Expr::Map(map) => self.list(map.entries.iter().flat_map(parts)),
            Expr::Struct(of) => self.list(of.entries.iter().flat_map(parts)),
            Expr::Ident(name) => Bound {
                extent: self.named(name),
                steps: 1.0,
            },
            Expr::Unspecified | Expr::Literal(_) => Bound {
                extent: Extent::default(),
                steps: 1.0,
            },
        }
    }

    fn named(&self, name: &str) -> Extent {
        match (self.variable(name), self.outputs(name)) {
            (Some(variable), _) => variable.clone(),
            (None, Some(outputs)) => {
                let largest = |largest: Extent, it: &Extent| largest.or(it);
                let largest = outputs.values().fold(Extent::default(), largest);
                largest.listed(outputs.len() as f64)
            }
            (None, None) => Extent::default(),
        }
    }

    /// The variable of a loop. A name with a leading point is no such variable.
    fn variable(&self, name: &str) -> Option<&Extent> {
        let mut variables = self.variables.iter().rev();
        variables.find(|(of, _)| *of == name).map(|(_, it)| it)
    }

    fn outputs(&self, step: &str) -> Option<&'e BTreeMap<&'e str, Extent>> {
        self.given.get(step.trim_start_matches('.'))
    }

    fn select(&mut self, select: &'e SelectExpr) -> Bound {
        let operand = self.bound(&select.operand);
        let outputs = match &select.operand.expr {
            Expr::Ident(name) if self.variable(name).is_none() => self.outputs(name),
            _ => None,
        };
        let extent = match outputs {
            _ if select.test => Extent::default(),
            Some(outputs) => {
                let output = outputs.get(select.field.as_str());
                output.cloned().unwrap_or_default()
            }
            None => operand.extent.item(),
        };
        Bound {
            extent,
            steps: operand.steps + 1.0,
        }
    }

    /// A list or a map. Its elements are copied.
    fn list(&mut self, elements: impl Iterator<Item = &'e IdedExpr>) -> Bound {
        let elements: Vec<Bound> = elements.map(|it| self.bound(it)).collect();
        Bound {
            extent: largest(&elements).listed(elements.len() as f64),
            steps: steps_of(&elements) + 1.0 + elements_of(&elements) / ELEMENTS_A_STEP,
        }
    }

    fn call(&mut self, call: &'e CallExpr) -> Bound {
        let target = call.target.as_deref().into_iter();
        let given = target.chain(&call.args).map(|it| self.bound(it));
        let given: Vec<Bound> = given.collect();
        let of = |at: usize| {
            let extent = given.get(at).map(|it| it.extent.clone());
            extent.unwrap_or_default()
        };
        let seen = elements_of(&given);
        let (extent, seen) = match call.func_name.as_str() {
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => (of(0).item(), 0.0),
            operators::CONDITIONAL => (of(1).or(&of(2)), 0.0),
            operators::ADD => (of(0).and(&of(1)), seen),
            operators::EQUALS | operators::NOT_EQUALS | operators::IN => (Extent::default(), seen),
            "size" => (Extent::default(), 0.0),
            plain if PLAIN.contains(&plain) => (Extent::default(), 0.0),
            // No function returns a larger value than its arguments.
            _ => (largest(&given), seen),
        };
        Bound {
            extent,
            steps: steps_of(&given) + 1.0 + seen / ELEMENTS_A_STEP,
        }
    }

    fn comprehension(&mut self, of: &'e ComprehensionExpr) -> Bound {
        let (range, begun) = (self.bound(&of.iter_range), self.bound(&of.accu_init));
        let (turns, item) = (range.extent.length(), range.extent.item());
        let copied = item.elements() / ELEMENTS_A_STEP;
        let around = self.variables.len();
        let names = std::iter::once(&of.iter_var).chain(&of.iter_var2);
        self.variables
            .extend(names.map(|name| (name.as_str(), item.clone())));
        let gathers = of.accu_var.as_str();
        self.variables.push((gathers, begun.extent.clone()));
        let goes_on = self.bound(&of.loop_cond);
        let turn = self.bound(&of.loop_step);
        let gathered = turn.extent.times(turns).or(&begun.extent);
        self.variables.push((gathers, gathered));
        let result = self.bound(&of.result);
        self.variables.truncate(around);
        let each = goes_on.steps + turn.steps + 1.0 + copied;
        Bound {
            extent: result.extent,
            steps: range.steps + begun.steps + turns * each + result.steps,
        }
    }
}

fn largest(of: &[Bound]) -> Extent {
    let extents = of.iter().map(|it| &it.extent);
    extents.fold(Extent::default(), |largest, it| largest.or(it))
}

fn steps_of(all: &[Bound]) -> f64 {
    all.iter().map(|it| it.steps).sum()
}

fn elements_of(all: &[Bound]) -> f64 {
    all.iter().map(|it| it.extent.elements()).sum()
}

/// The expressions in an entry of a map or a structure.
fn parts(entry: &IdedEntryExpr) -> Vec<&IdedExpr> {
    match &entry.expr {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
