//! Errors as messages.

use sextant_rpc::{InferError, WorkError};
use sextant_types::{Code, VariantId};

use super::MalformedFrame;
use crate::grpc::proto::{self, failure::Failure, order_failure};

const NOTHING: proto::Nothing = proto::Nothing {};

/// The reason that a worker of a later version gave.
const LATER: &str = "the reason is one of a later version";

fn loss(variant: VariantId, reason: String) -> proto::Loss {
    proto::Loss {
        variant: variant.into(),
        reason,
    }
}

pub(super) fn pack_failure(error: InferError) -> proto::Failure {
    let failure = match error {
        InferError::TooEarly => Failure::TooEarly(NOTHING),
        InferError::TooLate => Failure::TooLate(NOTHING),
        InferError::NotLoaded(variant) => Failure::NotLoaded(variant.into()),
        InferError::NoMemory(reason) => Failure::NoMemory(reason),
        InferError::WeightsChanged(variant) => Failure::WeightsChanged(variant.into()),
        InferError::BadShape(reason) => Failure::BadShape(reason),
        InferError::InputsMissing => Failure::InputsMissing(NOTHING),
        InferError::Failed { code, reason } => Failure::Failed(proto::EngineFailure {
            code: code.as_str().to_owned(),
            reason,
        }),
        InferError::Lost { variant, reason } => Failure::Lost(loss(variant, reason)),
        InferError::Disconnected { variant, reason } => {
            Failure::Disconnected(loss(variant, reason))
        }
        InferError::ShuttingDown => Failure::ShuttingDown(NOTHING),
    };
    proto::Failure {
        failure: Some(failure),
    }
}

/// An unknown code counts as the engine's.
pub(super) fn unpack_failure(failure: proto::Failure) -> Result<InferError, MalformedFrame> {
    Ok(match failure.failure {
        None => InferError::failed(LATER),
        Some(Failure::TooEarly(_)) => InferError::TooEarly,
        Some(Failure::TooLate(_)) => InferError::TooLate,
        Some(Failure::NotLoaded(variant)) => InferError::NotLoaded(VariantId::new(variant)?),
        Some(Failure::NoMemory(reason)) => InferError::NoMemory(reason),
        Some(Failure::WeightsChanged(variant)) => {
            InferError::WeightsChanged(VariantId::new(variant)?)
        }
        Some(Failure::BadShape(reason)) => InferError::BadShape(reason),
        Some(Failure::InputsMissing(_)) => InferError::InputsMissing,
        Some(Failure::Failed(failed)) => InferError::Failed {
            code: Code::parse(&failed.code).unwrap_or(Code::EngineFailed),
            reason: failed.reason,
        },
        Some(Failure::Lost(loss)) => InferError::Lost {
            variant: VariantId::new(loss.variant)?,
            reason: loss.reason,
        },
        Some(Failure::Disconnected(loss)) => InferError::Disconnected {
            variant: VariantId::new(loss.variant)?,
            reason: loss.reason,
        },
        Some(Failure::ShuttingDown(_)) => InferError::ShuttingDown,
    })
}

pub(super) fn pack_order_failure(error: WorkError) -> proto::OrderFailure {
    use order_failure::Failure;

    let failure = match error {
        WorkError::TooEarly => Failure::TooEarly(NOTHING),
        WorkError::TooLate => Failure::TooLate(NOTHING),
        WorkError::Unknown { variant, reason } => Failure::Unknown(loss(variant, reason)),
        WorkError::NoMemory {
            variant,
            needed,
            free,
            page_bytes,
        } => Failure::NoMemory(proto::NoMemory {
            variant: variant.into(),
            needed_pages: needed,
            free_pages: free,
            page_bytes,
        }),
        WorkError::Failed { variant, reason } => Failure::Failed(loss(variant, reason)),
        WorkError::Rejected(reason) => Failure::Rejected(reason),
        WorkError::ShuttingDown => Failure::ShuttingDown(NOTHING),
    };
    proto::OrderFailure {
        failure: Some(failure),
    }
}

pub(super) fn unpack_order_failure(
    failure: proto::OrderFailure,
) -> Result<WorkError, MalformedFrame> {
    use order_failure::Failure;

    Ok(match failure.failure {
        None => WorkError::Rejected(LATER.to_owned()),
        Some(Failure::TooEarly(_)) => WorkError::TooEarly,
        Some(Failure::TooLate(_)) => WorkError::TooLate,
        Some(Failure::Unknown(loss)) => WorkError::Unknown {
            variant: VariantId::new(loss.variant)?,
            reason: loss.reason,
        },
        Some(Failure::NoMemory(memory)) => WorkError::NoMemory {
            variant: VariantId::new(memory.variant)?,
            needed: memory.needed_pages,
            free: memory.free_pages,
            page_bytes: memory.page_bytes,
        },
        Some(Failure::Failed(loss)) => WorkError::Failed {
            variant: VariantId::new(loss.variant)?,
            reason: loss.reason,
        },
        Some(Failure::Rejected(reason)) => WorkError::Rejected(reason),
        Some(Failure::ShuttingDown(_)) => WorkError::ShuttingDown,
    })
}
