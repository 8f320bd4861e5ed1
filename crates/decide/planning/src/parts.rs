//! The graph of a pipeline from the parts that ask something, whoever knows them: what answers a pipeline's queries, or what
//! was counted of them.
//!
//! A step that is split is several parts of one name, of which a query runs one. The steps of a pipeline that is a step are
//! parts named after that step, `step.inner`; what waits for `step` waits for all of them.

use rand::Rng;

use crate::{Choice, Fit, Graph, Invalid, Scale, Step};

/// Between the name of a step that is split and whom one of its arms asks: no name has it.
const ARM: &str = " of ";

/// Queries by which the probabilities of parts are found from how often they ran.
const COUNTED: usize = 10_000;

/// What asks something.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The name of its step.
    pub step: String,
    /// Whom it asks: parts of one step differ in that.
    pub asks: String,
    /// The names of the steps that it waits for. Without any it begins with the query.
    pub after: Vec<String>,
    /// How often it runs.
    pub often: Frequency,
    /// Mean rows of a query that runs it.
    pub rows: f64,
    /// What may run it.
    pub choices: Vec<Choice>,
}

/// How often a part runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Frequency {
    /// As this share of all queries.
    OfAll(f64),
    /// With this probability where a part that it waits for ran.
    WhereItCould(f64),
}

/// Parts after those that they wait for, by how each is called and what it waits for; `None` where one waits for a step that
/// is not there, or for itself.
pub fn in_order<T>(mut left: Vec<T>, of: impl Fn(&T) -> (&str, &[String])) -> Option<Vec<T>> {
    let mut done: Vec<T> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_done = |name: &String| {
            let is_of = |it: &T| is_within(of(it).0, name);
            !left.iter().any(is_of) && done.iter().any(is_of)
        };
        let next = left.iter().position(|it| of(it).1.iter().all(is_done))?;
        done.push(left.remove(next));
    }
    Some(done)
}

/// The step that a step of a [`graph`] is, or that it is an arm of.
pub fn step_of(name: &str) -> &str {
    name.split_once(ARM).map_or(name, |(step, _)| step)
}

/// Whether a step is this one, or one of the pipeline that this one is.
fn is_within(step: &str, name: &str) -> bool {
    let rest = step.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The graph of parts, each of which comes after those that it waits for. Its steps are they, in their order. Equal parts and
/// equal chances make equal graphs.
///
/// # Errors
/// When they cannot be planned, as [`Graph::new`] says.
pub fn graph(parts: Vec<Part>, random: &mut impl Rng) -> Result<Graph, Invalid> {
    let mut fit = Fit::new(COUNTED);
    let names: Vec<String> = (0..parts.len()).map(|at| name(&parts, at)).collect();
    let splits: Vec<Vec<usize>> = (0..parts.len()).map(|at| split(&parts, at)).collect();
    let afters: Vec<Vec<usize>> = parts.iter().map(|it| before(&parts, it)).collect();
    let each = parts.into_iter().zip(names).zip(afters).zip(&splits);
    let steps = each
        .enumerate()
        .map(|(at, (((part, name), after), split))| {
            let apart = split.iter().copied().filter(|it| *it < at);
            let apart: Vec<usize> = apart.collect();
            Step {
                name,
                scale: Scale {
                    probability: fit.add(&after, &apart, part.often, random),
                    rows: part.rows.max(1.0),
                },
                after,
                choices: part.choices,
            }
        });
    let steps: Vec<Step> = steps.collect();
    let splits = splits.into_iter().enumerate();
    let splits = splits.filter(|(at, of)| of.len() > 1 && of[0] == *at);
    Graph::new(steps)?.with_splits(splits.map(|(_, of)| of).collect())
}

/// Positions of the parts that one waits for.
fn before(parts: &[Part], of: &Part) -> Vec<usize> {
    let is_before = |it: &Part| of.after.iter().any(|name| is_within(&it.step, name));
    let all = parts.iter().enumerate();
    all.filter(|(_, it)| is_before(it))
        .map(|(at, _)| at)
        .collect()
}

/// Positions of the parts of which a query runs one in place of this one, with its own.
fn split(parts: &[Part], at: usize) -> Vec<usize> {
    let all = 0..parts.len();
    all.filter(|it| parts[*it].step == parts[at].step).collect()
}

/// What a part is called in the graph; of a split, with whom it asks.
fn name(parts: &[Part], at: usize) -> String {
    let of = &parts[at];
    match split(parts, at).len() {
        1 => of.step.clone(),
        _ => format!("{}{ARM}{}", of.step, of.asks),
    }
}
