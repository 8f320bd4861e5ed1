//! The closed set of error kinds and stable codes. `api` maps kinds to HTTP in one function.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What an error means for the caller; maps one to one to an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed or breaks a rule: 400.
    Invalid,
    /// The named thing does not exist: 404.
    NotFound,
    /// No valid key came along: 401.
    Unauthenticated,
    /// The key does not allow it: 403.
    Forbidden,
    /// The request conflicts with what exists: 409.
    Conflict,
    /// A body or tensor over a limit: 413.
    TooLarge,
    /// Well formed, yet nothing registered can meet its targets: 422.
    Infeasible,
    /// Too many requests at once: 429.
    Overloaded,
    /// A fault of the service: 500.
    Internal,
    /// Not now; try again: 503.
    Unavailable,
    /// The deadline passed: 504.
    DeadlineExceeded,
    /// No room left in a store: 507.
    StorageFull,
}

impl ErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Overloaded | Self::Unavailable | Self::DeadlineExceeded | Self::StorageFull
        )
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $kind:ident;)*) => {
        /// A stable, public error code. Each has a page in `docs/errors/{code}.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in order of declaration.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code as clients see it.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// What the code means for the caller.
            pub fn kind(self) -> ErrorKind {
                match self { $(Code::$name => ErrorKind::$kind,)* }
            }

            /// The inverse of [`Code::as_str`].
            pub fn parse(text: &str) -> Option<Code> {
                match text { $($text => Some(Code::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// The body is not the JSON that the route expects.
    InvalidRequest = "invalid_request", Invalid;
    /// A name breaks the naming rule.
    InvalidName = "invalid_name", Invalid;
    /// A target is NaN, negative or out of range.
    InvalidTarget = "invalid_target", Invalid;
    /// A tensor's name, type, shape or data length is wrong.
    InvalidTensor = "invalid_tensor", Invalid;
    /// A path of the artefact store leaves the store or is malformed.
    InvalidPath = "invalid_path", Invalid;
    /// The file is not an ONNX model, or is truncated.
    InvalidModel = "invalid_model", Invalid;
    /// The model keeps weights in files beside it.
    ExternalData = "external_data", Invalid;
    /// No engine can run an operator of the model.
    UnsupportedOperator = "unsupported_operator", Invalid;
    /// The model's inputs or outputs differ from the application's.
    SignatureMismatch = "signature_mismatch", Invalid;
    /// The validation set cannot be read, has no labels or does not fit the model.
    InvalidValidationSet = "invalid_validation_set", Invalid;
    /// The declared mask and padding do not suit the model, or padding changes its answers.
    InvalidPadding = "invalid_padding", Invalid;
    /// A region of shared memory is not there as it is said to be.
    InvalidRegion = "invalid_region", Invalid;
    /// A pipeline's definition cannot be used.
    InvalidPipeline = "invalid_pipeline", Invalid;
    /// A Python step raised, gave something else than it says, or ended its process.
    StepFailed = "step_failed", Invalid;
    /// A record of an offline job's input cannot be read.
    InvalidRecord = "invalid_record", Invalid;
    /// Feedback that cannot be taken: its token is forged or broken, or it does not fit the answer.
    InvalidFeedback = "invalid_feedback", Invalid;
    /// No API key came along, or one that is unknown, revoked or expired.
    Unauthenticated = "unauthenticated", Unauthenticated;
    /// The API key does not allow this request.
    Forbidden = "forbidden", Forbidden;
    /// The API key's rate limit or quota is used up.
    RateLimited = "rate_limited", Overloaded;
    /// The application's budget is used up for now.
    BudgetExhausted = "budget_exhausted", Overloaded;
    /// No API key of that id.
    KeyNotFound = "key_not_found", NotFound;
    /// No such route.
    RouteNotFound = "route_not_found", NotFound;
    /// The route exists, the method does not.
    MethodNotAllowed = "method_not_allowed", Invalid;
    /// No application of that name.
    ApplicationNotFound = "application_not_found", NotFound;
    /// No model of that name.
    ModelNotFound = "model_not_found", NotFound;
    /// No variant of that name.
    VariantNotFound = "variant_not_found", NotFound;
    /// No pipeline of that name.
    PipelineNotFound = "pipeline_not_found", NotFound;
    /// No job of that id.
    JobNotFound = "job_not_found", NotFound;
    /// Nothing is known, or no longer, of how a query of that id was answered.
    QueryNotFound = "query_not_found", NotFound;
    /// No worker of that name.
    WorkerNotFound = "worker_not_found", NotFound;
    /// No region of shared memory of that name.
    RegionNotFound = "region_not_found", NotFound;
    /// No such object in the artefact store.
    ArtefactNotFound = "artefact_not_found", NotFound;
    /// An application of that name exists with other settings.
    ApplicationExists = "application_exists", Conflict;
    /// A model of that name exists with other content.
    ModelExists = "model_exists", Conflict;
    /// The versions of a model are not as a change of them needs them.
    VersionConflict = "version_conflict", Conflict;
    /// A pipeline of that name exists with another definition.
    PipelineExists = "pipeline_exists", Conflict;
    /// The application or model is in use.
    InUse = "in_use", Conflict;
    /// The model's registration has not finished.
    ModelNotReady = "model_not_ready", Unavailable;
    /// The registry is not the one that the artefact store belongs to.
    StoreMismatch = "store_mismatch", Conflict;
    /// A backup is to be written or restored where something is already.
    NotEmpty = "not_empty", Conflict;
    /// A backup is incomplete, damaged or of another version.
    InvalidBackup = "invalid_backup", Invalid;
    /// A range of a file that holds none of its bytes.
    RangeNotSatisfiable = "range_not_satisfiable", Invalid;
    /// Other feedback was given for this row of this query.
    FeedbackExists = "feedback_exists", Conflict;
    /// Feedback came later than it is taken.
    FeedbackTooLate = "feedback_too_late", Conflict;
    /// What is to be changed is not what the caller has seen.
    PreconditionFailed = "precondition_failed", Conflict;
    /// An idempotency key came with another request than before.
    IdempotencyKeyReused = "idempotency_key_reused", Conflict;
    /// The body or a tensor is over the limit.
    TooLarge = "too_large", TooLarge;
    /// Nothing registered can meet the targets; the closest variants come along.
    TargetInfeasible = "target_infeasible", Infeasible;
    /// Feasible variants exist, but none can answer in time at the present load.
    Overloaded = "overloaded", Overloaded;
    /// A feasible variant is being loaded; try again in a moment.
    Warming = "warming", Unavailable;
    /// The deadline passed before the answer was ready.
    DeadlineExceeded = "deadline_exceeded", DeadlineExceeded;
    /// The service is shutting down or a worker was lost.
    Unavailable = "unavailable", Unavailable;
    /// The artefact store or the registry has no room left.
    StorageFull = "storage_full", StorageFull;
    /// The engine failed on this batch.
    EngineFailed = "engine_failed", Internal;
    /// The model needs more memory than one may take.
    MemoryExceeded = "memory_exceeded", Invalid;
    /// A load or a run of the model takes longer than one may.
    TimeExceeded = "time_exceeded", Invalid;
    /// The engine's process ended while it had the model.
    EngineCrashed = "engine_crashed", Invalid;
    /// A fault of the service.
    Internal = "internal", Internal;
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    /// A code that this version does not know counts as `internal`.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        Ok(Self::parse(&text).unwrap_or(Self::Internal))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
