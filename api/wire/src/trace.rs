//! The names of a request: they stand in its answer, in a problem and in the log.
//!
//! `x-request-id` comes from the client or is generated here. `traceparent` (W3C Trace Context) continues the client's
//! trace, with a span of this service. Both are kept for the time of the request's task, so that code which logs
//! something about the request can name it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Longest request id that is accepted from a client, bytes.
const LONGEST_ID: usize = 128;

/// The positions of the parts of a `traceparent`: version, trace, parent, flags.
const VERSION: std::ops::Range<usize> = 0..2;
const TRACE: std::ops::Range<usize> = 3..35;
const PARENT: std::ops::Range<usize> = 36..52;
const FLAGS: std::ops::Range<usize> = 53..55;
const WHOLE: usize = FLAGS.end;

tokio::task_local! {
    static CURRENT: Trace;
}

/// The names of one request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Trace {
    request_id: HeaderValue,
    traceparent: HeaderValue,
}

/// The names of the request that the current task belongs to; `None` if it belongs to none.
pub fn current() -> Option<Trace> {
    CURRENT.try_with(Trace::clone).ok()
}

/// Runs a future that belongs to a request.
pub async fn within<T>(trace: Trace, what: impl Future<Output = T>) -> T {
    CURRENT.scope(trace, what).await
}

/// Unique numbers that look random. They protect no secret.
fn fresh() -> [u64; 3] {
    static STATES: LazyLock<[RandomState; 3]> =
        LazyLock::new(|| std::array::from_fn(|_| RandomState::new()));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // A zero is not a valid id.
    std::array::from_fn(|at| STATES[at].hash_one(number).max(1))
}

/// Whether a client's request id is short and printable: it is copied to headers and log lines.
fn is_sound(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=LONGEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

/// Whether a text is a `traceparent` of a version that this service can read.
fn is_traceparent(text: &[u8]) -> bool {
    let digits = |range: std::ops::Range<usize>| {
        let mut digits = text[range].iter();
        digits.all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
    };
    let some = |range: std::ops::Range<usize>| text[range].iter().any(|byte| *byte != b'0');
    // Later versions may be longer.
    text.len() >= WHOLE
        && (text.len() == WHOLE || (&text[..2] != b"00" && text[WHOLE] == b'-'))
        && [2, 35, 52].iter().all(|at| text[*at] == b'-')
        && &text[..2] != b"ff"
        && [VERSION, TRACE, PARENT, FLAGS].into_iter().all(digits)
        && some(TRACE)
        && some(PARENT)
}

/// Writes the 16 hexadecimal digits of a number.
fn write_hex(digits: &mut [u8], number: u64) {
    hex::encode_to_slice(number.to_be_bytes(), digits).expect("there is room for 16 digits");
}

/// A header of digits and dashes.
fn header(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).expect("digits and dashes are a header")
}

// === impl Trace ===

impl Trace {
    /// The names of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let [high, low, span] = fresh();
        let mut made = [0; 32];
        write_hex(&mut made[..16], high);
        write_hex(&mut made[16..], low);
        // A request without a trace begins one; its flags say that no service has recorded it.
        let mut traceparent = [b'-'; WHOLE];
        traceparent[VERSION].copy_from_slice(b"00");
        traceparent[FLAGS].copy_from_slice(b"00");
        traceparent[TRACE].copy_from_slice(&made);
        let parent = headers.get(TRACEPARENT).map(HeaderValue::as_bytes);
        if let Some(parent) = parent.filter(|text| is_traceparent(text)) {
            traceparent[TRACE].copy_from_slice(&parent[TRACE]);
            traceparent[FLAGS].copy_from_slice(&parent[FLAGS]);
        }
        write_hex(&mut traceparent[PARENT], span);
        let given = headers.get(REQUEST_ID).filter(|id| is_sound(id));
        Self {
            request_id: given.cloned().unwrap_or_else(|| header(&made)),
            traceparent: header(&traceparent),
        }
    }

    /// The request's id.
    pub fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    /// The id of the trace that it belongs to, 32 digits.
    pub fn trace_id(&self) -> &str {
        let text = self.traceparent.to_str().ok();
        text.and_then(|text| text.get(TRACE)).unwrap_or_default()
    }

    /// Sets the headers of an answer.
    pub fn mark(self, headers: &mut HeaderMap) {
        headers.insert(REQUEST_ID, self.request_id);
        headers.insert(TRACEPARENT, self.traceparent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(HeaderName, &str)]) -> Trace {
        let headers = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).expect("a header");
            (name.clone(), value)
        });
        Trace::of(&headers.collect())
    }

    #[test]
    fn what_the_client_says_is_taken_over() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = of(&[(REQUEST_ID, "order-7"), (TRACEPARENT, parent)]);
        assert_eq!(trace.request_id(), "order-7");
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let told = trace.traceparent.to_str().expect("text").to_owned();
        assert!(told.ends_with("-01"), "{told}");
        assert_ne!(told, parent, "the span is our own");
        assert!(is_traceparent(told.as_bytes()), "{told}");
    }

    #[test]
    fn what_makes_no_sense_is_replaced() {
        for id in ["", "two words", &"x".repeat(129)] {
            assert_eq!(of(&[(REQUEST_ID, id)]).request_id().len(), 32, "{id}");
        }
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let capitals = "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01";
        let longer = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        let never = "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for parent in [zeros, no_parent, capitals, longer, never, "", "00-12"] {
            let trace = of(&[(TRACEPARENT, parent)]);
            assert_eq!(trace.trace_id(), trace.request_id(), "{parent}");
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        let trace = of(&[(TRACEPARENT, later)]);
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
    }

    #[test]
    fn no_two_requests_have_one_name() {
        let names: std::collections::HashSet<_> =
            (0..1000).map(|_| of(&[]).request_id().to_owned()).collect();
        assert_eq!(names.len(), 1000);
    }
}
