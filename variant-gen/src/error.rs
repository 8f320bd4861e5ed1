//! The errors of a registration.

use sextant_types::{Code, InvalidId, InvalidPadding, ModelId};

use crate::{measure::MeasureError, rewriting::RewriteFailure, validation};

/// An error of the variant generator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not a model that can be registered.
    #[error(transparent)]
    Model(#[from] sextant_onnx::Error),
    /// The same, as the process that reads models reports it.
    #[error("{}", .0.message)]
    Unable(RewriteFailure),
    /// The validation set cannot be read or does not fit.
    #[error(transparent)]
    Validation(#[from] validation::Invalid),
    /// The validation set does not fit the model, which takes no batches because of some of its outputs.
    #[error(
        "{source}; the model takes no batches because output `{astray}` does not have a row for each \
         record: leave it out with `--output {kept}`"
    )]
    Unbatched {
        /// What does not fit.
        source: Box<validation::Invalid>,
        /// Those outputs.
        astray: String,
        /// The other outputs, as an argument.
        kept: String,
    },
    /// The validation set does not fit the model, which takes no batches because some inputs are one number.
    #[error("{source}; the model takes no batches: {advice}")]
    SingleNumber {
        /// What does not fit.
        source: Box<validation::Invalid>,
        /// Advice about those inputs.
        advice: String,
    },
    /// The validation set does not fit the model, which was exported for batches of one size.
    #[error(
        "{source}; the model takes batches of `{size}` alone: export it with a dynamic batch dimension, in PyTorch by \
         `torch.onnx.export(model, (sample,), \"model.onnx\", dynamic_shapes=({{0: torch.export.Dim(\"batch\")}},))`"
    )]
    FixedBatch {
        /// What does not fit.
        source: Box<validation::Invalid>,
        /// Its first dimension.
        size: u64,
    },
    /// The model's inputs or outputs are not those of its application.
    #[error("the model does not fit application `{application}`: {difference}")]
    Signature {
        /// The application.
        application: String,
        /// The first difference.
        difference: String,
    },
    /// The declared padding does not suit the model's inputs.
    #[error(transparent)]
    Padding(#[from] InvalidPadding),
    /// No engine can run the model in any way.
    #[error("no engine can run the model: {reasons}")]
    NothingRuns {
        /// The code that describes the reason best.
        code: Code,
        /// What the engines said.
        reasons: String,
    },
    /// The model's name leaves no room for what is appended to it.
    #[error("model name `{model}` is too long to name its variants: {source}")]
    Name {
        /// The model.
        model: ModelId,
        /// What is wrong with the longest variant's name.
        source: InvalidId,
    },
    /// The registration was interrupted too often to go on.
    #[error(
        "the registration was interrupted `{attempts}` times by the end of the service: if that had another reason, \
         register the model again (`POST /v1/models/{{model}}/registration`)"
    )]
    Interrupted {
        /// How often it was begun.
        attempts: u32,
    },
    /// The named classes are not those of the output that is scored.
    #[error("{0}")]
    Classes(String),
    /// The graph for the metric is missing, or superfluous.
    #[error("{0}")]
    MetricModel(String),
    /// The job does not name a model.
    #[error("job `{0}` names no model")]
    NoModel(String),
    /// Measuring stopped.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The registry failed or refused.
    #[error(transparent)]
    Registry(#[from] sextant_registry::Error),
    /// The artefact store failed.
    #[error(transparent)]
    Objects(#[from] sextant_objects::Error),
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] sextant_metadata::Error),
    /// A stored step cannot be written or read.
    #[error("step `{step}` cannot be stored")]
    Step {
        /// Which step.
        step: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// A thread of the generator panicked.
    #[error("the generator failed: {0}")]
    Panicked(String),
}

impl Error {
    /// The stable public code.
    pub fn code(&self) -> Code {
        match self {
            Self::Model(source) => source.code(),
            Self::Unable(unable) => unable.code,
            Self::Validation(_)
            | Self::Unbatched { .. }
            | Self::SingleNumber { .. }
            | Self::FixedBatch { .. } => Code::InvalidValidationSet,
            Self::Signature { .. } => Code::SignatureMismatch,
            Self::Padding(_) => Code::InvalidPadding,
            Self::NothingRuns { code, .. } => *code,
            Self::Name { .. } => Code::InvalidName,
            Self::Classes(_) | Self::MetricModel(_) | Self::NoModel(_) => Code::InvalidRequest,
            Self::Measure(source) => source.code(),
            Self::Registry(source) => source.code(),
            Self::Objects(source) => source.code(),
            Self::Metadata(source) => source.code(),
            Self::Interrupted { .. } | Self::Step { .. } | Self::Panicked(_) => Code::Internal,
        }
    }

    /// Whether the same step may succeed a moment later: an error of a store, not of the model.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Registry(source) => {
                source.kind().is_retryable()
                    || matches!(source, sextant_registry::Error::Database(_))
            }
            Self::Objects(source) => {
                source.kind().is_retryable() || matches!(source, sextant_objects::Error::Io { .. })
            }
            Self::Metadata(source) => source.kind().is_retryable(),
            Self::Measure(MeasureError::Store { is_transient, .. }) => *is_transient,
            _ => false,
        }
    }

    /// Whether the same job may succeed some time later, elsewhere or here: the model is not at fault.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Registry(_) | Self::Objects(_) | Self::Metadata(_) => true,
            Self::Interrupted { .. } | Self::Panicked(_) | Self::Step { .. } => true,
            Self::Measure(source) => source.may_pass(),
            _ => false,
        }
    }

    /// Whether this process no longer holds the job: it was cancelled, or taken over.
    pub fn is_lost(&self) -> bool {
        use sextant_registry::Error::{Cancelled, LeaseLost, NotFound};
        matches!(
            self,
            Self::Registry(Cancelled { .. } | LeaseLost { .. })
                | Self::Registry(NotFound {
                    entity: sextant_registry::Entity::Job,
                    ..
                })
        )
    }
}

impl MeasureError {
    /// Whether the engine may be back or free at another time.
    pub fn may_pass(&self) -> bool {
        use sextant_engine::Error::{Gone, Lost, OutOfMemory, Unavailable};
        if let Self::Refused(refused) = self {
            return refused.may_pass;
        }
        let (Self::Load(source) | Self::Run { source, .. }) = self else {
            return self.is_of_no_model();
        };
        matches!(
            source,
            Unavailable { .. } | OutOfMemory(_) | Lost(_) | Gone(_)
        )
    }

    /// Whether it says nothing about any model: it must be reported, however other errors are treated.
    pub(crate) fn is_of_no_model(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Store { .. })
    }

    /// Whether another engine may succeed.
    pub(crate) fn is_of_the_engine(&self) -> bool {
        match self {
            Self::Load(_) | Self::Run { .. } => true,
            Self::Refused(refused) => !refused.is_final,
            _ => false,
        }
    }

    /// The stable public code.
    pub fn code(&self) -> Code {
        use sextant_engine::Error as Engine;

        use crate::score::ScoreError;
        match self {
            Self::Load(Engine::Unsupported(_)) => Code::UnsupportedOperator,
            Self::Load(Engine::InvalidModel(_)) | Self::Signature => Code::InvalidModel,
            Self::Load(Engine::Unavailable { .. }) => Code::Unavailable,
            Self::Load(Engine::OutOfMemory(_)) => Code::MemoryExceeded,
            Self::Score(ScoreError::Invalid(_)) => Code::InvalidValidationSet,
            Self::Load(_) | Self::Run { .. } | Self::Score(ScoreError::NotFinite { .. }) => {
                Code::EngineFailed
            }
            Self::Padding { .. } => Code::InvalidPadding,
            Self::Refused(refused) => refused.code,
            Self::Store { code, .. } => *code,
            Self::Pruned(_) | Self::Cancelled => Code::Unavailable,
        }
    }
}
