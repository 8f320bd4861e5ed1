//! Rewrites a model's file without running it.
//!
//! Reading a file may take many times its size in memory, and the result may be larger than the file. So if engines are
//! isolated, the measuring process rewrites it, within its limits: it gets the file, and answers what it found and made
//! ([`crate::isolation`]). Without isolation the same functions run here.
//!
//! A [`Rewriting`] is an operation with its parameters, as another process gets it; a [`Rewrite`] also knows its
//! result.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sextant_engine::ModelFile;
use sextant_onnx::{
    Error, adapt,
    external::{self, Files},
    fit, inspect, outline,
    quantize::{quantize_dynamic, quantize_weights_only},
    ranks::{self, Shapes, Unknown},
};
use sextant_types::{Code, Names, Precision, Renames, Signature};

use crate::generator::calibrate;

mod large;
mod look;

pub(crate) use large::{Compose, Outline, parts};
pub(crate) use look::{Look, LookOptions, OTHERS, Vocabulary, WidenedFile};

/// The result may have twice the size of the files and this many bytes more.
const MOST_GROWTH_BYTES: u64 = 64 << 20;

/// The result of a rewriting.
pub(crate) struct RewriteOutput<T> {
    /// What was found.
    pub(crate) found: T,
    /// The files that were made; for most operations one.
    pub(crate) files: Vec<Bytes>,
}

/// An operation on a file.
pub(crate) trait Rewrite: Send + 'static {
    /// What it finds.
    type Found: Serialize + DeserializeOwned + Send + 'static;

    /// Does it.
    fn rewrite(
        &self,
        file: &ModelFile,
        beside: &[Bytes],
    ) -> Result<RewriteOutput<Self::Found>, Error>;

    /// The operation, to be sent to another process.
    fn told(self) -> Rewriting;
}

/// An operation, for another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rewriting {
    /// Read the outline of a large file.
    Outline(Outline),
    /// Assemble a large file.
    Compose(Compose),
    /// Put the data of the files beside it into it.
    Embed(Embed),
    /// Find where in those files the data is.
    Resolve(Resolve),
    /// Make it servable, under the names of its application.
    Fit(Fit),
    /// Write shapes into it.
    Declare(Declare),
    /// Make the model that answers with shapes.
    Probe(Probe),
    /// Use its application's classes, and find out about batches.
    Look(Box<LookOptions>),
    /// Remove its batch dimension.
    Lone(Lone),
    /// Make its weights smaller.
    Quantize(Quantize),
}

/// The result from another process, before the bytes of its files.
#[derive(Debug, Serialize, Deserialize)]
pub struct RewriteReply {
    /// What was found, or why there is nothing.
    pub found: Result<Value, RewriteFailure>,
    /// The length of each file; `None` for a file that is unchanged.
    pub files: Vec<Option<u64>>,
}

/// Why a file cannot be rewritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewriteFailure {
    /// The stable public code.
    pub code: Code,
    /// Why.
    pub message: String,
}

/// [`external::embed`] for the whole file; finds whether there was anything to embed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Embed {
    /// The names that tensors use for the files beside it, in order.
    pub(crate) names: Vec<String>,
}

/// [`external::resolve`]; finds whether its tensors are where engines read them in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resolve {
    /// The sizes of the files beside it, bytes, by the names that tensors use.
    pub(crate) sizes: BTreeMap<String, u64>,
}

/// [`adapt::plain`] and [`fit::names`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fit {
    /// The outputs to serve; empty for all.
    pub(crate) outputs: Vec<String>,
    /// Inputs that are the same in every query: the bits of their numbers, which text would round.
    pub(crate) constants: BTreeMap<String, Vec<u64>>,
    /// What was changed before, in words.
    pub(crate) changed: Option<String>,
    /// The names that the owner states.
    pub(crate) stated: Renames,
    /// The signature of the application's models.
    pub(crate) application: Option<Signature>,
}

/// The findings of [`Fit`].
#[derive(Debug, Serialize, Deserialize)]
pub struct FitResult {
    pub(crate) plain: adapt::Plain,
    /// The inputs that have new names, by the old ones.
    pub(crate) inputs: Names,
    /// Whether the application's models take one record at a time, and this one is declared so as well.
    pub(crate) is_lone: bool,
    /// Inputs and outputs that are declared without a shape.
    pub(crate) unknown: Unknown,
}

/// [`ranks::declare`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Declare {
    pub(crate) shapes: Shapes,
    /// Whether the file's own declarations of these are dropped first.
    pub(crate) anew: bool,
}

/// [`ranks::probe`]; makes nothing of a model with more weights than are loaded for that.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// Whether declared outputs are probed, too: only of models with at most this many bytes of weights.
    pub(crate) all_up_to: Option<u64>,
}

/// The findings of [`Probe`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ProbeResult {
    /// The model's declaration, if its declared outputs are probed.
    pub(crate) declared: Option<Signature>,
    /// The signature of the model that answers with shapes.
    pub(crate) asked: Signature,
}

/// [`adapt::lone`] or [`adapt::unbatched`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lone {
    /// Batches are not answered as their records are alone.
    Mixes,
    /// Its first dimensions are not batch dimensions.
    Whole,
}

/// Makes its weights smaller; finds the nodes that compute in them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Quantize {
    pub(crate) precision: Precision,
}

// === impl Rewriting ===

impl Rewriting {
    /// Runs the operation for another process.
    pub(crate) fn run(self, file: &ModelFile, beside: &[Bytes]) -> (RewriteReply, Vec<Bytes>) {
        match self {
            Self::Outline(it) => answer(&it, file, beside),
            Self::Compose(it) => answer(&it, file, beside),
            Self::Embed(it) => answer(&it, file, beside),
            Self::Resolve(it) => answer(&it, file, beside),
            Self::Fit(it) => answer(&it, file, beside),
            Self::Declare(it) => answer(&it, file, beside),
            Self::Probe(it) => answer(&it, file, beside),
            Self::Look(it) => answer(&*it, file, beside),
            Self::Lone(it) => answer(&it, file, beside),
            Self::Quantize(it) => answer(&it, file, beside),
        }
    }

    /// Whether it reads the weights of a large model, which may take long.
    pub(crate) fn reads_weights(&self) -> bool {
        matches!(self, Self::Quantize(_))
    }
}

fn answer<R: Rewrite>(how: &R, file: &ModelFile, beside: &[Bytes]) -> (RewriteReply, Vec<Bytes>) {
    let made = how.rewrite(file, beside);
    RewriteReply::of(
        made.map_err(|error| RewriteFailure::from(&error)),
        (file, beside),
    )
}

/// Most bytes of the files that are accepted as the result for a file and those beside it.
pub(crate) fn most_made(file: &ModelFile, beside: &[Bytes]) -> u64 {
    let beside = beside.iter().map(|it| it.len() as u64).sum::<u64>();
    let weights = file.weights.as_ref().map(|it| it.size_bytes());
    let sent = file.graph.len() as u64 + beside + weights.unwrap_or_default();
    sent.saturating_mul(2).saturating_add(MOST_GROWTH_BYTES)
}

// === impl RewriteReply ===

impl RewriteReply {
    /// The reply and its files, from the result for a file and those beside it.
    pub(crate) fn of<T: Serialize>(
        made: Result<RewriteOutput<T>, RewriteFailure>,
        (file, beside): (&ModelFile, &[Bytes]),
    ) -> (Self, Vec<Bytes>) {
        let sent = &file.graph;
        let told = made.and_then(|made| {
            let bytes = made.files.iter().map(|it| it.len() as u64).sum::<u64>();
            let most = most_made(file, beside);
            if bytes > most {
                return Err(RewriteFailure {
                    code: Code::MemoryExceeded,
                    message: format!(
                        "what is made of the model has `{bytes}` bytes, and at most `{most}` may be made of files of this size"
                    ),
                });
            }
            let found = serde_json::to_value(made.found).map_err(|error| RewriteFailure {
                code: Code::Internal,
                message: format!("what was found in the model cannot be told: {error}"),
            })?;
            Ok((found, made.files))
        });
        let (found, files) = match told {
            Ok((found, files)) => (Ok(found), files),
            Err(unable) => (Err(unable), Vec::new()),
        };
        let lengths = files.iter().map(|file| match file == sent {
            true => None,
            false => Some(file.len() as u64),
        });
        let rewritten = Self {
            found,
            files: lengths.collect(),
        };
        let files = files.into_iter().filter(|file| file != sent).collect();
        (rewritten, files)
    }

    /// The result, from the files that came with the reply and those that were sent. `None` if it is not what was asked
    /// for.
    pub(crate) fn made<T: DeserializeOwned>(
        self,
        files: Vec<Bytes>,
        sent: &Bytes,
    ) -> Option<Result<RewriteOutput<T>, RewriteFailure>> {
        let found = match self.found {
            Ok(found) => serde_json::from_value(found).ok()?,
            Err(unable) => return Some(Err(unable)),
        };
        let mut made = files.into_iter();
        let files = self.files.iter().map(|length| match length {
            None => Some(sent.clone()),
            Some(_) => made.next(),
        });
        let files = files.collect::<Option<Vec<_>>>()?;
        Some(Ok(RewriteOutput { found, files }))
    }
}

impl From<&Error> for RewriteFailure {
    fn from(error: &Error) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

// === impl RewriteOutput ===

impl<T> RewriteOutput<T> {
    /// A result with one file.
    pub(crate) fn one(found: T, file: Bytes) -> Self {
        let files = vec![file];
        Self { found, files }
    }
}

// === impl Rewrite ===

impl Rewrite for Embed {
    type Found = bool;

    fn rewrite(&self, file: &ModelFile, beside: &[Bytes]) -> Result<RewriteOutput<bool>, Error> {
        let named = self.names.iter().cloned().zip(beside.iter().cloned());
        let files: Files = named.collect();
        let whole = file.whole();
        let whole = whole.map_err(|error| Error::NotOnnx(error.to_string()))?;
        let whole = external::embed(&whole, &files)?;
        Ok(RewriteOutput {
            found: whole.is_some(),
            files: whole.into_iter().collect(),
        })
    }

    fn told(self) -> Rewriting {
        Rewriting::Embed(self)
    }
}

impl Rewrite for Resolve {
    type Found = bool;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<bool>, Error> {
        let size = |name: &str| self.sizes.get(name).copied();
        let graph = external::resolve(&file.graph, size)?;
        let is_aligned = outline::is_aligned(&graph)?;
        Ok(RewriteOutput::one(is_aligned, graph))
    }

    fn told(self) -> Rewriting {
        Rewriting::Resolve(self)
    }
}

impl Rewrite for Fit {
    type Found = FitResult;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<FitResult>, Error> {
        let numbers = |bits: &Vec<u64>| bits.iter().map(|it| f64::from_bits(*it)).collect();
        let constants = self.constants.iter();
        let declared = adapt::DeclaredSignature {
            outputs: self.outputs.clone(),
            constants: constants
                .map(|(name, bits)| (name.clone(), numbers(bits)))
                .collect(),
        };
        let mut plain = adapt::plain(&file.graph, &declared)?;
        plain.changes.extend(self.changed.clone());
        let application = self.application.as_ref();
        let named = fit::names(plain, &self.stated, &self.outputs, application)?;
        let model = named.plain.model.clone();
        let fitted = FitResult {
            unknown: ranks::unknown(&model)?,
            plain: named.plain,
            inputs: named.inputs,
            is_lone: named.is_lone,
        };
        Ok(RewriteOutput::one(fitted, model))
    }

    fn told(self) -> Rewriting {
        Rewriting::Fit(self)
    }
}

impl Rewrite for Declare {
    type Found = ();

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<()>, Error> {
        let names: Vec<String> = self.shapes.keys().cloned().collect();
        let model = match self.anew {
            true => ranks::forget(&file.graph, &names)?,
            false => file.graph.clone(),
        };
        Ok(RewriteOutput::one(
            (),
            ranks::declare(&model, &self.shapes)?,
        ))
    }

    fn told(self) -> Rewriting {
        Rewriting::Declare(self)
    }
}

impl Rewrite for Probe {
    type Found = Option<ProbeResult>;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<Self::Found>, Error> {
        let mut open = file.graph.clone();
        let mut declared = None;
        if let Some(most) = self.all_up_to {
            let info = inspect(&open)?;
            if info.weights_bytes > most {
                let files = Vec::new();
                return Ok(RewriteOutput { found: None, files });
            }
            let outputs = info.signature.outputs.iter();
            let names: Vec<String> = outputs.map(|it| it.name.clone()).collect();
            open = ranks::forget(&open, &names)?;
            declared = Some(info.signature);
        }
        let probe = ranks::probe(&open)?;
        let asked = inspect(&probe)?.signature;
        Ok(RewriteOutput::one(
            Some(ProbeResult { declared, asked }),
            probe,
        ))
    }

    fn told(self) -> Rewriting {
        Rewriting::Probe(self)
    }
}

impl Rewrite for Lone {
    type Found = sextant_onnx::ModelInfo;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<Self::Found>, Error> {
        let model = match self {
            Self::Mixes => adapt::lone(&file.graph)?,
            Self::Whole => adapt::unbatched(&file.graph)?,
        };
        Ok(RewriteOutput::one(inspect(&model)?, model))
    }

    fn told(self) -> Rewriting {
        Rewriting::Lone(self)
    }
}

impl Rewrite for Quantize {
    type Found = Vec<String>;

    fn rewrite(&self, file: &ModelFile, _: &[Bytes]) -> Result<RewriteOutput<Self::Found>, Error> {
        let quantized = calibrate::rewritten(file, |source| match self.precision {
            Precision::Int8Weights => quantize_weights_only(source, 8),
            Precision::Int4Weights => quantize_weights_only(source, 4),
            _ => quantize_dynamic(source),
        })?;
        Ok(RewriteOutput::one(quantized.nodes, quantized.model))
    }

    fn told(self) -> Rewriting {
        Rewriting::Quantize(self)
    }
}
