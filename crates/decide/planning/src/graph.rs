//! A pipeline as planners see it: steps, what may run each, and what follows what.

use sextant_schedule::LatencyTable;

/// The most steps of a graph.
const MOST_STEPS: usize = 64;

/// The most choices of a step.
const MOST_CHOICES: usize = 1024;

/// Steps in an order in which each comes after those that it waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    steps: Vec<Step>,
    splits: Vec<Vec<usize>>,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The name of the step.
    pub name: String,
    /// Positions of the steps that it waits for, as far as a query visits them. If there are none, it begins with the
    /// query.
    pub after: Vec<usize>,
    /// How often it runs, and on how many rows.
    pub scale: Scale,
    /// The choices that may run it.
    pub choices: Vec<Choice>,
}

/// The share of the traffic that a step gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Probability that it runs if one of the steps before it ran, 0 to 1.
    pub probability: f64,
    /// Mean rows of a query that visits it, at least 1.
    pub rows: f64,
}

/// A variant on a device type.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Name of the variant.
    pub variant: String,
    /// The share of rows that it answers correctly, 0 to 1; 1 for a transform.
    pub accuracy: f64,
    /// Name of the device type.
    pub device: String,
    /// Price of one replica, US dollars an hour.
    pub price: f64,
    /// Run time by rows. Its length is the largest batch that may be planned.
    pub latency: LatencyTable,
}

/// Why a graph cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step `{step}` {why}")]
pub struct Invalid {
    /// The step's name; empty for the whole graph.
    pub step: String,
    /// The defect.
    pub why: String,
}

// === impl Graph ===

impl Graph {
    /// Checks steps, which come after those that they wait for.
    ///
    /// # Errors
    /// If there is no step or there are too many, a name appears twice, a step waits for a later one or has no choice,
    /// or a number is out of its range.
    pub fn new(steps: Vec<Step>) -> Result<Self, Invalid> {
        if steps.is_empty() || steps.len() > MOST_STEPS {
            let why = format!(
                "is one of {}: 1 to {MOST_STEPS} can be planned",
                steps.len()
            );
            return Err(invalid("", why));
        }
        for (at, step) in steps.iter().enumerate() {
            if steps[..at].iter().any(|other| other.name == step.name) {
                return Err(invalid(&step.name, "comes twice"));
            }
            if step.after.iter().any(|before| *before >= at) {
                return Err(invalid(
                    &step.name,
                    "waits for a step that is not before it",
                ));
            }
            step.check()?;
        }
        let splits = Vec::new();
        Ok(Self { steps, splits })
    }

    /// The same graph, in which a query runs at most one of the steps of each of these splits, as their probabilities
    /// say.
    ///
    /// # Errors
    /// If steps of a split do not wait for the same steps, one is in two splits, or their probabilities add up to more
    /// than 1.
    pub fn with_splits(self, splits: Vec<Vec<usize>>) -> Result<Self, Invalid> {
        let mut split = vec![false; self.steps.len()];
        for of in &splits {
            let mut sum = 0.0;
            for at in of {
                let Some(step) = self.steps.get(*at) else {
                    return Err(invalid("", format!("has no step `{at}` to be split")));
                };
                if std::mem::replace(&mut split[*at], true) {
                    return Err(invalid(&step.name, "is split twice"));
                }
                if step.after != self.steps[of[0]].after {
                    let why = "does not wait for what the others of its split wait for";
                    return Err(invalid(&step.name, why));
                }
                sum += step.scale.probability;
            }
            if sum > 1.0 + 1e-6 {
                let name = of.first().map_or("", |at| &self.steps[*at].name);
                let why =
                    format!("and the others of its split run with `{sum}` in all, not 0 to 1");
                return Err(invalid(name, why));
            }
        }
        Ok(Self { splits, ..self })
    }

    /// Positions of the steps of each split. A query runs at most one of them.
    pub fn splits(&self) -> &[Vec<usize>] {
        &self.splits
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The graph with the choices that `keep` accepts for each step.
    ///
    /// # Errors
    /// If a step is left without a choice.
    pub fn only(&self, keep: impl Fn(&Step, &Choice) -> bool) -> Result<Self, Invalid> {
        let steps = self.steps.iter().map(|step| {
            let choices = step.choices.iter();
            let choices = choices.filter(|choice| keep(step, choice)).cloned();
            Step {
                choices: choices.collect(),
                ..step.clone()
            }
        });
        Self::new(steps.collect())?.with_splits(self.splits.clone())
    }

    /// The graph with only the most accurate variant of each step, for planners that do not choose variants.
    pub fn most_accurate(&self) -> Self {
        let kept = self.only(|step, choice| choice.variant == step.most_accurate());
        kept.expect("the most accurate variant of a step is one of its choices")
    }
}

// === impl Step ===

impl Step {
    fn check(&self) -> Result<(), Invalid> {
        let Scale { probability, rows } = self.scale;
        if !(0.0..=1.0).contains(&probability) {
            return Err(invalid(
                &self.name,
                format!("has a probability of `{probability}`, not 0 to 1"),
            ));
        }
        if !(1.0..=1e4).contains(&rows) {
            return Err(invalid(
                &self.name,
                format!("has `{rows}` rows, not 1 to 10,000"),
            ));
        }
        if self.choices.is_empty() || self.choices.len() > MOST_CHOICES {
            let count = self.choices.len();
            return Err(invalid(
                &self.name,
                format!("has {count} choices, not 1 to {MOST_CHOICES}: profile a variant of it"),
            ));
        }
        for choice in &self.choices {
            if !(0.0..=1.0).contains(&choice.accuracy) {
                let why = format!(
                    "has an accuracy of `{}` on `{}`, not 0 to 1",
                    choice.accuracy, choice.variant
                );
                return Err(invalid(&self.name, why));
            }
            if !(choice.price > 0.0 && choice.price <= 1e6) {
                let why = format!(
                    "has a price of `{}` an hour on `{}`, which is not above 0",
                    choice.price, choice.device
                );
                return Err(invalid(&self.name, why));
            }
        }
        Ok(())
    }

    /// The name of its most accurate variant; the first if there are several.
    pub fn most_accurate(&self) -> &str {
        let mut best = &self.choices[0];
        for choice in &self.choices {
            if choice.accuracy > best.accuracy {
                best = choice;
            }
        }
        &best.variant
    }

    /// The position of the choice that runs one row in the least time, among those of the most accurate variant.
    pub fn quickest_of_most_accurate(&self) -> Option<usize> {
        let name = self.most_accurate();
        let choices = self.choices.iter().enumerate();
        let own = choices.filter(|(_, choice)| choice.variant == name);
        own.min_by_key(|(_, choice)| choice.latency.of(1))
            .map(|(at, _)| at)
    }
}

// === impl Choice ===

impl Choice {
    /// Rows a second of one replica in batches of this size.
    pub fn throughput(&self, batch: u32) -> f64 {
        f64::from(batch) * 1e9 / self.latency.of(batch) as f64
    }

    /// The largest batches that are planned: powers of two within the profile, and the end of the profile.
    pub fn batches(&self) -> Vec<u32> {
        let most = self.latency.measured_rows();
        let mut batches: Vec<u32> = (0..31)
            .map(|power| 1 << power)
            .take_while(|rows| *rows < most)
            .collect();
        batches.push(most);
        batches
    }
}

fn invalid(step: &str, why: impl Into<String>) -> Invalid {
    Invalid {
        step: step.to_owned(),
        why: why.into(),
    }
}
