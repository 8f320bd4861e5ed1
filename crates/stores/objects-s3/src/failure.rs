//! Classifies failed attempts.

use std::{error::Error as StdError, io};

use aws_sdk_s3::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use sextant_objects::Error;

/// The class of a failure, which decides what can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The object does not exist.
    Missing,
    /// The range begins after the object's end.
    Range,
    /// The store or a quota is full.
    Full,
    /// It ends by itself: throttled, overloaded, away, cut off, damaged in transit.
    Passing,
    /// The server failed internally (status 500, or the body of an answer that has begun says so). This ends by itself
    /// as well. But some servers that store keys as paths of a file system give this answer for a key that is the
    /// folder of others.
    Internal,
    /// Anything else; another attempt does not help.
    Lasting,
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    text: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { reason, text }
    }

    /// Whether another attempt may succeed.
    pub(crate) fn passes(&self) -> bool {
        matches!(self.reason, Reason::Passing | Reason::Internal)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_error(self, object: &str) -> Error {
        let object = object.to_owned();
        let source = io::Error::other(self.text);
        match self.reason {
            Reason::Missing => Error::NotFound { object },
            Reason::Full => Error::StorageFull {
                object,
                source: Some(source),
            },
            Reason::Passing | Reason::Internal => Error::Unavailable { object, source },
            Reason::Range | Reason::Lasting => Error::Io { object, source },
        }
    }
}

impl<E: ProvideErrorMetadata + StdError + 'static> From<SdkError<E, HttpResponse>> for Failure {
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        let status = error.raw_response().map_or(0, |raw| raw.status().as_u16());
        match &error {
            SdkError::ServiceError(refusal) => {
                let code = refusal.err().code().unwrap_or_default();
                let message = refusal.err().message().unwrap_or_default();
                Self::new(reason(status, code), describe(status, code, message))
            }
            SdkError::ConstructionFailure(_) => {
                Self::new(Reason::Lasting, chain("the request cannot be made", &error))
            }
            SdkError::DispatchFailure(failure) => {
                let cause = failure.as_connector_error();
                let text = cause.map_or_else(|| "the request broke off".to_owned(), causes);
                // No credentials, or a certificate that is not trusted: waiting does not help.
                let lasting = cause.is_some_and(|it| it.is_user());
                let reason = if lasting {
                    Reason::Lasting
                } else {
                    Reason::Passing
                };
                Self::new(reason, text)
            }
            SdkError::ResponseError(_) => Self::new(
                Reason::Passing,
                format!("the answer (status {status}) broke off"),
            ),
            _ => Self::new(Reason::Passing, "no answer in time"),
        }
    }
}

fn reason(status: u16, code: &str) -> Reason {
    let is_about_room = [
        "Quota",
        "StorageFull",
        "InsufficientStorage",
        "EntityTooLarge",
    ];
    match (status, code) {
        (_, "NoSuchBucket") => Reason::Lasting,
        _ if status == 507 || is_about_room.iter().any(|word| code.contains(word)) => Reason::Full,
        (404, _) => Reason::Missing,
        (416, _) => Reason::Range,
        // When S3 joins parts, it answers 200 in advance, and the body states the result.
        (500, _) | (200, "InternalError") => Reason::Internal,
        (408 | 425 | 429 | 501..=599, _) => Reason::Passing,
        (
            _,
            // Damaged or cut on the way to the store, or a conflict of two writers.
            "BadDigest"
            | "IncompleteBody"
            | "RequestTimeout"
            | "XAmzContentSHA256Mismatch"
            | "XAmzContentChecksumMismatch"
            | "OperationAborted"
            | "ConditionalRequestConflict"
            | "SlowDown"
            | "ServiceUnavailable"
            | "RequestTimeTooSkewed"
            | "ExpiredToken",
        ) => Reason::Passing,
        _ => Reason::Lasting,
    }
}

fn describe(status: u16, code: &str, message: &str) -> String {
    let advice = match (status, code) {
        (_, "NoSuchBucket") => ": create the bucket or correct its name",
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => ": correct the credentials",
        (403, _) => ": the credentials do not permit it",
        _ => "",
    };
    let message: String = message.chars().take(200).collect();
    match (code, message.as_str()) {
        ("", "") => format!("status {status}{advice}"),
        (_, "") => format!("status {status} `{code}`{advice}"),
        _ => format!("status {status} `{code}` ({message}){advice}"),
    }
}

fn causes(error: &aws_sdk_s3::error::ConnectorError) -> String {
    chain(&error.to_string(), error)
}

/// An error and its causes, in one line.
pub(crate) fn chain(head: &str, error: &dyn StdError) -> String {
    let mut text = head.to_owned();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_mean_what_the_store_says() {
        for (status, code, wanted) in [
            (404, "NoSuchKey", Reason::Missing),
            (404, "", Reason::Missing),
            (404, "NoSuchBucket", Reason::Lasting),
            (403, "AccessDenied", Reason::Lasting),
            (403, "QuotaExceeded", Reason::Full),
            (507, "XMinioStorageFull", Reason::Full),
            (416, "InvalidRange", Reason::Range),
            (500, "InternalError", Reason::Internal),
            (200, "InternalError", Reason::Internal),
            (200, "ServiceUnavailable", Reason::Passing),
            (503, "SlowDown", Reason::Passing),
            (429, "TooManyRequests", Reason::Passing),
            (400, "BadDigest", Reason::Passing),
            (400, "InvalidArgument", Reason::Lasting),
        ] {
            assert_eq!(reason(status, code), wanted, "{status} `{code}`");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = describe(403, "AccessDenied", "not you");
        assert_eq!(
            text,
            "status 403 `AccessDenied` (not you): the credentials do not permit it"
        );
        assert!(describe(400, "x", &"m".repeat(1000)).len() < 300);
    }
}
