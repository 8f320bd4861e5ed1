//! `sextant inspect`: shows what a registration would find in a file. It asks no server.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use sextant_engine::read_range;
use sextant_onnx::{
    ModelInfo,
    adapt::{self, DeclaredSignature, Plain, plain, widen},
    external::{self, Files},
    fit, inspect, outline,
    ranks::{self, Unknown},
    turn::turn,
};
use sextant_types::{Metric, Signature, TensorSpec};
use sextant_variant_gen::validation::ScoringTarget;

use super::{Error, Output, register};
use engines::EngineCheck;

mod engines;

/// Show how a model would be registered: its inputs, outputs and batches, the scored output, the changes to the
/// model, and the engines that can run it.
///
/// The command shows which of this machine's engines load the model, and why the others do not. It asks no server.
/// See docs/models.md.
#[derive(Debug, Args)]
pub struct InspectModel {
    /// The ONNX file, or a folder with one.
    #[arg(value_name = "FILE")]
    model: PathBuf,
    /// A file beside the model that has the data of its tensors [default: those that the model names, in its folder].
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    declaration: register::Declaration,
    /// The metric by which the model would be scored.
    #[arg(long, value_parser = register::metric, default_value = "top1")]
    metric: String,
}

/// From this size on, with the files beside it, a model is looked at without its large tensors.
const LARGE_BYTES: u64 = 512 << 20;

/// Said of such a model.
const UNTRIED: &str =
    "it is large: engines are asked when it is registered, which maps it in place of reading it";

/// What was found out.
struct Inspection {
    engines: Vec<EngineCheck>,
    info: ModelInfo,
    plain: Plain,
    /// What has no shape before it is registered.
    unknown: Unknown,
    scored: ScoringTarget,
    /// Whether batches have to be tried to know whether it takes them.
    may_be_batched: bool,
}

impl InspectModel {
    /// Does it.
    pub fn run(&self, output: Output) -> Result<(), Error> {
        let found = self.inspect()?;
        output.either(&found.document(), || found.text())
    }

    fn inspect(&self) -> Result<Inspection, Error> {
        let folder = register::Folder::open(&self.model)?;
        let model = folder.map_or_else(|| self.model.clone(), |folder| folder.model);
        let refused = |error| refused(&self.model, &error);
        let data = register::data_files(&model, &self.data)?;
        let plain = read_model(&model, &data, &self.declaration.declared())?;
        let named = fit::names(plain, &self.declaration.renames(), &[], None).map_err(refused)?;
        let mut plain = named.plain;
        let unknown = ranks::unknown(&plain.model).map_err(refused)?;
        plain.changes.extend(to_be_found(&unknown));
        let names = unknown.inputs.iter().chain(&unknown.outputs);
        let shown = some_shape(&plain.model, names).map_err(refused)?;
        let info = inspect(&shown).map_err(refused)?;
        let metric = Metric::parse(&self.metric).unwrap_or(Metric::Top1);
        let scored = match self.declaration.chooses_outputs() {
            true => ScoringTarget::default(),
            false => ScoringTarget::by(metric, &info.signature),
        };
        let wide = match info.signature.batched {
            true => None,
            false => match turn(&shown).map_err(refused)? {
                Some(turned) => Some(turned),
                None => widen(&shown).map_err(refused)?,
            },
        };
        Ok(Inspection {
            engines: engines_of(&plain.model, &unknown).map_err(refused)?,
            may_be_batched: wide.is_some(),
            info,
            plain,
            unknown,
            scored,
        })
    }
}

/// The inputs and outputs of a model as it is declared.
pub fn signature(
    model: &Path,
    data: &[PathBuf],
    declared: &DeclaredSignature,
) -> Result<Signature, Error> {
    let refused = |error| refused(model, &error);
    let plain = read_model(model, data, declared)?;
    let unknown = ranks::unknown(&plain.model).map_err(refused)?;
    // Shapes of outputs are for display alone: nobody converts data for them.
    let shown = some_shape(&plain.model, unknown.outputs.iter()).map_err(refused)?;
    Ok(inspect(&shown).map_err(refused)?.signature)
}

/// The model with any shape for these, which have none.
fn some_shape<'a>(
    model: &Bytes,
    names: impl Iterator<Item = &'a String>,
) -> Result<Bytes, sextant_onnx::Error> {
    let shapes: ranks::Shapes = names.map(|name| (name.clone(), vec![None])).collect();
    match shapes.is_empty() {
        true => Ok(model.clone()),
        false => ranks::declare(model, &shapes),
    }
}

/// What registration does about missing shapes.
fn to_be_found(unknown: &Unknown) -> impl Iterator<Item = String> + '_ {
    let text = |direction: &'static str, how: &'static str| {
        move |name: &String| format!("{direction} `{name}` is declared without a shape: {how}")
    };
    let from_set = "it is taken from the validation set, in .npz or JSONL";
    let inputs = unknown.inputs.iter().map(text("input", from_set));
    let by_running = "it is found by running the model";
    inputs.chain(unknown.outputs.iter().map(text("output", by_running)))
}

/// The engines that load the model; none are asked where what they have to know comes with the validation set.
fn engines_of(model: &Bytes, unknown: &Unknown) -> Result<Vec<EngineCheck>, sextant_onnx::Error> {
    if is_outline(model)? {
        return Ok(Vec::new());
    }
    Ok(match (&unknown.inputs[..], &unknown.outputs[..]) {
        ([], []) => engines::able(model),
        ([], _) => engines::able(&ranks::probe(model)?),
        _ => Vec::new(),
    })
}

/// A model with the files beside it, as it would be registered.
fn read_model(
    model: &Path,
    data: &[PathBuf],
    declared: &DeclaredSignature,
) -> Result<Plain, Error> {
    let refused = |error| refused(model, &error);
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let all = data.iter().map(PathBuf::as_path).chain([model]);
    let sizes: Vec<u64> = all.map(size).collect::<Result<_, _>>()?;
    if sizes.iter().sum::<u64>() >= LARGE_BYTES {
        let data = data.iter().map(|path| Ok((name(path), open(path)?)));
        let data = data.collect::<Result<_, Error>>()?;
        let mut plain = plain(&outlined(model, data)?, declared).map_err(refused)?;
        if is_outline(&plain.model).map_err(refused)? {
            plain.changes.push(UNTRIED.to_owned());
        }
        return Ok(plain);
    }
    let file = read(model)?;
    let mut files = Files::new();
    for path in data {
        files.insert(name(path), read(path)?);
    }
    let whole = external::embed(&file, &files).map_err(refused)?;
    plain(whole.as_ref().unwrap_or(&file), declared).map_err(refused)
}

fn is_outline(model: &Bytes) -> Result<bool, sextant_onnx::Error> {
    Ok(outline::is_outline(&sextant_onnx::decode(model)?))
}

/// The outline of a large model with the files beside it, of which nothing is read that is large.
fn outlined(model: &Path, data: BTreeMap<String, File>) -> Result<Bytes, Error> {
    let refused = |error| refused(model, &error);
    let file = open(model)?;
    let graph =
        outline::outline(size(model)?, |range| read_range(&file, range)).map_err(refused)?;
    if data.is_empty() {
        return Ok(graph);
    }
    let mut files = data;
    files.insert(outline::WEIGHTS.to_owned(), file);
    let size = |name: &str| Some(files.get(name)?.metadata().ok()?.len());
    let graph = external::resolve(&graph, size).map_err(refused)?;
    let read = |name: &str, range| read_range(files.get(name)?, range);
    let parts = outline::compose(&graph, read).map_err(refused)?;
    outline::of_parts(&parts, read).map_err(refused)
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| unread(path, source))
}

fn size(path: &Path) -> Result<u64, Error> {
    let metadata = path.metadata().map_err(|source| unread(path, source))?;
    Ok(metadata.len())
}

fn unread(path: &Path, source: io::Error) -> Error {
    Error::Io {
        path: path.to_owned(),
        source,
    }
}

fn refused(model: &Path, error: &sextant_onnx::Error) -> Error {
    Error::Usage(format!("`{}`: [{}] {error}", model.display(), error.code()))
}

fn read(path: &Path) -> Result<Bytes, Error> {
    let read = std::fs::read(path).map(Bytes::from);
    read.map_err(|source| unread(path, source))
}

// === impl Inspection ===

impl Inspection {
    fn batches(&self) -> String {
        if let Some(advice) = adapt::advice_on_single_numbers(&self.info.signature) {
            return format!("no: {advice}");
        }
        let text = match (self.info.signature.batched, self.may_be_batched) {
            _ if self.unknown != Unknown::default() => "known once its shapes are",
            (true, _) => "yes",
            (false, true) => {
                "declared without, or elsewhere than first; registration tries batches of 1, 2 and 3"
            }
            (false, false) => {
                "no: export it with a dynamic first dimension of every input and output"
            }
        };
        text.to_owned()
    }

    fn scored_output(&self) -> &str {
        let output = self.info.signature.outputs.get(self.scored.output);
        output.map_or("", |output| &output.name)
    }

    fn classes(&self) -> &[String] {
        let named = self.plain.classes.iter();
        let mut named = named.filter(|(name, _)| name == self.scored_output());
        named.next().map_or(&[], |(_, classes)| classes)
    }

    fn is_known(&self, name: &String) -> bool {
        !self.unknown.inputs.contains(name) && !self.unknown.outputs.contains(name)
    }

    fn shape(&self, spec: &TensorSpec) -> String {
        match self.is_known(&spec.name) {
            true => spec.shape_text(),
            false => "of unknown rank".to_owned(),
        }
    }

    fn document(&self) -> Value {
        let spec = |spec: &TensorSpec| {
            let shape = self.is_known(&spec.name).then_some(&spec.shape);
            json!({"name": spec.name, "datatype": spec.data_type.name(), "shape": shape})
        };
        let signature = &self.info.signature;
        json!({
            "opset": self.info.opset,
            "nodes": self.info.nodes,
            "parameters": self.info.parameters,
            "weights_bytes": self.info.weights_bytes,
            "operators": self.info.op_types,
            "inputs": signature.inputs.iter().map(spec).collect::<Vec<_>>(),
            "outputs": signature.outputs.iter().map(spec).collect::<Vec<_>>(),
            "batched": signature.batched,
            "may_be_batched": self.may_be_batched,
            "scored_output": self.scored_output(),
            "classes": self.classes(),
            "changes": self.plain.changes,
            "engines": self.engines.iter().map(EngineCheck::document).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let info = &self.info;
        let line = |spec: &TensorSpec| {
            let scored = match spec.name == self.scored_output() {
                true => "  (scored)",
                false => "",
            };
            let shape = self.shape(spec);
            format!("  {}  {} {shape}{scored}\n", spec.name, spec.data_type)
        };
        let inputs = info.signature.inputs.iter();
        let inputs = inputs
            .map(|spec| format!("  {}  {} {}\n", spec.name, spec.data_type, self.shape(spec)));
        let outputs = info.signature.outputs.iter().map(line);
        let changes = self
            .plain
            .changes
            .iter()
            .map(|change| format!("  {change}\n"));
        let classes = match self.classes() {
            [] => String::new(),
            classes => format!("classes: {}\n", classes.join(", ")),
        };
        format!(
            "operator set {}, {} nodes, {} parameters, {} bytes of weights\ninputs:\n{}outputs:\n{}{classes}batches: \
             {}\noperators: {}\nchanges:\n{}engines:\n{}",
            info.opset,
            info.nodes,
            info.parameters,
            info.weights_bytes,
            inputs.collect::<String>(),
            outputs.collect::<String>(),
            self.batches(),
            info.op_types.join(", "),
            match self.plain.changes.is_empty() {
                true => "  none\n".to_owned(),
                false => changes.collect::<String>(),
            },
            self.engines.iter().map(EngineCheck::line).collect::<String>()
        )
        .trim_end()
        .to_owned()
    }
}
