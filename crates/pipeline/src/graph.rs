//! A checked definition: the order of the steps, and the origin of each tensor.

mod resolve;
mod tensors;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sextant_rpc::QueryError;
use sextant_transforms::Transform;
use sextant_types::{
    ApplicationId, Code, Metric, NamedTensor, Route, Signature, StepOf, Targets, TensorSpec,
};

use crate::{
    Definition, Function, OnError, StepTargets,
    condition::Condition,
    definition::{Action, Step},
    draw,
    split::SplitTarget,
};

use resolve::Resolver;

/// Why a definition is not valid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct Invalid {
    /// The step that is wrong.
    pub step: Option<String>,
    /// The key of the step, or of the whole definition, that is wrong.
    pub key: &'static str,
    /// What is wrong and what would be right. The text continues "`key`".
    pub why: String,
    /// The code of the error. Where the definition names something that is not there, it is the code of that error.
    pub code: Code,
}

/// What a definition is checked against.
pub struct CheckContext<'a> {
    /// Looks up what steps can ask.
    pub targets: &'a dyn Fn(&Route) -> Result<Target, QueryError>,
    /// The files that the transforms need, by their paths.
    pub files: &'a BTreeMap<String, Bytes>,
}

/// Something that a step can ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// What it takes and gives.
    pub signature: Signature,
    /// The metric by which it is measured.
    pub metric: Option<Metric>,
    /// The default targets of its queries.
    pub defaults: Targets,
}

/// A pipeline that can run.
pub struct Graph {
    /// The definition as the user wrote it.
    pub definition: Definition,
    /// What the pipeline takes and gives.
    pub signature: Signature,
    /// The steps, each after the steps whose outputs it takes.
    pub(crate) nodes: Vec<Node>,
    /// The origins of each output, in the signature's order.
    pub(crate) outputs: Vec<Vec<Origin>>,
}

/// A step that can run.
pub(crate) struct Node {
    pub name: Arc<str>,
    pub work: Work,
    /// What it takes.
    pub signature: Signature,
    /// Its outputs: those of the signature, or those of all rows together.
    pub gives: Vec<TensorSpec>,
    /// The origins of each input, in the signature's order.
    pub inputs: Vec<Vec<Origin>>,
    /// The inputs that are cut into rows; empty where the step runs once.
    pub cut: BTreeSet<usize>,
    pub condition: Option<Condition>,
    pub on_error: OnError,
    /// Its outputs when it fails, with [`OnError::Default`].
    pub default: Vec<NamedTensor>,
    pub timeout: Option<Duration>,
    pub retries: u32,
    /// The nodes that must end before it begins.
    pub after: BTreeSet<usize>,
    /// How the step describes itself to each target that it asks, in the order of the targets; empty where it asks
    /// none.
    pub of: Vec<Arc<StepOf>>,
}

/// The work of a node.
pub(crate) enum Work {
    Ask(Arc<[SplitTarget]>),
    Transform(Arc<Transform>),
    Python(Arc<Function>),
}

/// Where a tensor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This input of the pipeline.
    Input(usize),
    /// This output of this node.
    Output(usize, usize),
}

/// Longest timeout of a step: a day.
const MOST_TIMEOUT_MS: f64 = 86_400_000.0;

/// Most retries of a step.
const MOST_RETRIES: u32 = 10;

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(step) = &self.step {
            write!(f, "step `{step}`: ")?;
        }
        write!(f, "`{}` {}", self.key, self.why)
    }
}

// === impl Invalid ===

impl Invalid {
    pub(crate) fn whole(key: &'static str, why: impl Into<String>) -> Self {
        Self {
            step: None,
            key,
            why: why.into(),
            code: Code::InvalidPipeline,
        }
    }

    pub(crate) fn step(step: &str, key: &'static str, why: impl Into<String>) -> Self {
        Self {
            step: Some(step.to_owned()),
            ..Self::whole(key, why)
        }
    }
}

// === impl Graph ===

impl Graph {
    /// Checks a definition.
    ///
    /// # Errors
    /// What is wrong with the definition, and in which step.
    pub fn new(definition: Definition, known: &CheckContext<'_>) -> Result<Self, Invalid> {
        definition.application()?;
        let actions = definition.actions()?;
        let steps = definition.steps.iter().zip(&actions);
        let parts: Vec<Part> = steps
            .map(|(step, action)| Part::new(&definition.name, step, action, known))
            .collect::<Result<_, _>>()?;
        let mut resolver = Resolver::new(&definition, &parts)?;
        let mut nodes = Vec::with_capacity(parts.len());
        for (at, (step, part)) in definition.steps.iter().zip(&parts).enumerate() {
            nodes.push(node(step, part, resolver.inputs(at)?, &resolver)?);
        }
        let outputs = resolver.outputs()?;
        let inputs = resolver.into_inputs();
        let specs = outputs.iter().map(|(name, origins)| {
            let spec = origins.first().map(|origin| match origin {
                Origin::Input(at) => &inputs[*at],
                Origin::Output(node, at) => &nodes[*node].gives[*at],
            });
            let missing = || Invalid::whole("outputs", format!("has nothing for `{name}`"));
            Ok(TensorSpec {
                name: name.clone(),
                ..spec.ok_or_else(missing)?.clone()
            })
        });
        let signature = Signature {
            outputs: specs.collect::<Result<_, Invalid>>()?,
            inputs,
            batched: false,
        };
        let outputs = outputs.into_iter().map(|(_, origins)| origins).collect();
        let (mut nodes, outputs) = resolve::in_order(nodes, outputs)?;
        check_used(&nodes, &outputs)?;
        name_steps(&mut nodes, &definition.application()?);
        Ok(Self {
            definition,
            signature,
            nodes,
            outputs,
        })
    }

    /// Whether everything that the steps ask is the same as when the definition was checked.
    pub fn is_current(&self, targets: &dyn Fn(&Route) -> Result<Target, QueryError>) -> bool {
        let steps = self.definition.steps.iter();
        let own: BTreeMap<&str, &StepTargets> = steps
            .map(|step| (step.name.as_str(), &step.targets))
            .collect();
        self.nodes.iter().all(|node| match &node.work {
            Work::Transform(_) | Work::Python(_) => true,
            Work::Ask(asked) => asked.iter().all(|it| {
                targets(&it.route).is_ok_and(|target| {
                    let own = own.get(node.name.as_ref()).copied().copied();
                    let now = self::targets(&node.name, &own.unwrap_or_default(), &target);
                    target.signature == node.signature && now.as_ref() == Ok(&it.targets)
                })
            }),
        })
    }

    /// The routes that the steps ask.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.asked().map(|(route, _)| route)
    }

    /// The routes that the steps ask, with the targets of each.
    pub fn asked(&self) -> impl Iterator<Item = (&Route, &Targets)> {
        let asked = self.nodes.iter().flat_map(|node| match &node.work {
            Work::Ask(asked) => &asked[..],
            Work::Transform(_) | Work::Python(_) => &[],
        });
        asked.map(|it| (&it.route, &it.targets))
    }

    /// The functions of Python files that the steps call, with the names of the steps.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &Arc<Function>)> {
        self.nodes.iter().filter_map(|node| match &node.work {
            Work::Python(function) => Some((node.name.as_ref(), function)),
            Work::Ask(_) | Work::Transform(_) => None,
        })
    }
}

/// A step whose signature is known.
pub(crate) struct Part {
    pub work: Work,
    pub signature: Signature,
    pub gives: Vec<TensorSpec>,
}

impl Part {
    fn new(
        pipeline: &str,
        step: &Step,
        action: &Action,
        known: &CheckContext<'_>,
    ) -> Result<Self, Invalid> {
        if !matches!(action, Action::Ask(_)) && !step.targets.is_empty() {
            return Err(Invalid::step(
                &step.name,
                "targets",
                "are for steps that ask a model",
            ));
        }
        let (work, signature) = match action {
            Action::Ask(all) => asked(step, all, known)?,
            Action::Python(options) => {
                let function = options.bind(pipeline, known.files);
                let function = function.map_err(|why| Invalid::step(&step.name, "python", why))?;
                let signature = function.signature.clone();
                (Work::Python(Arc::new(function)), signature)
            }
            Action::Transform(options) => {
                let mapped = step.inputs.keys().cloned().collect();
                let made = Transform::new(options, known.files, &mapped);
                let transform = made.map_err(|error| {
                    Invalid::step(
                        &step.name,
                        options.name(),
                        format!("cannot be made: {error}"),
                    )
                })?;
                let signature = transform.signature().clone();
                (Work::Transform(Arc::new(transform)), signature)
            }
        };
        let mut gives = signature.outputs.clone();
        if step.for_each.is_some() {
            for spec in &mut gives {
                match signature.batched {
                    true => spec.shape[0] = None,
                    false => spec.shape.insert(0, None),
                }
            }
        }
        Ok(Self {
            work,
            signature,
            gives,
        })
    }
}

/// Checks the targets that a step asks. All must have the same signature.
fn asked(
    step: &Step,
    all: &[(Route, f64)],
    known: &CheckContext<'_>,
) -> Result<(Work, Signature), Invalid> {
    let mut asked = Vec::with_capacity(all.len());
    let mut signature: Option<Signature> = None;
    for (route, weight) in all {
        let target = (known.targets)(route).map_err(|error| Invalid {
            code: error.code,
            ..Invalid::step(
                &step.name,
                "application",
                format!("cannot be asked: {error}"),
            )
        })?;
        let targets = targets(&step.name, &step.targets, &target)?;
        if *signature.get_or_insert_with(|| target.signature.clone()) != target.signature {
            let why = format!(
                "names {}, which does not take and give what those before it do",
                draw::whom(route)
            );
            return Err(Invalid::step(&step.name, "split", why));
        }
        asked.push(SplitTarget {
            route: route.clone(),
            targets,
            weight: *weight,
        });
    }
    let nothing = || Invalid::step(&step.name, "split", "is empty");
    Ok((Work::Ask(asked.into()), signature.ok_or_else(nothing)?))
}

/// The targets of a step: its own, and the application's where it has none.
fn targets(step: &str, own: &StepTargets, target: &Target) -> Result<Targets, Invalid> {
    let defaults = &target.defaults;
    let min_quality = match (own.min_accuracy, target.metric) {
        (Some(least), Some(metric)) => Some(metric.quality(least)),
        (Some(_), None) => {
            let why = "has `min_accuracy`, and nobody knows by what the step's model is measured";
            return Err(Invalid::step(step, "targets", why));
        }
        (None, _) => None,
    };
    let (min_quality, min_relative_accuracy) = match (min_quality, own.min_relative_accuracy) {
        (None, None) => (defaults.min_quality, defaults.min_relative_accuracy),
        own => own,
    };
    let targets = Targets {
        latency_ms: None,
        min_quality,
        min_relative_accuracy,
        min_agreement: None,
        max_cost_per_1k_usd: own.max_cost_per_1k_usd.or(defaults.max_cost_per_1k_usd),
        prefer: defaults.prefer,
    };
    let valid = targets.validate();
    valid.map_err(|error| Invalid::step(step, "targets", format!("cannot be met: {error}")))?;
    Ok(targets)
}

fn node(
    step: &Step,
    part: &Part,
    inputs: Vec<Vec<Origin>>,
    resolver: &Resolver<'_>,
) -> Result<Node, Invalid> {
    let invalid = |key, why: &str| Invalid::step(&step.name, key, why);
    let condition = step.when.as_deref().map(Condition::new).transpose();
    let condition = condition.map_err(|why| invalid("when", &why))?;
    let cut = resolver.cut(step, &inputs)?;
    let is_timeout = |ms: f64| ms > 0.0 && ms <= MOST_TIMEOUT_MS;
    if step.timeout_ms.is_some_and(|ms| !is_timeout(ms)) {
        return Err(invalid("timeout_ms", "is above 0 and at most a day"));
    }
    if step.retries > MOST_RETRIES {
        return Err(invalid("retries", "is at most 10"));
    }
    let default = tensors::defaults(step, &part.gives)?;
    let mut after: BTreeSet<usize> = inputs
        .iter()
        .flatten()
        .filter_map(|origin| match origin {
            Origin::Output(node, _) => Some(*node),
            Origin::Input(_) => None,
        })
        .collect();
    if let Some(condition) = &condition {
        after.extend(resolver.mentioned(step, condition)?);
    }
    let work = match &part.work {
        Work::Ask(asked) => Work::Ask(Arc::clone(asked)),
        Work::Transform(transform) => Work::Transform(Arc::clone(transform)),
        Work::Python(function) => Work::Python(Arc::clone(function)),
    };
    Ok(Node {
        name: step.name.as_str().into(),
        work,
        signature: part.signature.clone(),
        gives: part.gives.clone(),
        inputs,
        cut,
        condition,
        on_error: step.on_error,
        default,
        timeout: step.timeout_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)),
        retries: step.retries,
        after,
        of: Vec::new(),
    })
}

/// Describes each step that asks something to those that it asks. The order of the asking steps skips the transforms
/// between them.
fn name_steps(nodes: &mut [Node], pipeline: &ApplicationId) {
    let mut asking: Vec<BTreeSet<String>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let after = node.after.iter().flat_map(|at| asking[*at].iter().cloned());
        let after: BTreeSet<String> = after.collect();
        let Work::Ask(asked) = &node.work else {
            asking.push(after);
            continue;
        };
        let of = asked.iter().map(|asked| StepOf {
            pipeline: pipeline.clone(),
            step: node.name.to_string(),
            after: after.iter().cloned().collect(),
            asks: asked.route.clone(),
        });
        node.of = of.map(Arc::new).collect();
        asking.push(BTreeSet::from([node.name.to_string()]));
    }
}

/// Refuses a step whose outputs nobody uses: it is a mistake of the user and would cost time in each query.
fn check_used(nodes: &[Node], outputs: &[Vec<Origin>]) -> Result<(), Invalid> {
    let answered = outputs.iter().flatten();
    let answered = answered.filter_map(|origin| match origin {
        Origin::Output(node, _) => Some(*node),
        Origin::Input(_) => None,
    });
    let used: BTreeSet<usize> = answered
        .chain(nodes.iter().flat_map(|node| node.after.iter().copied()))
        .collect();
    match nodes.iter().enumerate().find(|(at, _)| !used.contains(at)) {
        Some((_, node)) => {
            let why =
                "is used by no other step and no output: name it under `outputs`, or take it out";
            Err(Invalid::step(&node.name, "name", why))
        }
        None => Ok(()),
    }
}
