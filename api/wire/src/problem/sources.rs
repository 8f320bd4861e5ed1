//! Errors of the stores as problems. An error that the client can act on keeps its message; an
//! internal fault goes to the log with its causes.

use std::{error::Error, io};

use sextant_types::{Code, ErrorKind};

use super::Problem;

impl From<sextant_registry::Error> for Problem {
    fn from(error: sextant_registry::Error) -> Self {
        of("the registry", error.code(), &error)
    }
}

impl From<sextant_metadata::Error> for Problem {
    fn from(error: sextant_metadata::Error) -> Self {
        of("the metadata store", error.code(), &error)
    }
}

impl From<sextant_rpc::PublishError> for Problem {
    fn from(error: sextant_rpc::PublishError) -> Self {
        of("the publisher", error.code, &error)
    }
}

impl From<sextant_objects::InvalidPath> for Problem {
    fn from(error: sextant_objects::InvalidPath) -> Self {
        Problem::new(Code::InvalidPath, error.to_string())
    }
}

impl From<sextant_objects::Error> for Problem {
    fn from(error: sextant_objects::Error) -> Self {
        if let sextant_objects::Error::Input { source, .. } = &error
            && let Some(problem) = source.get_ref().and_then(|inner| refusal(inner))
        {
            return problem;
        }
        of("the artefact store", error.code(), &error)
    }
}

impl From<sextant_storage::Error> for Problem {
    fn from(error: sextant_storage::Error) -> Self {
        match error {
            sextant_storage::Error::Registry(source) => source.into(),
            sextant_storage::Error::Objects(source) => source.into(),
            other => of("the storage", other.code(), &other),
        }
    }
}

/// A problem as the error of a stream.
#[derive(Debug, thiserror::Error)]
#[error("{0:?}")]
pub struct Refusal(pub Problem);

/// The problem with which this crate ended a stream, if it is among the causes of the stream's
/// error.
pub fn refusal(error: &(dyn Error + 'static)) -> Option<Problem> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(Refusal(problem)) = error.downcast_ref() {
            return Some(problem.clone());
        }
        // `source` of an I/O error skips the error that it contains.
        let held = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

fn of(store: &str, code: Code, error: &dyn Error) -> Problem {
    let problem = match code.kind() {
        ErrorKind::Internal => return Problem::internal(store, &causes(error)),
        _ => Problem::new(code, error.to_string()),
    };
    match code.kind() {
        ErrorKind::Unavailable => problem.retry_after_ms(1000),
        _ => problem,
    }
}

fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
