//! The definition of a pipeline: one document in JSON or YAML that users write.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_planning::dropping::Policy;
use sextant_transforms::{
    CtcOptions, ImageOptions, NmsOptions, NormalizeOptions, Options, PoolOptions, SoftmaxOptions,
    TokenizeOptions, TopKOptions,
};
use sextant_types::{ApplicationId, DataType, InvalidId, Metric, ModelId, Route, VariantId};

use crate::{Invalid, PythonOptions};

/// A pipeline: an application that several steps answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Pipeline")]
pub struct Definition {
    /// The name of the application: 1 to 100 of `a-z 0-9 - _ .`.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The inputs of queries. Properties that are left out come from the steps that take the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// The steps. Their order is only for the reader: a step runs as soon as its inputs exist.
    pub steps: Vec<Step>,
    /// The outputs of the pipeline: names, and the tensors for which they stand. If it is left out, all
    /// outputs of the last step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Sources>,
    /// The validation set on which the pipeline is measured as a whole. Queries may then ask for an accuracy
    /// of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// The application of which it is a variant. The pipeline takes the inputs and gives the outputs of the
    /// application, and answers the queries for which it is the cheapest variant that meets their targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<String>,
    /// Which queries are given up if there are more than can be answered in time: `sextant` decides by the
    /// queries on their way to each step, `pard` by the waits of queries behind the step, `nexus` by the
    /// step's share of the target, `clipper++` by the target of the whole pipeline; `none` gives up no query.
    #[serde(default, skip_serializing_if = "is_usual")]
    #[schemars(with = "String", extend("enum" = ["sextant", "pard", "nexus", "clipper++", "none"]))]
    pub dropping: Policy,
}

fn is_usual(policy: &Policy) -> bool {
    *policy == Policy::default()
}

/// A validation set for the pipeline as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// A file of the artefact store: NPZ, CSV or JSON lines with the pipeline's inputs and labels, at most 64
    /// MiB. If it is left out, the set of the latest model of the application that `variant_of` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The metric: `top1`, `exact`, `mae`, .. If it is left out, the metric of the application that
    /// `variant_of` names, else `top1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The output that is scored; if it is left out, the one that suits the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// One input of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name, which no step may have.
    pub name: String,
    /// `FP32`, `INT64`, `BYTES`, ..
    #[schemars(with = "String")]
    pub datatype: DataType,
    /// Its dimensions; -1 where any size is taken.
    pub shape: Vec<i64>,
}

/// One of several that a step asks, each for its share of the queries. Exactly one of `application`,
/// `model` and `variant` is present.
#[derive(Debug, Clone, PartialEq, std::default::Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    /// Any variant of this application, or this pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Any variant of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// This variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Its share of the queries, relative to the weights of the others.
    pub weight: f64,
}

/// One step. Exactly one of `application`, `model`, `variant`, `split`, the transforms and `python` says what it does.
#[derive(Debug, Clone, PartialEq, std::default::Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Its name: a letter or `_`, then letters, digits and `_`.
    pub name: String,
    /// Asks any variant of this application that meets `targets`, or this pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Asks any variant of this model that meets `targets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// This variant and no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The step asks one of several, each with a weight; a repeated query asks the same one. All take the
    /// same inputs and give the same outputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<Share>,
    /// Decodes pictures: `image` -> `pixels`; with `boxes`, it cuts these boxes out of one picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageOptions>,
    /// Sentences into token ids: `text` -> `input_ids`, `attention_mask`, `token_type_ids`; with `overlap`, `text_index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<TokenizeOptions>,
    /// Makes one vector of the vectors of all tokens: `hidden`, `attention_mask` -> `embedding`; with
    /// `text_index`, of all rows of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolOptions>,
    /// Vectors of length one: `vectors` -> `vectors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<NormalizeOptions>,
    /// Scores into probabilities: `scores` -> `probabilities`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softmax: Option<SoftmaxOptions>,
    /// The likeliest classes and their names: `scores` -> `labels`, `scores`, `indices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<TopKOptions>,
    /// Boxes that no better one covers: `boxes`, `scores` -> `boxes`, `scores`, `classes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nms: Option<NmsOptions>,
    /// What a model that reads a line step by step has read: `scores` -> `text`, `scores`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctc: Option<CtcOptions>,
    /// Calls a function of a Python file in a separate process, if the service allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonOptions>,
    /// The tensors of its inputs, by the inputs' names. An input that is left out is the output of that name
    /// of the latest earlier step that has one, else the pipeline's input of that name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Sources>,
    /// What the variant must be good for.
    #[serde(skip_serializing_if = "StepTargets::is_empty")]
    pub targets: StepTargets,
    /// An expression of the Common Expression Language over the outputs of other steps, such as
    /// `fast.probabilities[0][1] < 0.8`. If it is false, the step is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Tensors whose rows the step asks one by one; the outputs of the rows are joined. An input that is one
    /// of these tensors gets one row; other inputs get all their rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<Sources>,
    /// What happens to the query if the step fails.
    pub on_error: OnError,
    /// With `on_error: default`: the step's outputs, as nested lists.
    #[serde(skip_serializing_if = "Default::is_empty")]
    pub default: Default,
    /// If the step takes longer than this, it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<f64>,
    /// Number of further attempts if the step fails for a reason that may be temporary.
    pub retries: u32,
}

/// Outputs by their names, as nested lists of numbers or strings.
pub type Default = BTreeMap<String, serde_json::Value>;

/// A tensor, or several tensors of which the first that exists counts: `step.output`, or an input of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Sources {
    /// One.
    One(String),
    /// The first tensor that exists counts; a skipped step gives none.
    First(Vec<String>),
}

/// What the variant of a step must be good for.
#[derive(
    Debug, Clone, Copy, PartialEq, std::default::Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct StepTargets {
    /// Lowest accuracy, by the metric of the step's application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_accuracy: Option<f64>,
    /// Lowest accuracy as a share of that of the uploaded file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_relative_accuracy: Option<f64>,
    /// Greatest cost of a thousand of its queries, US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_per_1k_usd: Option<f64>,
}

/// What happens to a query if a step fails.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, std::default::Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It fails.
    #[default]
    Fail,
    /// The step counts as skipped.
    Skip,
    /// The step gives what `default` says.
    Default,
}

/// The work of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Asks something that is registered: one of these routes, drawn by their weights.
    Ask(Vec<(Route, f64)>),
    /// Runs a transform.
    Transform(Options),
    /// Calls a function of a Python file.
    Python(PythonOptions),
}

/// Longest name of a pipeline. The names of its variants append the version to it.
const MOST_NAME_BYTES: usize = 100;

/// Most steps of a pipeline.
const MOST_STEPS: usize = 64;

/// Most shares of a split step.
const MOST_SHARES: usize = 16;

// === impl Definition ===

impl Definition {
    /// The application that the pipeline answers.
    ///
    /// # Errors
    /// When the name breaks the naming rule.
    pub fn application(&self) -> Result<ApplicationId, Invalid> {
        if self.name.len() > MOST_NAME_BYTES {
            return Err(Invalid::whole("name", "has more than 100 characters"));
        }
        ApplicationId::new(&self.name).map_err(|error| Invalid::whole("name", error.to_string()))
    }

    /// The work of each step, in the order of the steps.
    ///
    /// # Errors
    /// Names the step that has a wrong name, or that does nothing or several things.
    pub fn actions(&self) -> Result<Vec<Action>, Invalid> {
        if self.steps.is_empty() || self.steps.len() > MOST_STEPS {
            return Err(Invalid::whole("steps", "has 1 to 64 steps"));
        }
        let mut names = BTreeSet::new();
        for step in &self.steps {
            if !is_name(&step.name) {
                let why = format!(
                    "`{}` is no name of a step: it has a letter or `_`, then letters, digits and `_`, 64 at most",
                    step.name.chars().take(64).collect::<String>()
                );
                return Err(Invalid::whole("steps", why));
            }
            if !names.insert(step.name.as_str()) {
                return Err(Invalid::step(&step.name, "name", "is another step's, too"));
            }
        }
        self.steps.iter().map(Step::action).collect()
    }

    /// The application of which the pipeline is a variant.
    ///
    /// # Errors
    /// When that name is not the name of an application.
    pub fn whole(&self) -> Result<Option<ApplicationId>, Invalid> {
        let id = self.variant_of.as_ref().map(ApplicationId::new);
        id.transpose()
            .map_err(|error| Invalid::whole("variant_of", error.to_string()))
    }

    /// The metric that the definition's `validation` names.
    ///
    /// # Errors
    /// When there is no such metric.
    pub fn metric(&self) -> Result<Option<Metric>, Invalid> {
        let named = self.validation.as_ref().and_then(|it| it.metric.as_ref());
        let Some(name) = named else {
            return Ok(None);
        };
        let unknown = || {
            let why = format!("names no metric with `{name}`: use {}", Metric::names());
            Invalid::whole("validation", why)
        };
        Metric::parse(name).map(Some).ok_or_else(unknown)
    }

    /// Whether the pipeline is measured as a whole.
    pub fn is_measured(&self) -> bool {
        self.validation.is_some() || self.variant_of.is_some()
    }

    /// The routes that the steps ask. A step that does not say what it does asks none.
    pub fn routes(&self) -> Vec<Route> {
        self.steps.iter().flat_map(Step::routes).collect()
    }

    /// The applications that the steps ask, pipelines included.
    pub(crate) fn applications(&self) -> BTreeSet<ApplicationId> {
        let steps = self.steps.iter();
        steps.flat_map(Step::applications).collect()
    }

    /// The first step that asks this application.
    pub(crate) fn step_that_asks(&self, application: &ApplicationId) -> Option<&str> {
        let mut steps = self.steps.iter();
        let found = steps.find(|step| step.applications().any(|it| it == *application));
        found.map(|step| step.name.as_str())
    }

    /// The paths of the files in the artefact store that the transforms need.
    pub fn files(&self) -> BTreeSet<String> {
        let actions = self.steps.iter().filter_map(|step| step.action().ok());
        let files = actions.flat_map(|action| match action {
            Action::Transform(options) => options.files().into_iter().map(str::to_owned).collect(),
            Action::Python(options) => options.paths().map(str::to_owned).collect(),
            Action::Ask(_) => Vec::new(),
        });
        files.collect()
    }

    /// Bytes of memory that reading the transforms' files may take, the files included.
    pub fn memory_to_read(&self, files: &BTreeMap<String, Bytes>) -> u64 {
        let actions = self.steps.iter().filter_map(|step| step.action().ok());
        let memory = actions.map(|action| match action {
            Action::Transform(options) => options.memory_to_read(files),
            Action::Python(_) | Action::Ask(_) => 0,
        });
        memory.fold(0, u64::saturating_add)
    }
}

/// Whether a step may have this name: conditions use the names of steps as variables.
fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|it| it.is_ascii_alphabetic() || it == '_');
    begins && name.len() <= 64 && letters.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

// === impl Step ===

impl Step {
    /// The routes that the step asks.
    fn routes(&self) -> impl Iterator<Item = Route> {
        let asked = match self.action() {
            Ok(Action::Ask(asked)) => asked,
            _ => Vec::new(),
        };
        asked.into_iter().map(|(route, _)| route)
    }

    /// The applications that the step asks.
    fn applications(&self) -> impl Iterator<Item = ApplicationId> {
        self.routes().filter_map(|route| match route {
            Route::Application(id) => Some(id),
            Route::Model(_) | Route::Variant(_) => None,
        })
    }

    /// The work of the step.
    fn action(&self) -> Result<Action, Invalid> {
        let invalid = |why: String| Invalid::step(&self.name, "application", why);
        let routes = routes(&self.application, &self.model, &self.variant);
        let routes = routes.map_err(|error| invalid(error.to_string()))?;
        let alone = routes
            .into_iter()
            .map(|route| Action::Ask(vec![(route, 1.0)]));
        let mut given: Vec<Action> = alone.collect();
        if !self.split.is_empty() {
            given.push(Action::Ask(self.shares()?));
        }
        let transforms = [
            self.image.clone().map(Options::Image),
            self.tokenize.clone().map(Options::Tokenize),
            self.pool.map(Options::Pool),
            self.normalize.map(Options::Normalize),
            self.softmax.map(Options::Softmax),
            self.top_k.clone().map(Options::TopK),
            self.nms.map(Options::Nms),
            self.ctc.clone().map(Options::Ctc),
        ];
        given.extend(transforms.into_iter().flatten().map(Action::Transform));
        given.extend(self.python.clone().map(Action::Python));
        match (given.pop(), given.is_empty()) {
            (Some(action), true) => Ok(action),
            (None, _) => Err(invalid(
                "is missing: a step has one of `application`, `model`, `variant`, `split`, `image`, `tokenize`, \
                 `pool`, `normalize`, `softmax`, `top_k`, `nms`, `ctc` and `python`"
                    .to_owned(),
            )),
            (Some(_), false) => Err(invalid(
                "is not all that the step does: it does one thing, and another step does the other".to_owned(),
            )),
        }
    }

    fn shares(&self) -> Result<Vec<(Route, f64)>, Invalid> {
        let invalid = |why: String| Invalid::step(&self.name, "split", why);
        if self.split.len() > MOST_SHARES {
            return Err(invalid(format!("has more than {MOST_SHARES} shares")));
        }
        let shares = self.split.iter().map(|share| {
            let routes = routes(&share.application, &share.model, &share.variant);
            let routes = routes.map_err(|error| invalid(error.to_string()))?;
            let [route] = <[Route; 1]>::try_from(routes).map_err(|_| {
                invalid(
                    "has a share that has not exactly one of `application`, `model` and `variant`"
                        .to_owned(),
                )
            })?;
            match share.weight.is_finite() && share.weight > 0.0 {
                true => Ok((route, share.weight)),
                false => Err(invalid(format!(
                    "has the weight {}: a weight is a number above 0",
                    share.weight
                ))),
            }
        });
        shares.collect()
    }
}

/// The routes to an application, a model and a variant, of those that are named.
fn routes(
    application: &Option<String>,
    model: &Option<String>,
    variant: &Option<String>,
) -> Result<Vec<Route>, InvalidId> {
    let application = application.as_ref();
    let application = application.map(|name| ApplicationId::new(name).map(Route::Application));
    let model = model
        .as_ref()
        .map(|name| name.parse::<ModelId>().map(Route::Model));
    let variant = variant
        .as_ref()
        .map(|name| VariantId::new(name).map(Route::Variant));
    [application, model, variant]
        .into_iter()
        .flatten()
        .collect()
}

// === impl Sources ===

impl Sources {
    /// The tensors, in the order of preference.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::First(all) => all,
        }
    }
}

// === impl StepTargets ===

impl StepTargets {
    /// Whether the step asks for nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
