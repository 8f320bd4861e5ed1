//! Transforms around the models of a pipeline: decoding images, tokenising sentences, pooling vectors, naming classes.
//!
//! A [`Transform`] is made once from its [`Options`], the files that these name, and the inputs that its step maps. It
//! then converts tensors to tensors, without I/O, clocks or state. Its [`Signature`] is known before it runs, so that a
//! pipeline is checked when it is registered.

mod boxes;
mod classes;
mod image;
mod numbers;
mod sequence;
mod text;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature, Tensor, TensorSpec};

pub use crate::{
    boxes::NmsOptions,
    classes::TopKOptions,
    image::{Fit, ImageOptions, Layout, Resampling},
    sequence::CtcOptions,
    text::{PadTo, TokenizeOptions},
    vectors::{NormalizeOptions, PoolOptions, Pooling, SoftmaxOptions},
};

/// What a transform does. One of these is the value of the key of its name in a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Options {
    /// Decodes pictures and brings them to one size: `image` -> `pixels`; with `boxes`, cuts these out of one picture.
    Image(ImageOptions),
    /// Sentences into token ids: `text` -> `input_ids`, `attention_mask`, `token_type_ids`; with `overlap`, `text_index`.
    Tokenize(TokenizeOptions),
    /// Makes one vector of the vectors of all tokens: `hidden`, `attention_mask` -> `embedding`; with
    /// `text_index`, of all rows of a text.
    Pool(PoolOptions),
    /// Vectors of length one: `vectors` -> `vectors`.
    Normalize(NormalizeOptions),
    /// Scores into probabilities along the last dimension: `scores` -> `probabilities`.
    Softmax(SoftmaxOptions),
    /// The likeliest classes and their names: `scores` -> `labels`, `scores`, `indices`.
    TopK(TopKOptions),
    /// Boxes that no better one covers: `boxes`, `scores` -> `boxes`, `scores`, `classes`.
    Nms(NmsOptions),
    /// What a model that reads a line step by step has read: `scores` -> `text`, `scores`.
    Ctc(CtcOptions),
}

/// Why a transform cannot be made or cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An option has a value that nothing can be made of.
    #[error("option `{option}` {why}")]
    Option {
        /// Which one.
        option: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A file that an option names.
    #[error("file `{path}` {why}")]
    File {
        /// Its path in the artefact store.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// An element of an input: a picture that is none, a text that is not UTF-8, a box outside its picture.
    #[error("row `{row}` of `{input}` {why}")]
    Row {
        /// Which input.
        input: &'static str,
        /// Which of its rows.
        row: usize,
        /// What is wrong with it.
        why: String,
    },
    /// An input whose type or shape does not fit.
    #[error("input `{input}` {why}")]
    Input {
        /// Which one.
        input: &'static str,
        /// What is wrong.
        why: String,
    },
    /// What comes out would be larger than a tensor may be.
    #[error("`{what}` would take `{bytes}` bytes, and at most `{most}` are made")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How much.
        bytes: u64,
        /// How much there may be.
        most: u64,
    },
}

/// Most bytes that one transform makes of one query.
pub const MOST_BYTES: u64 = 256 << 20;

/// Most elements of an input for which arithmetic is quick.
const QUICK_ELEMENTS: usize = 16_384;

/// A transform that is ready to run.
pub struct Transform {
    name: &'static str,
    signature: Signature,
    kind: Kind,
}

enum Kind {
    Image(image::Image),
    Tokenize(Box<text::Tokenize>),
    Pool(PoolOptions),
    Normalize,
    Softmax(SoftmaxOptions),
    TopK(classes::TopK),
    Nms(NmsOptions),
    Ctc(sequence::Ctc),
}

/// An input or output of a transform; -1 stands for a dimension of any size.
fn spec(name: &str, data_type: DataType, shape: &[i64]) -> TensorSpec {
    let shape = shape.iter().map(|size| u64::try_from(*size).ok()).collect();
    TensorSpec {
        name: name.to_owned(),
        data_type,
        shape,
    }
}

/// The tensor of that name.
fn named<'a>(inputs: &'a [NamedTensor], name: &'static str) -> Result<&'a Tensor, Error> {
    let found = inputs.iter().find(|input| input.name == name);
    let missing = || Error::Input {
        input: name,
        why: "is missing".to_owned(),
    };
    Ok(&found.ok_or_else(missing)?.tensor)
}

/// Bytes of a tensor with these dimensions and elements of `size` bytes.
fn bytes_of(dimensions: &[usize], size: u64) -> u64 {
    let dimensions = dimensions.iter();
    dimensions.fold(size, |bytes, dim| bytes.saturating_mul(*dim as u64))
}

/// Checks that a tensor with these dimensions may be made.
fn check_size(what: &'static str, dimensions: &[usize], size: u64) -> Result<(), Error> {
    let bytes = bytes_of(dimensions, size);
    if bytes > MOST_BYTES {
        return Err(Error::TooLarge {
            what,
            bytes,
            most: MOST_BYTES,
        });
    }
    Ok(())
}

// === impl Options ===

impl Options {
    /// The files of the artefact store that it needs, by their paths.
    pub fn files(&self) -> Vec<&str> {
        match self {
            Self::Tokenize(options) => vec![options.tokenizer.as_str()],
            Self::TopK(options) => options.labels_file.as_deref().into_iter().collect(),
            Self::Ctc(options) => vec![options.labels_file.as_str()],
            _ => Vec::new(),
        }
    }

    /// Bytes of memory that reading its files may take, these included.
    pub fn memory_to_read(&self, files: &BTreeMap<String, Bytes>) -> u64 {
        let files = self.files().into_iter().filter_map(|path| files.get(path));
        let memory = files.map(|file| match self {
            Self::Tokenize(_) => text::memory_to_read(file).saturating_add(file.len() as u64),
            _ => file.len() as u64,
        });
        memory.fold(0, u64::saturating_add)
    }

    /// Its name, as steps have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Image(_) => "image",
            Self::Tokenize(_) => "tokenize",
            Self::Pool(_) => "pool",
            Self::Normalize(_) => "normalize",
            Self::Softmax(_) => "softmax",
            Self::TopK(_) => "top_k",
            Self::Nms(_) => "nms",
            Self::Ctc(_) => "ctc",
        }
    }
}

// === impl Transform ===

impl Transform {
    /// Makes one. `files` has the content of those that [`Options::files`] names; `mapped` are the optional inputs
    /// that the step gives it.
    ///
    /// # Errors
    /// Which option or file it cannot be made of.
    pub fn new(
        options: &Options,
        files: &BTreeMap<String, Bytes>,
        mapped: &BTreeSet<String>,
    ) -> Result<Self, Error> {
        let (signature, kind) = match options {
            Options::Image(options) => {
                let image = image::Image::new(options, mapped.contains("boxes"))?;
                (image.signature(), Kind::Image(image))
            }
            Options::Tokenize(options) => {
                let tokenize = text::Tokenize::new(options, files, mapped.contains("pair"))?;
                (tokenize.signature(), Kind::Tokenize(Box::new(tokenize)))
            }
            Options::Pool(options) => {
                let windows = mapped.contains(text::TEXT_INDEX);
                (vectors::pool_signature(windows), Kind::Pool(*options))
            }
            Options::Normalize(_) => (vectors::normalize_signature(), Kind::Normalize),
            Options::Softmax(options) => (
                vectors::softmax_signature(options)?,
                Kind::Softmax(*options),
            ),
            Options::TopK(options) => {
                let top = classes::TopK::new(options, files)?;
                (top.signature(), Kind::TopK(top))
            }
            Options::Nms(options) => (boxes::signature(options)?, Kind::Nms(*options)),
            Options::Ctc(options) => {
                let ctc = sequence::Ctc::new(options, files)?;
                (ctc.signature(), Kind::Ctc(ctc))
            }
        };
        let name = options.name();
        Ok(Self {
            name,
            signature,
            kind,
        })
    }

    /// What it does, as steps say it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it takes and gives.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Whether it takes no longer than handing it to another thread would.
    pub fn is_quick(&self, inputs: &[NamedTensor]) -> bool {
        let is_arithmetic = !matches!(self.kind, Kind::Image(_) | Kind::Tokenize(_) | Kind::Nms(_));
        is_arithmetic
            && inputs.iter().all(|input| {
                // The output for an empty input may have the sizes of the other dimensions.
                let sizes = input.tensor.shape().iter().map(|size| (*size).max(1));
                sizes.fold(1, usize::saturating_mul) <= QUICK_ELEMENTS
            })
    }

    /// Most bytes of memory that it takes while it runs, outputs included. It reads only the heads of images.
    pub fn needs_bytes(&self, inputs: &[NamedTensor]) -> u64 {
        let held = inputs.iter().map(|input| input.tensor.held_bytes() as u64);
        let held: u64 = held.sum();
        let made = match &self.kind {
            Kind::Image(image) => return image.needs_bytes(inputs),
            Kind::Tokenize(tokenize) => return tokenize.needs_bytes(inputs),
            // Its scores are converted to single precision, and its output is at most one class for each step.
            Kind::Ctc(ctc) => return ctc.text_bytes(inputs).saturating_add(2 * held),
            Kind::TopK(top) => top.text_bytes(inputs),
            Kind::Pool(_) => vectors::pooled_bytes(inputs),
            _ => 0,
        };
        made.saturating_add(8 * held)
    }

    /// Runs it. It takes a core for as long as it takes: whoever serves others runs it elsewhere.
    ///
    /// # Errors
    /// Which input, and which row of it, cannot be brought over.
    pub fn apply(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
        match &self.kind {
            Kind::Image(image) => image.apply(inputs),
            Kind::Tokenize(tokenize) => tokenize.apply(inputs),
            Kind::Pool(options) => vectors::pool(options, inputs),
            Kind::Normalize => vectors::normalize(inputs),
            Kind::Softmax(options) => vectors::softmax(options, inputs),
            Kind::TopK(top) => top.apply(inputs),
            Kind::Nms(options) => boxes::nms(options, inputs),
            Kind::Ctc(ctc) => ctc.apply(inputs),
        }
    }
}
