//! The page of each error code. The pages are part of the program.
//!
//! The match is exhaustive: a code without a page does not compile.

use sextant_types::Code;

/// The page of `code` as Markdown: title, meaning, cause, action.
pub fn page(code: Code) -> &'static str {
    match code {
        Code::InvalidRequest => include_str!("../../../../docs/errors/invalid_request.md"),
        Code::InvalidName => include_str!("../../../../docs/errors/invalid_name.md"),
        Code::InvalidTarget => include_str!("../../../../docs/errors/invalid_target.md"),
        Code::InvalidTensor => include_str!("../../../../docs/errors/invalid_tensor.md"),
        Code::InvalidPath => include_str!("../../../../docs/errors/invalid_path.md"),
        Code::InvalidModel => include_str!("../../../../docs/errors/invalid_model.md"),
        Code::ExternalData => include_str!("../../../../docs/errors/external_data.md"),
        Code::UnsupportedOperator => {
            include_str!("../../../../docs/errors/unsupported_operator.md")
        }
        Code::SignatureMismatch => include_str!("../../../../docs/errors/signature_mismatch.md"),
        Code::InvalidValidationSet => {
            include_str!("../../../../docs/errors/invalid_validation_set.md")
        }
        Code::InvalidPadding => {
            include_str!("../../../../docs/errors/invalid_padding.md")
        }
        Code::InvalidRegion => include_str!("../../../../docs/errors/invalid_region.md"),
        Code::InvalidPipeline => include_str!("../../../../docs/errors/invalid_pipeline.md"),
        Code::VersionConflict => include_str!("../../../../docs/errors/version_conflict.md"),
        Code::PipelineNotFound => include_str!("../../../../docs/errors/pipeline_not_found.md"),
        Code::PipelineExists => include_str!("../../../../docs/errors/pipeline_exists.md"),
        Code::InvalidRecord => include_str!("../../../../docs/errors/invalid_record.md"),
        Code::InvalidFeedback => include_str!("../../../../docs/errors/invalid_feedback.md"),
        Code::FeedbackExists => include_str!("../../../../docs/errors/feedback_exists.md"),
        Code::FeedbackTooLate => include_str!("../../../../docs/errors/feedback_too_late.md"),
        Code::Unauthenticated => include_str!("../../../../docs/errors/unauthenticated.md"),
        Code::Forbidden => include_str!("../../../../docs/errors/forbidden.md"),
        Code::RateLimited => include_str!("../../../../docs/errors/rate_limited.md"),
        Code::BudgetExhausted => include_str!("../../../../docs/errors/budget_exhausted.md"),
        Code::KeyNotFound => include_str!("../../../../docs/errors/key_not_found.md"),
        Code::RouteNotFound => include_str!("../../../../docs/errors/route_not_found.md"),
        Code::MethodNotAllowed => include_str!("../../../../docs/errors/method_not_allowed.md"),
        Code::ApplicationNotFound => {
            include_str!("../../../../docs/errors/application_not_found.md")
        }
        Code::ModelNotFound => include_str!("../../../../docs/errors/model_not_found.md"),
        Code::VariantNotFound => include_str!("../../../../docs/errors/variant_not_found.md"),
        Code::JobNotFound => include_str!("../../../../docs/errors/job_not_found.md"),
        Code::QueryNotFound => include_str!("../../../../docs/errors/query_not_found.md"),
        Code::WorkerNotFound => include_str!("../../../../docs/errors/worker_not_found.md"),
        Code::RegionNotFound => include_str!("../../../../docs/errors/region_not_found.md"),
        Code::ArtefactNotFound => include_str!("../../../../docs/errors/artefact_not_found.md"),
        Code::ApplicationExists => include_str!("../../../../docs/errors/application_exists.md"),
        Code::ModelExists => include_str!("../../../../docs/errors/model_exists.md"),
        Code::InUse => include_str!("../../../../docs/errors/in_use.md"),
        Code::ModelNotReady => include_str!("../../../../docs/errors/model_not_ready.md"),
        Code::StoreMismatch => include_str!("../../../../docs/errors/store_mismatch.md"),
        Code::NotEmpty => include_str!("../../../../docs/errors/not_empty.md"),
        Code::InvalidBackup => include_str!("../../../../docs/errors/invalid_backup.md"),
        Code::RangeNotSatisfiable => {
            include_str!("../../../../docs/errors/range_not_satisfiable.md")
        }
        Code::PreconditionFailed => include_str!("../../../../docs/errors/precondition_failed.md"),
        Code::IdempotencyKeyReused => {
            include_str!("../../../../docs/errors/idempotency_key_reused.md")
        }
        Code::TooLarge => include_str!("../../../../docs/errors/too_large.md"),
        Code::TargetInfeasible => include_str!("../../../../docs/errors/target_infeasible.md"),
        Code::Overloaded => include_str!("../../../../docs/errors/overloaded.md"),
        Code::Warming => include_str!("../../../../docs/errors/warming.md"),
        Code::DeadlineExceeded => include_str!("../../../../docs/errors/deadline_exceeded.md"),
        Code::Unavailable => include_str!("../../../../docs/errors/unavailable.md"),
        Code::StorageFull => include_str!("../../../../docs/errors/storage_full.md"),
        Code::EngineFailed => include_str!("../../../../docs/errors/engine_failed.md"),
        Code::MemoryExceeded => include_str!("../../../../docs/errors/memory_exceeded.md"),
        Code::TimeExceeded => include_str!("../../../../docs/errors/time_exceeded.md"),
        Code::StepFailed => include_str!("../../../../docs/errors/step_failed.md"),
        Code::EngineCrashed => include_str!("../../../../docs/errors/engine_crashed.md"),
        Code::Internal => include_str!("../../../../docs/errors/internal.md"),
    }
}

/// The page's first heading: the `title` of problem documents.
pub fn title(code: Code) -> &'static str {
    let first = page(code).lines().next().unwrap_or_default();
    first.trim_start_matches("# ")
}
