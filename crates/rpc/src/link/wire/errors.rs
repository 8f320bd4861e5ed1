//! Refusals by their codes.

use serde::{Deserialize, Serialize};
use sextant_types::VariantId;

use crate::{InferError, WorkError};

/// A refusal: its stable code and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    /// [`InferError::code`] or [`WorkError::code`].
    pub code: String,
    /// The variant that it is about, where it names one.
    pub variant: Option<VariantId>,
    /// Why, where the code does not say everything.
    pub reason: String,
    /// Pages that are needed, pages that are free and their size in bytes, where memory is short.
    pub pages: Option<[u64; 3]>,
}

impl WireError {
    fn new(code: &str) -> Self {
        Self {
            code: code.to_owned(),
            variant: None,
            reason: String::new(),
            pages: None,
        }
    }
}

impl From<&InferError> for WireError {
    fn from(error: &InferError) -> Self {
        let mut wire = Self::new(error.code());
        match error {
            InferError::TooEarly | InferError::TooLate | InferError::ShuttingDown => {}
            InferError::NotLoaded(variant) | InferError::WeightsChanged(variant) => {
                wire.variant = Some(variant.clone());
            }
            InferError::NoMemory(reason)
            | InferError::BadShape(reason)
            | InferError::Failed(reason) => wire.reason.clone_from(reason),
            InferError::Lost { variant, reason } | InferError::Disconnected { variant, reason } => {
                wire.variant = Some(variant.clone());
                wire.reason.clone_from(reason);
            }
        }
        wire
    }
}

impl WireError {
    /// The refusal of a batch of `asked`. A code that is not known here is a failure.
    pub fn into_infer_error(self, asked: &VariantId) -> InferError {
        let variant = self.variant.unwrap_or_else(|| asked.clone());
        match self.code.as_str() {
            "too_early" => InferError::TooEarly,
            "too_late" => InferError::TooLate,
            "not_loaded" => InferError::NotLoaded(variant),
            "no_memory" => InferError::NoMemory(self.reason),
            "weights_changed" => InferError::WeightsChanged(variant),
            "bad_shape" => InferError::BadShape(self.reason),
            "lost" => InferError::Lost {
                variant,
                reason: self.reason,
            },
            "disconnected" => InferError::Disconnected {
                variant,
                reason: self.reason,
            },
            "shutting_down" => InferError::ShuttingDown,
            _ => InferError::Failed(self.reason),
        }
    }

    /// The refusal of a load, an unload (of `asked`) or of statistics. A code that is not known here
    /// is a failure.
    pub fn into_work_error(self, asked: Option<&VariantId>) -> WorkError {
        let Some(variant) = self.variant.or_else(|| asked.cloned()) else {
            return match self.code.as_str() {
                "shutting_down" => WorkError::ShuttingDown,
                _ => WorkError::Rejected(self.reason),
            };
        };
        let [needed, free, page_bytes] = self.pages.unwrap_or_default();
        match self.code.as_str() {
            "too_early" => WorkError::TooEarly,
            "too_late" => WorkError::TooLate,
            "unknown" => WorkError::Unknown {
                variant,
                reason: self.reason,
            },
            "no_memory" => WorkError::NoMemory {
                variant,
                needed,
                free,
                page_bytes,
            },
            "rejected" => WorkError::Rejected(self.reason),
            "shutting_down" => WorkError::ShuttingDown,
            _ => WorkError::Failed {
                variant,
                reason: self.reason,
            },
        }
    }
}

impl From<&WorkError> for WireError {
    fn from(error: &WorkError) -> Self {
        let mut wire = Self::new(error.code());
        match error {
            WorkError::TooEarly | WorkError::TooLate | WorkError::ShuttingDown => {}
            WorkError::Unknown { variant, reason } | WorkError::Failed { variant, reason } => {
                wire.variant = Some(variant.clone());
                wire.reason.clone_from(reason);
            }
            WorkError::NoMemory {
                variant,
                needed,
                free,
                page_bytes,
            } => {
                wire.variant = Some(variant.clone());
                wire.pages = Some([*needed, *free, *page_bytes]);
            }
            WorkError::Rejected(reason) => wire.reason.clone_from(reason),
        }
        wire
    }
}
