//! Conditions of steps: expressions over the outputs of other steps.

mod cost;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cel::{
    Context, IdedExpr, Program, Value,
    common::ast::{EntryExpr, Expr},
};
use sextant_types::{Data, NamedTensor, Tensor, convert};

use self::cost::{Extent, Given};

/// Longest expression, bytes.
const MOST_BYTES: usize = 1024;

/// Most elements of a tensor that an expression can read.
const MOST_ELEMENTS: usize = 1024;

/// Most loops over a list in an expression. The cost grows with the power of their number.
const MOST_LOOPS: usize = 2;

/// Most steps that the evaluation of an expression with loops may take; they take some tenths of a second.
const MOST_STEPS: f64 = 2_097_152.0;

/// A parsed condition.
pub(crate) struct Condition {
    text: String,
    program: Program,
    steps: BTreeSet<String>,
    seen: Seen,
}

/// The names that the parser met in an expression.
#[derive(Default)]
struct Seen {
    loops: usize,
    /// Variables that its loops define.
    variables: BTreeSet<String>,
    /// Names whose members the expression selects.
    selected: BTreeSet<String>,
    /// Members whose presence the expression tests: `has(name.member)`.
    tested: BTreeSet<(String, String)>,
}

// === impl Condition ===

impl Condition {
    /// Parses an expression of the Common Expression Language.
    ///
    /// # Errors
    /// Why the text is no such expression.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("has more than {MOST_BYTES} bytes"));
        }
        let program = Program::compile(text).map_err(|error| {
            let why = error.to_string();
            format!(
                "is no expression: {}",
                why.lines().next().unwrap_or_default().trim()
            )
        })?;
        let mut seen = Seen::default();
        each(program.expression(), &mut |expression| {
            seen.note(expression);
        });
        if seen.loops > MOST_LOOPS {
            return Err(format!(
                "has more than {MOST_LOOPS} of `all`, `exists`, `exists_one`, `map` and `filter`"
            ));
        }
        let steps = program
            .references()
            .variables()
            .into_iter()
            .map(str::to_owned)
            .collect();
        Ok(Self {
            text: text.to_owned(),
            program,
            steps,
            seen,
        })
    }

    /// The expression as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names that the expression does not define itself: steps. The variables of its loops are among them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(String::as_str)
    }

    /// Whether a name that is no step's may still be valid: the variable of a loop or, where the expression calls
    /// functions, the name of a type or of the object of a call.
    pub fn is_own(&self, name: &str) -> bool {
        let is_member_named = self.seen.selected.contains(name);
        self.seen.variables.contains(name) || (self.text.contains('(') && !is_member_named)
    }

    /// Whether the condition holds, given the outputs of each step. A skipped step has no outputs.
    ///
    /// # Errors
    /// Why the condition cannot be evaluated.
    pub fn holds<'a>(
        &self,
        given: impl Iterator<Item = (&'a str, &'a [NamedTensor])>,
    ) -> Result<bool, String> {
        let given: Vec<(&str, &[NamedTensor])> = given.collect();
        self.check_cost(&given)?;
        let mut context = Context::default();
        for (step, outputs) in given {
            let mut values = HashMap::new();
            for output in outputs {
                if output.tensor.len() <= MOST_ELEMENTS {
                    values.insert(output.name.clone(), value(&output.tensor));
                } else if self.is_tested(step, &output.name) {
                    // The expression may test that the tensor is there, but not read its elements.
                    values.insert(output.name.clone(), Value::Null);
                }
            }
            context.add_variable_from_value(step, values);
        }
        match self.program.execute(&context) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err(format!(
                "its condition `{}` is neither true nor false",
                self.shown()
            )),
            Err(error) => Err(format!(
                "its condition `{}` cannot be told: {error} (a condition sees tensors of at most {MOST_ELEMENTS} elements)",
                self.shown()
            )),
        }
    }

    /// Refuses nested loops over long lists.
    fn check_cost(&self, given: &[(&str, &[NamedTensor])]) -> Result<(), String> {
        if self.seen.loops == 0 {
            return Ok(());
        }
        let given: Given<'_> = given
            .iter()
            .map(|(step, outputs)| (*step, extents(outputs)))
            .collect();
        if cost::steps(self.program.expression(), &given) <= MOST_STEPS {
            return Ok(());
        }
        Err(format!(
            "its condition `{}` cannot be told: its loops over tensors of this size may take more than {MOST_STEPS} steps",
            self.shown()
        ))
    }

    /// The beginning of a long expression, for messages.
    fn shown(&self) -> String {
        self.text.chars().take(200).collect()
    }

    fn is_tested(&self, step: &str, output: &str) -> bool {
        let mut tested = self.seen.tested.iter();
        tested.any(|(of, member)| of == step && member == output)
    }
}

// === impl Seen ===

impl Seen {
    fn note(&mut self, expression: &Expr) {
        match expression {
            Expr::Comprehension(of) => {
                self.loops += 1;
                let names = [&of.iter_var, &of.accu_var].into_iter();
                self.variables.extend(names.chain(&of.iter_var2).cloned());
            }
            Expr::Select(select) => {
                if let Expr::Ident(of) = &select.operand.expr {
                    self.selected.insert(of.clone());
                    if select.test {
                        self.tested.insert((of.clone(), select.field.clone()));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Calls `see` on an expression and on all expressions within it. It works on the parsed form, so notation does not
/// matter.
fn each(of: &IdedExpr, see: &mut dyn FnMut(&Expr)) {
    see(&of.expr);
    match &of.expr {
        Expr::Comprehension(of) => {
            let parts = [
                &of.iter_range,
                &of.accu_init,
                &of.loop_cond,
                &of.loop_step,
                &of.result,
            ];
            parts.into_iter().for_each(|it| each(it, see));
        }
        Expr::Call(call) => {
            let target = call.target.as_deref().into_iter();
            target.chain(&call.args).for_each(|it| each(it, see));
        }
        Expr::List(list) => list.elements.iter().for_each(|it| each(it, see)),
        Expr::Map(map) => map.entries.iter().for_each(|it| each_within(&it.expr, see)),
        Expr::Struct(of) => of.entries.iter().for_each(|it| each_within(&it.expr, see)),
        Expr::Select(select) => each(&select.operand, see),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

fn each_within(entry: &EntryExpr, see: &mut dyn FnMut(&Expr)) {
    match entry {
        EntryExpr::StructField(field) => each(&field.value, see),
        EntryExpr::MapEntry(entry) => {
            each(&entry.key, see);
            each(&entry.value, see);
        }
    }
}

/// The sizes of the outputs that an expression reads.
fn extents(outputs: &[NamedTensor]) -> BTreeMap<&str, Extent> {
    let seen = outputs.iter().filter(|it| it.tensor.len() <= MOST_ELEMENTS);
    seen.map(|it| (it.name.as_str(), Extent::of(&it.tensor)))
        .collect()
}

/// A tensor as nested lists.
fn value(tensor: &Tensor) -> Value {
    let elements: Vec<Value> = match tensor.data() {
        Data::Strings(strings) => strings
            .iter()
            .map(|it| Value::from(String::from_utf8_lossy(it).into_owned()))
            .collect(),
        Data::Plain(_) => convert::numbers(tensor)
            .into_iter()
            .flatten()
            .map(|number| match number {
                convert::Number::Integer(value) => {
                    i64::try_from(value).map_or(Value::Float(value as f64), Value::Int)
                }
                convert::Number::Float(value) => Value::Float(value),
            })
            .collect(),
    };
    nested(elements, tensor.shape())
}

/// Elements in row-major order as nested lists.
fn nested(elements: Vec<Value>, shape: &[usize]) -> Value {
    let mut level = elements;
    for size in shape.iter().skip(1).rev() {
        level = match size {
            0 => Vec::new(),
            size => level
                .chunks(*size)
                .map(|row| Value::from(row.to_vec()))
                .collect(),
        };
    }
    match shape.is_empty() {
        true => level.pop().unwrap_or(Value::Null),
        false => Value::from(level),
    }
}
