//! The errors of a model.

use sextant_types::Code;

/// Why a model cannot be read or rewritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not an ONNX model, are cut short, or contradict themselves.
    #[error("not a valid ONNX model: {0}")]
    NotOnnx(String),
    /// A tensor's data lies in another file.
    #[error(
        "tensor `{tensor}` keeps its data in `{location}`: send that file too (form field `data`, \
         `sextant register --data FILE`), or export with the weights inside (`external_data=False`)"
    )]
    ExternalData {
        /// Name of the tensor.
        tensor: String,
        /// The file it names.
        location: String,
    },
    /// An input or output is not a dense tensor of a known element type and rank.
    #[error("{direction} `{name}` is {found}: only tensors of a known type and rank are supported")]
    UnsupportedValue {
        /// `input` or `output`.
        direction: &'static str,
        /// Name of the value.
        name: String,
        /// The type that was found.
        found: String,
    },
    /// An input or output is declared without a shape, and it cannot be found.
    #[error("{direction} `{name}` is declared without a shape: {fix}")]
    NoShape {
        /// `input` or `output`.
        direction: &'static str,
        /// Name of the value.
        name: String,
        /// Advice.
        fix: &'static str,
    },
    /// There is no output of this name.
    #[error("the model has no output `{given}`: its outputs are {known}")]
    NoSuchOutput {
        /// The name that was asked for.
        given: String,
        /// The names that exist, quoted.
        known: String,
    },
    /// There is no input of this name.
    #[error("the model has no input `{given}`: its inputs are {known}")]
    NoSuchInput {
        /// The name that was given.
        given: String,
        /// The names that exist, quoted.
        known: String,
    },
    /// Two inputs or two outputs would have one name.
    #[error("two {direction}s would be called `{name}`: give each a name of its own")]
    NameTaken {
        /// `input` or `output`.
        direction: &'static str,
        /// The name.
        name: String,
    },
    /// The model's classes are not those of its application.
    #[error(
        "its classes are {own}, and those of the application are {known}: register it under an application of its own, or \
         state what the application's classes are to this model, in the application's order, with `--classes`"
    )]
    OtherClasses {
        /// Those of the model, quoted.
        own: String,
        /// Those of the application, quoted.
        known: String,
    },
    /// An input cannot have the constant value that was declared.
    #[error("constant `{name}`: {why}")]
    Constant {
        /// Name of the input.
        name: String,
        /// Why not.
        why: String,
    },
    /// The operator set is too old for this rewriting.
    #[error("operator set {found} is too old: {purpose} needs {needed} or later")]
    OpsetTooOld {
        /// The purpose of the rewriting.
        purpose: &'static str,
        /// The oldest that works.
        needed: i64,
        /// The model's.
        found: i64,
    },
    /// Nothing that was asked to be quantised has constant 32-bit float weights.
    #[error("no operator of the model has constant 32-bit float weights that can be quantised")]
    NothingToQuantize,
    /// The weights that could be made smaller are too few.
    #[error(
        "the large matrices of the model have `{elements}` weights together: from `{needed}` on it pays to make them \
         smaller"
    )]
    SmallWeights {
        /// Number of weights of large matrices.
        elements: usize,
        /// The least number.
        needed: usize,
    },
    /// Calibration saw no finite value of a tensor.
    #[error("calibration recorded no finite range for tensor `{0}`")]
    MissingRange(String),
}

impl Error {
    /// The public code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::ExternalData { .. } => Code::ExternalData,
            Self::NotOnnx(_)
            | Self::UnsupportedValue { .. }
            | Self::NoShape { .. }
            | Self::NoSuchOutput { .. }
            | Self::NoSuchInput { .. }
            | Self::NameTaken { .. }
            | Self::Constant { .. } => Code::InvalidModel,
            Self::OtherClasses { .. } => Code::SignatureMismatch,
            Self::OpsetTooOld { .. } | Self::NothingToQuantize | Self::SmallWeights { .. } => {
                Code::UnsupportedOperator
            }
            Self::MissingRange(_) => Code::InvalidValidationSet,
        }
    }
}
