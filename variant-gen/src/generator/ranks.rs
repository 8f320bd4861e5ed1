//! Inputs and outputs that are declared without a shape. The shapes of inputs come from the validation set, those of
//! outputs from running the model.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::Engine;
use sextant_objects::digest_of;
use sextant_onnx::{
    ModelInfo,
    adapt::Plain,
    ranks::{Shapes, Unknown},
};
use sextant_types::{Metric, Signature};

use super::{Registration, adapt::request, rewrite::only};
use crate::{
    Error, Isolation,
    isolation::{
        Task,
        protocol::{Action, Order, Origin},
    },
    measure::{self, MeasureError},
    rewriting::{Declare, Probe},
    validation::{self, ScoringTarget, SetRequirements},
};

/// Advice about an input.
const NAME_INPUT: &str = "name its array in a validation set in .npz or JSONL, whose records tell it, or export the model with the \
                          shapes of its inputs";

/// Advice about an output.
const NAME_OUTPUT: &str = "export the model with the shapes of its outputs (`onnx.shape_inference.infer_shapes`), or leave it \
                           out by naming the others with `--output`";

/// The same if what was taken for a batch is none.
const UNBATCHED: &str = "batches of records are not answered as the records are one by one, so export the model with the shapes \
                         of its inputs";

/// Most bytes of weights of a model that is run only to see its output shapes.
const MOST_PROBED_BYTES: u64 = 64 << 20;

/// The shapes of each output in each run.
type RunShapes = Vec<Vec<Vec<u64>>>;

impl Registration<'_> {
    /// Declares the missing shapes.
    pub(super) async fn find_ranks(
        &mut self,
        plain: &mut Plain,
        unknown: &Unknown,
        engines: &[Arc<dyn Engine>],
    ) -> Result<(), Error> {
        if !unknown.inputs.is_empty() {
            let shapes = self.shapes_of_inputs(&unknown.inputs).await?;
            let how = ("input", "is taken from the validation set");
            self.declare(plain, how, shapes).await?;
        }
        if !unknown.outputs.is_empty() {
            let shapes = self.shapes_of_outputs(&plain.model, &unknown.outputs, engines);
            let shapes = shapes.await?;
            let how = ("output", "was found by running it");
            self.declare(plain, how, shapes).await?;
        }
        self.correct_ranks(plain, engines).await
    }

    /// Corrects the declaration of outputs whose answers have another number of dimensions: exporters of classical
    /// models declare shapes by guesswork.
    async fn correct_ranks(
        &mut self,
        plain: &mut Plain,
        engines: &[Arc<dyn Engine>],
    ) -> Result<(), Error> {
        let all_up_to = Some(MOST_PROBED_BYTES);
        let made = self.rewrite(&plain.model, Probe { all_up_to }).await?;
        let (Some(probed), probe) = only(made) else {
            return Ok(());
        };
        let asked = &probed.asked;
        let runs = self.probe(&probe, asked, engines).await?;
        let lengths_differ = asked.dynamic_axes().next().is_some();
        let mut shapes = Shapes::new();
        let declared = probed.declared.iter().flat_map(|it| &it.outputs);
        for (at, output) in declared.enumerate() {
            let of_runs: Vec<&Vec<u64>> = runs.iter().filter_map(|run| run.get(at)).collect();
            let Some(shape) = merged(&of_runs, asked.batched, lengths_differ) else {
                continue;
            };
            if shape.len() == output.shape.len() {
                continue;
            }
            plain.changes.push(format!(
                "output `{}` is declared as {}; {} was found by running it",
                output.name,
                output.shape_text(),
                text(&shape)
            ));
            shapes.insert(output.name.clone(), shape);
        }
        if !shapes.is_empty() {
            let anew = Declare { shapes, anew: true };
            plain.model = only(self.rewrite(&plain.model, anew).await?).1;
        }
        Ok(())
    }

    /// Writes the shapes into the file.
    async fn declare(
        &self,
        plain: &mut Plain,
        (direction, how): (&str, &str),
        shapes: Shapes,
    ) -> Result<(), Error> {
        for (name, shape) in &shapes {
            let sizes = text(shape);
            plain.changes.push(format!(
                "{direction} `{name}` is declared without a shape; {sizes} {how}"
            ));
        }
        let anew = false;
        let declared = self.rewrite(&plain.model, Declare { shapes, anew }).await?;
        plain.model = only(declared).1;
        Ok(())
    }

    /// The shapes of inputs: a batch dimension before those of the records.
    async fn shapes_of_inputs(&self, names: &[String]) -> Result<Shapes, Error> {
        let known = self.record_shapes().await?;
        let shape = |name: &String| {
            let row = known
                .get(name)
                .ok_or_else(|| missing("input", name, NAME_INPUT))?;
            let whole = [None].into_iter().chain(row.iter().copied());
            Ok((name.clone(), whole.collect()))
        };
        names.iter().map(shape).collect()
    }

    async fn shapes_of_outputs(
        &mut self,
        model: &Bytes,
        names: &[String],
        engines: &[Arc<dyn Engine>],
    ) -> Result<Shapes, Error> {
        let made = self.rewrite(model, Probe { all_up_to: None }).await?;
        let (Some(probed), probe) = only(made) else {
            return Ok(Shapes::new());
        };
        let signature = probed.asked;
        let runs = self.probe(&probe, &signature, engines).await?;
        let lengths_differ = signature.dynamic_axes().next().is_some();
        let shape = |(at, name): (usize, &String)| {
            let of_runs = runs.iter().filter_map(|run| run.get(at));
            let of_runs: Vec<&Vec<u64>> = of_runs.collect();
            let shape = merged(&of_runs, signature.batched, lengths_differ);
            let shape = shape.ok_or_else(|| missing("output", name, NAME_OUTPUT))?;
            Ok((name.clone(), shape))
        };
        names.iter().enumerate().map(shape).collect()
    }

    /// Refuses a model whose batches are not answered as their records are: an input without a shape is assumed to have
    /// a batch dimension.
    pub(super) async fn check_batches(
        &mut self,
        (model, input): (&Bytes, &str),
        (info, scored): (&ModelInfo, &ScoringTarget),
        engines: &[Arc<dyn Engine>],
    ) -> Result<(), Error> {
        let batches = self.batches(Origin::Tried, (info, false));
        let differ = self
            .differing_outputs((model, batches), &info.signature, scored, engines)
            .await?;
        match differ {
            // The measurement reports why the model does not run.
            None => Ok(()),
            Some(differ) if differ.is_empty() => Ok(()),
            Some(_) => Err(missing("input", input, UNBATCHED).into()),
        }
    }

    /// The shapes that the model with shape outputs answers; nothing if it cannot be run.
    async fn probe(
        &mut self,
        probe: &Bytes,
        signature: &Signature,
        engines: &[Arc<dyn Engine>],
    ) -> Result<RunShapes, Error> {
        let isolation = self.parts.config.isolation.clone();
        let isolated = isolation.and_then(|isolation| {
            let mut engines = engines.iter();
            let engine = engines.find(|engine| isolation.has(engine.name()))?;
            Some((isolation.clone(), engine.name().to_owned()))
        });
        let found = match (isolated, engines.first()) {
            (Some(isolated), _) => self.probe_isolated(isolated, probe, signature).await?,
            (None, Some(engine)) => self.probe_here(engine.clone(), probe, signature).await?,
            (None, None) => return Ok(RunShapes::new()),
        };
        match found {
            Err(error) if error.is_of_no_model() => Err(error.into()),
            // The step that reads the set for the model reports what is wrong with it.
            found => Ok(found.unwrap_or_default()),
        }
    }

    async fn probe_isolated(
        &mut self,
        (isolation, engine): (Isolation, String),
        probe: &Bytes,
        signature: &Signature,
    ) -> Result<Result<RunShapes, MeasureError>, Error> {
        let order = Order {
            action: Action::Shapes { engine },
            artefact: digest_of(probe),
            signature: signature.clone(),
            // Labels of any form are accepted.
            metric: Metric::Custom,
            scored: ScoringTarget::default(),
            limits: self.parts.config.limits,
        };
        let task = Task {
            artefact: Some(self.over_weights(probe)),
            order,
            validation: self.set_file().await?,
            beside: Vec::new(),
        };
        let seat = self.seat.clone();
        let run = move |cancel: &_| isolation.shapes(&seat, task, cancel);
        self.parts.threads.run(run).await
    }

    async fn probe_here(
        &self,
        engine: Arc<dyn Engine>,
        probe: &Bytes,
        signature: &Signature,
    ) -> Result<Result<RunShapes, MeasureError>, Error> {
        let set = self.read_set().await?;
        let limits = self.parts.config.limits;
        let (request, signature) = (request(&self.over_weights(probe)), signature.clone());
        let run = move |cancel: &_| {
            let expected = SetRequirements {
                signature: &signature,
                metric: Metric::Custom,
                scored: &ScoringTarget::default(),
                limits,
            };
            let set = validation::read(&set, expected).map_err(measure::unfit)?;
            measure::output_shapes(engine.as_ref(), &request, &set, cancel)
        };
        self.parts.threads.run(run).await
    }
}

/// `[?, 3]`.
fn text(shape: &[Option<u64>]) -> String {
    let sizes = shape.iter().map(|size| match size {
        Some(size) => size.to_string(),
        None => "?".to_owned(),
    });
    format!("[{}]", sizes.collect::<Vec<_>>().join(", "))
}

fn missing(direction: &'static str, name: &str, fix: &'static str) -> sextant_onnx::Error {
    sextant_onnx::Error::NoShape {
        direction,
        name: name.to_owned(),
        fix,
    }
}

/// One shape for the shapes of runs with one row, two rows and so on; `None` if they differ in rank, or there are none.
/// If inputs may have any length, so may outputs.
fn merged(runs: &[&Vec<u64>], batched: bool, lengths_differ: bool) -> Option<Vec<Option<u64>>> {
    let first = runs.first()?;
    if runs.iter().any(|run| run.len() != first.len()) {
        return None;
    }
    let counts_rows = runs
        .iter()
        .zip(1..)
        .all(|(run, rows)| run.first() == Some(&rows));
    let size = |at: usize| {
        let is_fixed = runs.iter().all(|run| run[at] == first[at]);
        let is_batch = at == 0 && batched && counts_rows;
        Some(first[at]).filter(|_| is_fixed && !is_batch && (at == 0 || !lengths_differ))
    };
    Some((0..first.len()).map(size).collect())
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn what_counts_rows_is_the_batch_and_what_stays_is_fixed() {
        let runs = [vec![1, 4], vec![2, 4], vec![3, 4]];
        let runs: Vec<&Vec<u64>> = runs.iter().collect();
        assert_eq!(merged(&runs, true, false), Some(vec![None, Some(4)]));
        assert_eq!(merged(&runs, true, true), Some(vec![None, None]));
        assert_eq!(
            merged(&runs[..1], false, false),
            Some(vec![Some(1), Some(4)])
        );
        // One run alone cannot show which dimension counts rows.
        assert_eq!(merged(&runs[..1], true, false), Some(vec![None, Some(4)]));
    }

    #[test]
    fn ranks_that_differ_are_none() {
        let (one, two) = (vec![1], vec![2, 2]);
        assert_eq!(merged(&[&one, &two], true, false), None);
        assert_eq!(merged(&[], true, false), None);
        assert_eq!(merged(&[&vec![], &vec![]], true, false), Some(vec![]));
    }
}
