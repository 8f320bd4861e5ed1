//! Pipelines that ask other pipelines.

use std::collections::{BTreeMap, BTreeSet};

use sextant_types::ApplicationId;

use crate::{Definition, Invalid};

/// Most levels of nested pipelines, the outermost included.
const MOST_DEPTH: usize = 8;

/// Which pipelines each pipeline asks.
#[derive(Debug, Default)]
pub struct Nesting(BTreeMap<ApplicationId, BTreeSet<ApplicationId>>);

// === impl Nesting ===

impl Nesting {
    /// Reads which pipelines the given ones ask, by their names.
    pub fn new<'a>(
        pipelines: impl IntoIterator<Item = (&'a ApplicationId, &'a Definition)>,
    ) -> Self {
        let asks: BTreeMap<_, _> = pipelines
            .into_iter()
            .map(|(name, definition)| (name.clone(), definition.applications()))
            .collect();
        let names: BTreeSet<ApplicationId> = asks.keys().cloned().collect();
        let nested = asks.into_iter().map(|(name, asked)| {
            let asked = asked.intersection(&names).cloned().collect();
            (name, asked)
        });
        Self(nested.collect())
    }

    /// The pipelines, each after those that it asks. Pipelines that ask themselves through others are left out.
    pub fn in_order(&self) -> Vec<ApplicationId> {
        let mut order = Vec::with_capacity(self.0.len());
        let mut done = BTreeSet::new();
        loop {
            let is_next = |(name, asked): &(&ApplicationId, &BTreeSet<ApplicationId>)| {
                !done.contains(*name) && asked.is_subset(&done)
            };
            let next: Vec<_> = self
                .0
                .iter()
                .filter(is_next)
                .map(|(name, _)| name.clone())
                .collect();
            if next.is_empty() {
                return order;
            }
            done.extend(next.iter().cloned());
            order.extend(next);
        }
    }

    /// Checks that a pipeline neither asks itself through others nor is nested too deeply.
    ///
    /// # Errors
    /// Names the step that begins the circle and the pipelines in it, or says how deep the nesting is.
    pub fn check(&self, definition: &Definition) -> Result<(), Invalid> {
        let name = definition.application()?;
        if let Some(circle) = self.way(&name, &name) {
            let first = circle.get(1).unwrap_or(&name);
            let way: Vec<String> = circle.iter().map(|it| format!("`{it}`")).collect();
            let why = format!(
                "names the pipeline `{first}`, and `{name}` would ask itself: {}",
                way.join(" asks ")
            );
            let step = definition.step_that_asks(first).unwrap_or_default();
            return Err(Invalid::step(step, "application", why));
        }
        let depth = self.below(&name) + self.above(&name) - 1;
        if depth > MOST_DEPTH {
            let why = format!("makes {depth} pipelines lie in each other: {MOST_DEPTH} may");
            return Err(Invalid::whole("steps", why));
        }
        Ok(())
    }

    /// The shortest path from a pipeline to another one that it asks, both included.
    fn way(&self, from: &ApplicationId, to: &ApplicationId) -> Option<Vec<ApplicationId>> {
        let mut ways = vec![vec![from.clone()]];
        let mut met = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                for next in way
                    .last()
                    .and_then(|last| self.0.get(last))
                    .into_iter()
                    .flatten()
                {
                    let further = [&way[..], std::slice::from_ref(next)].concat();
                    if next == to {
                        return Some(further);
                    }
                    if met.insert(next.clone()) {
                        longer.push(further);
                    }
                }
            }
            ways = longer;
        }
        None
    }

    /// Number of pipelines in the longest chain that begins with this one.
    fn below(&self, name: &ApplicationId) -> usize {
        let mut heights: BTreeMap<ApplicationId, usize> = BTreeMap::new();
        for next in self.in_order() {
            let asked = self.0.get(&next).into_iter().flatten();
            let most = asked.filter_map(|it| heights.get(it)).max();
            let height = 1 + most.copied().unwrap_or(0);
            heights.insert(next, height);
        }
        heights.get(name).copied().unwrap_or(1)
    }

    /// Number of pipelines in the longest chain that ends with this one.
    fn above(&self, name: &ApplicationId) -> usize {
        let mut depths: BTreeMap<ApplicationId, usize> = BTreeMap::new();
        for next in self.in_order().into_iter().rev() {
            let asking = self.0.iter().filter(|(_, asked)| asked.contains(&next));
            let most = asking.filter_map(|(it, _)| depths.get(it)).max();
            let depth = 1 + most.copied().unwrap_or(0);
            depths.insert(next, depth);
        }
        depths.get(name).copied().unwrap_or(1)
    }
}
