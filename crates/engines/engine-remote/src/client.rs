//! HTTP with limits: every exchange has a time limit, every answer a size limit.
//!
//! It follows no redirects and uses no proxy of the environment: requests go only to the configured
//! address.

use std::{io, time::Duration};

use bytes::Bytes;
use ureq::{
    Agent,
    http::{Response, header},
};

use crate::text;

/// Length of the JSON part of a body, bytes; tensors follow.
const HEADER_LENGTH: &str = "inference-header-content-length";

/// Largest answer that is not an inference's, bytes.
pub(crate) const MAX_SMALL_BYTES: u64 = 4 << 20;

/// Connections that wait for the next request.
const IDLE_CONNECTIONS: usize = 16;

/// Servers close idle connections, some after five seconds; a request on a connection that is just
/// being closed would look like a crash.
const IDLE_AGE: Duration = Duration::from_secs(2);

/// A client of one server; it keeps connections for the next request.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    headers: Vec<(String, String)>,
}

/// The limits of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From the start to the last byte.
    pub(crate) time: Duration,
    /// Largest body, bytes.
    pub(crate) bytes: u64,
}

/// The body of a request.
pub(crate) struct Payload {
    /// JSON; tensors follow it if `json_bytes` is set.
    pub(crate) body: Vec<u8>,
    /// Length of the JSON part if more follows.
    pub(crate) json_bytes: Option<usize>,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) json: Bytes,
    /// The bytes after the JSON.
    pub(crate) tail: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The time is over.
    Timeout,
    /// The server accepts no connections.
    Refused(String),
    /// The connection could not be made or ended early.
    Transport(String),
    /// The answer is not valid HTTP, or too large.
    Malformed(String),
}

// === impl Client ===

impl Client {
    /// A client of the server at `base`, which has no slash at its end.
    pub(crate) fn new(base: &str, headers: Vec<(String, String)>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("sextant/", env!("CARGO_PKG_VERSION")))
            .max_idle_connections(IDLE_CONNECTIONS)
            .max_idle_connections_per_host(IDLE_CONNECTIONS)
            .max_idle_age(IDLE_AGE)
            .build();
        Self {
            agent: Agent::new_with_config(config),
            base: base.trim_end_matches('/').to_owned(),
            headers,
        }
    }

    pub(crate) fn get(&self, path: &str, time: Duration) -> Result<Reply, Fault> {
        let limits = Limits {
            time,
            bytes: MAX_SMALL_BYTES,
        };
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.config().timeout_global(Some(time)).build();
        read(request.call(), limits)
    }

    pub(crate) fn post(
        &self,
        path: &str,
        payload: &Payload,
        limits: Limits,
    ) -> Result<Reply, Fault> {
        let mut request = self.agent.post(format!("{}{path}", self.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let kind = match payload.json_bytes {
            None => "application/json",
            Some(length) => {
                request = request.header(HEADER_LENGTH, length.to_string());
                "application/octet-stream"
            }
        };
        let request = request.header(header::CONTENT_TYPE, kind);
        let request = request.config().timeout_global(Some(limits.time)).build();
        read(request.send(payload.body.as_slice()), limits)
    }
}

fn read(
    response: Result<Response<ureq::Body>, ureq::Error>,
    limits: Limits,
) -> Result<Reply, Fault> {
    let mut response = response.map_err(|error| fault(error, limits))?;
    let status = response.status().as_u16();
    let json_bytes = match response.headers().get(HEADER_LENGTH) {
        None => None,
        Some(length) => Some(
            length
                .to_str()
                .ok()
                .and_then(|text| text.parse::<usize>().ok())
                .ok_or_else(|| {
                    Fault::Malformed(format!("its `{HEADER_LENGTH}` is not a number"))
                })?,
        ),
    };
    let announced = response.body().content_length();
    if announced.is_some_and(|length| length > limits.bytes) {
        return Err(too_large(limits.bytes));
    }
    let body = response.body_mut().with_config().limit(limits.bytes + 1);
    let body = Bytes::from(body.read_to_vec().map_err(|error| fault(error, limits))?);
    if body.len() as u64 > limits.bytes {
        return Err(too_large(limits.bytes));
    }
    let (json, tail) = match json_bytes {
        None => (body, Bytes::new()),
        Some(length) if length <= body.len() => (body.slice(..length), body.slice(length..)),
        Some(length) => {
            let given = body.len();
            return Err(Fault::Malformed(format!(
                "its JSON is said to have `{length}` bytes, the answer has `{given}`"
            )));
        }
    };
    Ok(Reply { status, json, tail })
}

fn too_large(most: u64) -> Fault {
    Fault::Malformed(format!("its answer is larger than `{most}` bytes"))
}

fn fault(error: ureq::Error, limits: Limits) -> Fault {
    match error {
        ureq::Error::Timeout(_) => Fault::Timeout,
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Fault::Timeout,
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Fault::Refused(error.to_string())
        }
        ureq::Error::Io(error) => Fault::Transport(text::shorten(&error.to_string())),
        error @ (ureq::Error::HostNotFound | ureq::Error::ConnectionFailed) => {
            Fault::Transport(error.to_string())
        }
        ureq::Error::BodyExceedsLimit(_) => too_large(limits.bytes),
        other => Fault::Malformed(text::shorten(&other.to_string())),
    }
}

// === impl Payload ===

impl Payload {
    /// A body of JSON alone.
    pub(crate) fn json(text: &str) -> Self {
        Self {
            body: text.as_bytes().to_vec(),
            json_bytes: None,
        }
    }
}

// === impl Reply ===

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Status and message of an answer that is an error.
    pub(crate) fn refusal(&self) -> String {
        let status = self.status;
        match text::of_error(&self.json) {
            text if text.is_empty() => format!("status {status}"),
            text => format!("status {status}: {text}"),
        }
    }
}
