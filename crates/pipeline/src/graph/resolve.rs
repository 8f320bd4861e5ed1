//! Resolves names to tensors.

use std::collections::{BTreeMap, BTreeSet};

use sextant_types::{TensorSpec, convert};

use super::{Invalid, Node, Origin, Part};
use crate::{
    Definition,
    condition::Condition,
    definition::{Sources, Step},
};

/// Resolves names while a definition is checked.
pub(super) struct Resolver<'a> {
    definition: &'a Definition,
    parts: &'a [Part],
    steps: BTreeMap<&'a str, usize>,
    /// The pipeline's inputs: the declared ones, or those that were found so far.
    inputs: Vec<TensorSpec>,
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

// === impl Resolver ===

impl<'a> Resolver<'a> {
    pub fn new(definition: &'a Definition, parts: &'a [Part]) -> Result<Self, Invalid> {
        let steps: BTreeMap<&str, usize> = definition
            .steps
            .iter()
            .enumerate()
            .map(|(at, step)| (step.name.as_str(), at))
            .collect();
        let mut inputs: Vec<TensorSpec> = Vec::new();
        for input in &definition.inputs {
            let invalid =
                |why: &str| Invalid::whole("inputs", format!("has `{}`, {why}", input.name));
            if input.name.is_empty() || steps.contains_key(input.name.as_str()) {
                return Err(invalid("which is no name, or that of a step"));
            }
            if inputs.iter().any(|other| other.name == input.name) {
                return Err(invalid("twice"));
            }
            if input.shape.iter().any(|size| *size < -1) || input.shape.len() > 8 {
                return Err(invalid(
                    "whose shape has at most 8 sizes, each 0 or more, or -1 for any",
                ));
            }
            inputs.push(TensorSpec {
                name: input.name.clone(),
                data_type: input.datatype,
                shape: input
                    .shape
                    .iter()
                    .map(|size| u64::try_from(*size).ok())
                    .collect(),
            });
        }
        Ok(Self {
            definition,
            parts,
            steps,
            inputs,
        })
    }

    /// The origins of a step's inputs, in the order of its signature.
    pub fn inputs(&mut self, at: usize) -> Result<Vec<Vec<Origin>>, Invalid> {
        let (step, part) = (&self.definition.steps[at], &self.parts[at]);
        let specs = &part.signature.inputs;
        if let Some(unknown) = step
            .inputs
            .keys()
            .find(|name| !specs.iter().any(|it| it.name == **name))
        {
            let known = list(specs.iter().map(|spec| spec.name.as_str()));
            let why = format!("has `{unknown}`, which the step does not take: it takes {known}");
            return Err(Invalid::step(&step.name, "inputs", why));
        }
        let mut found = Vec::with_capacity(specs.len());
        for spec in specs {
            let is_cut = self.is_cut(step, &spec.name);
            let origins = match step.inputs.get(&spec.name) {
                Some(sources) => self.origins(Some(step), "inputs", sources, spec, is_cut)?,
                None => vec![self.implied(at, spec, is_cut)?],
            };
            for origin in &origins {
                self.check(step, part, spec, *origin, is_cut)?;
            }
            found.push(origins);
        }
        Ok(found)
    }

    /// Whether an input is one of the tensors whose rows the step asks one by one.
    fn is_cut(&self, step: &Step, input: &str) -> bool {
        let Some(each) = &step.for_each else {
            return false;
        };
        let sources = step
            .inputs
            .get(input)
            .map_or_else(|| vec![input.to_owned()], |it| it.all().to_vec());
        sources.iter().any(|source| each.all().contains(source))
    }

    /// The origin of an input that the step does not map.
    fn implied(&mut self, at: usize, spec: &TensorSpec, is_cut: bool) -> Result<Origin, Invalid> {
        for earlier in (0..at).rev() {
            let gives = &self.parts[earlier].gives;
            if let Some(output) = gives.iter().position(|output| output.name == spec.name) {
                return Ok(Origin::Output(earlier, output));
            }
        }
        self.input(&spec.name, spec, is_cut).ok_or_else(|| {
            let step = &self.definition.steps[at];
            let inputs = list(self.inputs.iter().map(|input| input.name.as_str()));
            let why = format!(
                "has nothing for `{}`: no earlier step gives it, and the pipeline's inputs are {inputs}: map it to a \
                 `step.output`",
                spec.name
            );
            Invalid::step(&step.name, "inputs", why)
        })
    }

    /// The pipeline's input of that name. Where the definition declares no inputs, this call adds one of the given
    /// kind.
    fn input(&mut self, name: &str, spec: &TensorSpec, is_cut: bool) -> Option<Origin> {
        if let Some(at) = self.inputs.iter().position(|input| input.name == name) {
            return Some(Origin::Input(at));
        }
        if !self.definition.inputs.is_empty() || self.steps.contains_key(name) || is_cut {
            return None;
        }
        self.inputs.push(TensorSpec {
            name: name.to_owned(),
            ..spec.clone()
        });
        Some(Origin::Input(self.inputs.len() - 1))
    }

    /// The origins of the tensors that `sources` names.
    fn origins(
        &mut self,
        step: Option<&Step>,
        key: &'static str,
        sources: &Sources,
        spec: &TensorSpec,
        is_cut: bool,
    ) -> Result<Vec<Origin>, Invalid> {
        let invalid = |why: String| match step {
            Some(step) => Invalid::step(&step.name, key, why),
            None => Invalid::whole(key, why),
        };
        if sources.all().is_empty() {
            return Err(invalid(format!("has an empty list for `{}`", spec.name)));
        }
        let mut found = Vec::with_capacity(sources.all().len());
        for source in sources.all() {
            let split = source
                .split_once('.')
                .filter(|(from, _)| self.steps.contains_key(from));
            let origin = match split {
                Some((from, output)) => self.output(from, output).map_err(&invalid)?,
                None => self.input(source, spec, is_cut).ok_or_else(|| {
                    let inputs = list(self.inputs.iter().map(|input| input.name.as_str()));
                    let steps = list(self.steps.keys().copied());
                    invalid(format!(
                        "has `{source}`, which is neither `step.output` of the steps {steps} nor an input of the \
                         pipeline, which are {inputs}"
                    ))
                })?,
            };
            found.push(origin);
        }
        Ok(found)
    }

    /// The position of an output of a step.
    fn output(&self, step: &str, output: &str) -> Result<Origin, String> {
        let at = self.steps.get(step).copied().unwrap_or_default();
        let gives = &self.parts[at].gives;
        let found = gives.iter().position(|it| it.name == output);
        found.map(|found| Origin::Output(at, found)).ok_or_else(|| {
            let known = list(gives.iter().map(|it| it.name.as_str()));
            format!("has `{step}.{output}`, and the step `{step}` gives {known}")
        })
    }

    /// Checks whether an input accepts a tensor.
    fn check(
        &self,
        step: &Step,
        part: &Part,
        wants: &TensorSpec,
        origin: Origin,
        is_cut: bool,
    ) -> Result<(), Invalid> {
        let (given, named) = match origin {
            Origin::Input(at) => (&self.inputs[at], self.inputs[at].name.clone()),
            Origin::Output(node, at) => {
                let given = &self.parts[node].gives[at];
                (
                    given,
                    format!("{}.{}", self.definition.steps[node].name, given.name),
                )
            }
        };
        let invalid = |why: String| Err(Invalid::step(&step.name, "inputs", why));
        if !convert::is_possible(given.data_type, wants.data_type) {
            return invalid(format!(
                "gives `{named}`, which is {}, to `{}`, which takes {}",
                given.data_type, wants.name, wants.data_type
            ));
        }
        // A row keeps its first dimension where the step takes batches. Otherwise it loses it.
        let mut shape = given.shape.clone();
        if is_cut {
            if shape.is_empty() {
                return invalid(format!("has `{named}` under `for_each`, which has no rows"));
            }
            match shape.len() == wants.shape.len() {
                true => shape[0] = Some(1),
                false => {
                    shape.remove(0);
                }
            }
        }
        let sizes = shape.iter().zip(&wants.shape).enumerate();
        let mut unequal = sizes.filter(|(axis, (has, wants))| {
            let is_batch = part.signature.batched && *axis == 0;
            !is_batch && has.is_some() && wants.is_some() && has != wants
        });
        if shape.len() != wants.shape.len() || unequal.next().is_some() {
            return invalid(format!(
                "gives `{named}`, whose shape is {}, to `{}`, which takes {}",
                given.shape_text(),
                wants.name,
                wants.shape_text()
            ));
        }
        Ok(())
    }

    /// The inputs that are cut into rows.
    pub fn cut(&self, step: &Step, inputs: &[Vec<Origin>]) -> Result<BTreeSet<usize>, Invalid> {
        let Some(each) = &step.for_each else {
            return Ok(BTreeSet::new());
        };
        let at = self
            .steps
            .get(step.name.as_str())
            .copied()
            .unwrap_or_default();
        let specs = &self.parts[at].signature.inputs;
        let cut: BTreeSet<usize> = specs
            .iter()
            .enumerate()
            .filter(|(_, spec)| self.is_cut(step, &spec.name))
            .map(|(at, _)| at)
            .collect();
        let taken: BTreeSet<&str> = step
            .inputs
            .values()
            .flat_map(|it| it.all())
            .map(String::as_str)
            .collect();
        let unused = each.all().iter().find(|source| {
            let implied = specs
                .iter()
                .any(|spec| spec.name == **source && !step.inputs.contains_key(&spec.name));
            !implied && !taken.contains(source.as_str())
        });
        if let Some(unused) = unused {
            let why = format!(
                "has `{unused}`, which none of the step's inputs is: map one to it under `inputs`"
            );
            return Err(Invalid::step(&step.name, "for_each", why));
        }
        if cut.is_empty() || cut.iter().any(|at| inputs[*at].len() != 1) {
            let why = "names tensors that are inputs of the step, each alone and not in a list of several";
            return Err(Invalid::step(&step.name, "for_each", why));
        }
        Ok(cut)
    }

    /// The steps that a condition mentions.
    pub fn mentioned(&self, step: &Step, condition: &Condition) -> Result<Vec<usize>, Invalid> {
        let mut found = Vec::new();
        for name in condition.names() {
            match self.steps.get(name) {
                Some(at) => found.push(*at),
                None if condition.is_own(name) => {}
                None => {
                    let steps = list(self.steps.keys().copied());
                    let why = format!("speaks of `{name}`, which is no step: they are {steps}");
                    return Err(Invalid::step(&step.name, "when", why));
                }
            }
        }
        Ok(found)
    }

    /// The outputs of the pipeline.
    pub fn outputs(&mut self) -> Result<Vec<(String, Vec<Origin>)>, Invalid> {
        let definition = self.definition;
        if definition.outputs.is_empty() {
            let last = self.parts.len() - 1;
            let gives = self.parts[last].gives.iter().enumerate();
            return Ok(gives
                .map(|(at, spec)| (spec.name.clone(), vec![Origin::Output(last, at)]))
                .collect());
        }
        let mut found = Vec::new();
        for (name, sources) in &definition.outputs {
            let of_whole = TensorSpec {
                name: name.clone(),
                data_type: sextant_types::DataType::Bytes,
                shape: Vec::new(),
            };
            // An output may pass on only an input that another step takes or the definition declares.
            let known = self.inputs.len();
            let origins = self.origins(None, "outputs", sources, &of_whole, false)?;
            if self.inputs.len() > known {
                let name = self
                    .inputs
                    .pop()
                    .map(|input| input.name)
                    .unwrap_or_default();
                let why = format!(
                    "has `{name}`, which is neither `step.output` nor an input of the pipeline"
                );
                return Err(Invalid::whole("outputs", why));
            }
            found.push((name.clone(), origins));
        }
        Ok(found)
    }

    /// The inputs of the pipeline.
    pub fn into_inputs(self) -> Vec<TensorSpec> {
        self.inputs
    }
}

/// Orders the nodes so that each comes after those that it waits for. Returns them with the outputs, whose node numbers
/// are those of the new order.
pub(super) fn in_order(
    nodes: Vec<Node>,
    mut outputs: Vec<Vec<Origin>>,
) -> Result<(Vec<Node>, Vec<Vec<Origin>>), Invalid> {
    let mut order: Vec<usize> = Vec::with_capacity(nodes.len());
    while order.len() < nodes.len() {
        let is_next = |at: &usize| {
            !order.contains(at) && nodes[*at].after.iter().all(|it| order.contains(it))
        };
        match (0..nodes.len()).find(is_next) {
            Some(next) => order.push(next),
            None => {
                let left = (0..nodes.len()).filter(|at| !order.contains(at));
                let left = list(left.map(|at| nodes[at].name.as_ref()));
                let why = format!("has a circle: each of {left} waits for another of them");
                return Err(Invalid::whole("steps", why));
            }
        }
    }
    let mut new = vec![0; nodes.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(to, from)| new[*from] = to);
    let renumber = |origins: &mut Vec<Vec<Origin>>| {
        for origin in origins.iter_mut().flatten() {
            if let Origin::Output(node, _) = origin {
                *node = new[*node];
            }
        }
    };
    renumber(&mut outputs);
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    let ordered = order.iter().filter_map(|from| nodes[*from].take());
    let ordered = ordered.map(|mut node| {
        renumber(&mut node.inputs);
        node.after = node.after.iter().map(|at| new[*at]).collect();
        node
    });
    Ok((ordered.collect(), outputs))
}
