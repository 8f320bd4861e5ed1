//! Builds the graph of a pipeline from the parts that ask something. The parts come from a pipeline's definition or
//! from counts of its queries.
//!
//! A step that is split is several parts with one name, of which a query runs one. If a step is itself a pipeline, the
//! steps of that pipeline are parts named after the step, `step.inner`. What waits for `step` waits for all of them.

use rand::Rng;

use crate::{Choice, Fit, Graph, Invalid, Scale, Step};

/// Separates the name of a step that is split from what one of its arms asks. No name contains it.
const ARM: &str = " of ";

/// The number of queries in the sample from which the probabilities of parts are computed.
const COUNTED: usize = 10_000;

/// A part of a pipeline that asks something.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The name of its step.
    pub step: String,
    /// What it asks. Parts of one step differ in this.
    pub asks: String,
    /// The names of the steps that it waits for. If there are none, it begins with the query.
    pub after: Vec<String>,
    /// How often it runs.
    pub often: Frequency,
    /// Mean rows of a query that runs it.
    pub rows: f64,
    /// The choices that may run it.
    pub choices: Vec<Choice>,
}

/// How often a part runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Frequency {
    /// It runs for this share of all queries.
    OfAll(f64),
    /// It runs with this probability if a part that it waits for ran.
    WhereItCould(f64),
}

/// Sorts parts so that each comes after those that it waits for. `of` gives the name of a part and what it waits for.
/// Returns `None` if a part waits for a step that does not exist, or for itself.
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

/// The name of the pipeline's step to which a step of a [`graph`] belongs, as the step itself or as one of its arms.
pub fn step_of(name: &str) -> &str {
    name.split_once(ARM).map_or(name, |(step, _)| step)
}

/// Whether a step is the step `name`, or a step of the pipeline that `name` is.
fn is_within(step: &str, name: &str) -> bool {
    let rest = step.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The graph of parts, each of which comes after those that it waits for. Its steps are these parts, in their order.
/// Equal parts and equal random numbers make equal graphs.
///
/// # Errors
/// If the parts cannot be planned, as [`Graph::new`] says.
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

/// Positions of the parts for which a part waits.
fn before(parts: &[Part], of: &Part) -> Vec<usize> {
    let is_before = |it: &Part| of.after.iter().any(|name| is_within(&it.step, name));
    let all = parts.iter().enumerate();
    all.filter(|(_, it)| is_before(it))
        .map(|(at, _)| at)
        .collect()
}

/// Positions of the parts of the same split, of which a query runs one, including this one.
fn split(parts: &[Part], at: usize) -> Vec<usize> {
    let all = 0..parts.len();
    all.filter(|it| parts[*it].step == parts[at].step).collect()
}

/// The name of a part in the graph. For a split it includes what the part asks.
fn name(parts: &[Part], at: usize) -> String {
    let of = &parts[at];
    match split(parts, at).len() {
        1 => of.step.clone(),
        _ => format!("{}{ARM}{}", of.step, of.asks),
    }
}
