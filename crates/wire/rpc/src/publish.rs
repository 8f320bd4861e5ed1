//! Whoever keeps what is published in step with what is registered, as other roles see them.

use std::error::Error;

use async_trait::async_trait;
use sextant_types::{ApplicationId, Code, ErrorKind, ModelId};

/// Publishes what is registered, and withdraws what is not.
#[async_trait]
pub trait Publish: Send + Sync {
    /// Deletes a model for good: it leaves the registry first, then its variants leave those that
    /// queries see, and what they dominated comes to the front.
    ///
    /// Contract: once the first step is done the model does not come back, whoever dies. A call that
    /// did not return may be repeated: it withdraws what an earlier one has left, and fails with
    /// [`Code::ModelNotFound`] where the model is not registered. A model with unfinished jobs is
    /// refused with [`Code::InUse`].
    async fn retire_model(&self, model: &ModelId) -> Result<(), PublishError>;

    /// Shows the variants of an application as the registry has them: with its resources, and which versions of its
    /// models answer.
    ///
    /// Contract: a call that returned has shown what was registered before it. A version that has become current is
    /// shown as such before the one whose place it takes is shown otherwise. A call that did not return may be repeated.
    async fn show_application(&self, application: &ApplicationId) -> Result<(), PublishError>;
}

/// Why nothing was published or withdrawn, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PublishError {
    /// The stable public code.
    pub code: Code,
    /// For people; with its causes where the service is at fault.
    pub message: String,
}

impl PublishError {
    /// What `error` says under `code`.
    pub fn new(code: Code, error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error
            .source()
            .filter(|_| code.kind() == ErrorKind::Internal);
        while let Some(next) = cause {
            message = format!("{message}: {next}");
            cause = next.source();
        }
        Self { code, message }
    }
}
