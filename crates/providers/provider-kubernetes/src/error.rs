//! Converts errors of the API server into errors of a provider.

use kube::core::Status;
use sextant_provider::Error;
use sextant_types::DeviceTypeName;

use crate::PROVIDER;

/// HTTP code: the object does not exist.
pub(crate) const NOT_FOUND: u16 = 404;

/// HTTP code: somebody else has written in between.
pub(crate) const CONFLICT: u16 = 409;

/// HTTP code: the caller is not authenticated.
const UNAUTHORIZED: u16 = 401;

/// HTTP code: the caller is not permitted to do this.
const FORBIDDEN: u16 = 403;

/// HTTP code: try again later.
const TOO_MANY_REQUESTS: u16 = 429;

/// HTTP codes from here on are the server's own errors.
const SERVER: u16 = 500;

pub(crate) fn away(reason: String) -> Error {
    Error::Away {
        provider: PROVIDER,
        reason,
    }
}

pub(crate) fn refused(reason: String) -> Error {
    Error::Refused {
        provider: PROVIDER,
        reason,
    }
}

/// There is no configuration of a client, or it is not usable.
pub(crate) fn no_cluster(error: impl std::error::Error) -> Error {
    away(format!(
        "{}; run in a cluster with the token of a service account, or name a kubeconfig in `KUBECONFIG`",
        chain(&error)
    ))
}

/// The settings do not have the pool.
pub(crate) fn no_workload(pool: &DeviceTypeName) -> Error {
    Error::Settings {
        pool: pool.clone(),
        reason: "it has no Deployment and no StatefulSet: name one".to_owned(),
    }
}

/// The cluster does not have the workload.
pub(crate) fn no_such_workload(pool: &DeviceTypeName, workload: &str) -> Error {
    Error::Settings {
        pool: pool.clone(),
        reason: format!("there is no {workload}: create it, or name another one"),
    }
}

/// The error of a failed call; `call` describes it for people.
pub(crate) fn failed(call: &str, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => said(call, &status),
        kube::Error::SerdeError(error) => refused(format!(
            "{call} was answered with what cannot be understood: {error}"
        )),
        kube::Error::FromUtf8(error) => refused(format!(
            "{call} was answered with what cannot be understood: {error}"
        )),
        other => away(format!("{call} failed: {}", chain(&other))),
    }
}

fn said(call: &str, status: &Status) -> Error {
    let said = match status.message.is_empty() {
        true => format!("status {}", status.code),
        false => format!("status {}, {}", status.code, status.message),
    };
    match status.code {
        UNAUTHORIZED => refused(format!(
            "{call}: {said}; check the token of its service account"
        )),
        FORBIDDEN => refused(format!(
            "{call}: {said}; bind a Role with the rules of `docs/scaling.md` to its service account"
        )),
        code if code == TOO_MANY_REQUESTS || code >= SERVER => away(format!("{call}: {said}")),
        _ => refused(format!("{call}: {said}")),
    }
}

/// The text of an error with all its causes: the outermost error says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
