//! How often steps run, and on how many rows, as the user states it.

use std::{cell::RefCell, collections::BTreeSet};

use sextant_planning::{Graph, Scale, Step};

use crate::cli::Error;

/// What `--scale` says of steps.
#[derive(Debug, Default)]
pub struct Scales {
    all: Vec<(String, Scale)>,
    /// Those of which somebody asked.
    taken: RefCell<BTreeSet<String>>,
}

// === impl Scales ===

impl Scales {
    /// Reads `STEP=SHARE[:ROWS]`, of each step the last.
    ///
    /// # Errors
    /// What is none.
    pub fn parse(scales: &[String]) -> Result<Self, Error> {
        let all = scales.iter().map(|scale| {
            let (name, figures) = scale.split_once('=').ok_or_else(|| {
                Error::Usage(format!("`--scale {scale}`: it must be STEP=SHARE[:ROWS]"))
            })?;
            let (share, rows) = figures.split_once(':').unwrap_or((figures, "1"));
            let number = |text: &str| {
                text.parse::<f64>()
                    .map_err(|_| Error::Usage(format!("`--scale {scale}`: `{text}` is no number")))
            };
            let (probability, rows) = (number(share)?, number(rows)?);
            Ok((name.to_owned(), Scale { probability, rows }))
        });
        Ok(Self {
            all: all.collect::<Result<_, Error>>()?,
            taken: RefCell::default(),
        })
    }

    /// That of a step.
    pub fn of(&self, step: &str) -> Option<Scale> {
        let (_, scale) = self.all.iter().rev().find(|(name, _)| name == step)?;
        self.taken.borrow_mut().insert(step.to_owned());
        Some(*scale)
    }

    /// Whether each step was asked of.
    ///
    /// # Errors
    /// Which one is not planned.
    pub fn check(&self) -> Result<(), Error> {
        let taken = self.taken.borrow();
        match self.all.iter().find(|(name, _)| !taken.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!(
                "`--scale {name}`: no step that is planned is called `{name}`"
            ))),
        }
    }

    /// A graph with these in place of its own.
    ///
    /// # Errors
    /// When a step is not there, or a scale is out of its range.
    pub fn onto(&self, graph: &Graph) -> Result<Graph, Error> {
        let steps = graph.steps().iter().map(|step| Step {
            scale: self.of(&step.name).unwrap_or(step.scale),
            ..step.clone()
        });
        let steps = steps.collect();
        self.check()?;
        let graph = Graph::new(steps).and_then(|it| it.with_splits(graph.splits().to_vec()));
        graph.map_err(|error| Error::Usage(error.to_string()))
    }
}
