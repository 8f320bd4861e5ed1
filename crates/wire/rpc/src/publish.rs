//! Publishing, as other roles see it: it keeps the published variants in step with the registered ones.

use std::error::Error;

use async_trait::async_trait;
use sextant_types::{ApplicationId, Code, ErrorKind, ModelId};

/// Publishes registered variants, and withdraws others.
#[async_trait]
pub trait Publish: Send + Sync {
    /// Deletes a model for good: first from the registry, then its variants from those that queries see. Variants that
    /// they dominated return to the frontier.
    ///
    /// Contract: once the first step is done the model does not return, whichever process dies. A call that did not
    /// return may be repeated: it withdraws what an earlier one has left, and fails with [`Code::ModelNotFound`] if the
    /// model is not registered. A model with unfinished jobs is refused with [`Code::InUse`].
    async fn retire_model(&self, model: &ModelId) -> Result<(), PublishError>;

    /// Publishes the variants of an application as the registry has them: with the application's resources, and with
    /// the versions of its models that answer.
    ///
    /// Contract: a call that has returned has published what was registered before it. A version that has become
    /// current is published as such before the change of the version that it replaces is published. A call that did not
    /// return may be repeated.
    async fn show_application(&self, application: &ApplicationId) -> Result<(), PublishError>;
}

/// Why a publication or withdrawal failed, in whole or in part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PublishError {
    /// The stable public code.
    pub code: Code,
    /// A text for people; with its causes if the service is at fault.
    pub message: String,
}

impl PublishError {
    /// The text of `error`, under `code`.
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
