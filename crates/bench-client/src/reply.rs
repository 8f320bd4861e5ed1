//! What is read of an answer.

use std::{borrow::Cow, io};

use httparse::Status;
use serde::Deserialize;

use crate::message::JSON_BYTES;

/// Most headers of an answer.
const MOST_HEADERS: usize = 64;

/// What comes before the body of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Head {
    status: u16,
    /// Bytes of it.
    pub(crate) length: usize,
    /// Bytes of the body; `None` where the end of the connection ends it.
    pub(crate) body_bytes: Option<usize>,
    /// Whether the body comes in chunks, whatever else is said of its length.
    pub(crate) is_chunked: bool,
    /// Whether the server closes the connection afterwards.
    pub(crate) closes: bool,
    /// Bytes of JSON before tensors.
    json_bytes: Option<usize>,
}

/// Where the body of an answer is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    /// So many bytes behind the head.
    Here(usize),
    /// Where chunks were put together.
    Chunks,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    status: u16,
    body: &'a [u8],
    json_bytes: Option<usize>,
}

/// What a query came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome<'a> {
    /// It was answered: by whom, where that is told, and whether it says that all targets are met.
    Answered {
        variant: Option<Cow<'a, str>>,
        targets_met: Option<bool>,
    },
    /// It was refused, with this code.
    Refused(Cow<'a, str>),
}

#[derive(Debug, Default, Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    variant: Option<Cow<'a, str>>,
    targets_met: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Problem<'a> {
    #[serde(borrow)]
    code: Option<Cow<'a, str>>,
}

// === impl Head ===

impl Head {
    /// Reads it; `None` before it is complete.
    pub(crate) fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let Status::Complete(length) = response.parse(bytes).map_err(invalid)? else {
            return Ok(None);
        };
        let status = response.code.unwrap_or_default();
        let mut head = Self {
            status,
            length,
            body_bytes: matches!(status, 100..=199 | 204 | 304).then_some(0),
            is_chunked: false,
            closes: response.version == Some(0),
            json_bytes: None,
        };
        for header in response.headers.iter() {
            head.note(header.name, header.value)?;
        }
        Ok(Some(head))
    }

    fn note(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(value).unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("content-length") {
            self.body_bytes = Some(text.parse().map_err(invalid)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.is_chunked = text.to_ascii_lowercase().ends_with("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes = text.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case(JSON_BYTES.as_str()) {
            self.json_bytes = text.parse().ok();
        }
        Ok(())
    }

    /// Whether another head follows.
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// With its body.
    pub(crate) fn reply<'a>(&self, body: &'a [u8]) -> Reply<'a> {
        Reply {
            status: self.status,
            body,
            json_bytes: self.json_bytes,
        }
    }
}

/// Puts the chunks of a body together; false before the last has come. Begins anew each time: few answers of a
/// service come so, and in few pieces.
pub(crate) fn decode_chunks(mut rest: &[u8], whole: &mut Vec<u8>) -> io::Result<bool> {
    whole.clear();
    loop {
        let size = httparse::parse_chunk_size(rest);
        let Status::Complete((begin, size)) = size.map_err(|_| io::ErrorKind::InvalidData)? else {
            return Ok(false);
        };
        let size = usize::try_from(size).map_err(invalid)?;
        rest = &rest[begin..];
        if size == 0 {
            // No trailers, or lines of them up to an empty one.
            return Ok(rest.starts_with(b"\r\n") || rest.windows(4).any(|it| it == b"\r\n\r\n"));
        }
        let Some(end) = size.checked_add(2).filter(|end| rest.len() >= *end) else {
            return Ok(false);
        };
        whole.extend_from_slice(&rest[..size]);
        rest = &rest[end..];
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

// === impl Reply ===

impl<'a> Reply<'a> {
    /// What it says. `reads` tells whether an answer is one of a query, whose JSON is looked at.
    pub(crate) fn outcome(&self, reads: bool) -> Outcome<'a> {
        if !(200..300).contains(&self.status) {
            let problem: Problem<'a> = serde_json::from_slice(self.body).unwrap_or_default();
            let status = || format!("http_{}", self.status).into();
            return Outcome::Refused(problem.code.unwrap_or_else(status));
        }
        let answer = match reads {
            true => serde_json::from_slice(self.json()).unwrap_or_default(),
            false => Answer::default(),
        };
        Outcome::Answered {
            variant: answer.variant,
            targets_met: answer.targets_met,
        }
    }

    fn json(&self) -> &'a [u8] {
        let json = self.json_bytes.and_then(|length| self.body.get(..length));
        json.unwrap_or(self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, body: &'static str) -> Outcome<'static> {
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        let head = Head::parse(text.as_bytes()).expect("a head");
        let head = head.expect("all of it");
        head.reply(body.as_bytes()).outcome(true)
    }

    #[test]
    fn answers_name_their_variant_and_refusals_their_code() {
        let text = r#"{"model":"m","variant":"m-1","outputs":[],"targets_met":false}"#;
        let wanted = Outcome::Answered {
            variant: Some("m-1".into()),
            targets_met: Some(false),
        };
        assert_eq!(outcome(200, text), wanted);
        let refusal = outcome(503, r#"{"title":"t","code":"overloaded"}"#);
        assert_eq!(refusal, Outcome::Refused("overloaded".into()));
        assert_eq!(outcome(502, "<html>"), Outcome::Refused("http_502".into()));
    }

    #[test]
    fn a_head_tells_how_its_body_ends() {
        let parse = |text: &str| Head::parse(text.as_bytes()).expect("a head");
        assert_eq!(parse("HTTP/1.1 200 OK\r\nContent-Le"), None);
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n";
        let head = parse(whole).expect("all of it");
        assert_eq!(
            (head.body_bytes, head.closes, head.length),
            (Some(7), true, whole.len())
        );
        let head = parse("HTTP/1.0 200 OK\r\n\r\n").expect("all of it");
        assert_eq!((head.body_bytes, head.closes), (None, true));
        assert!(parse("HTTP/1.1 100 Continue\r\n\r\n").is_some_and(|head| head.is_interim()));
        assert!(Head::parse(b"SSH-2.0\r\n\r\n").is_err());
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n").is_err());
    }

    #[test]
    fn chunks_are_put_together_once_all_are_there() {
        let text = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        let mut whole = Vec::new();
        for end in 0..text.len() {
            assert!(
                !decode_chunks(&text[..end], &mut whole).expect("valid"),
                "{end}"
            );
        }
        assert!(decode_chunks(text, &mut whole).expect("valid"));
        assert_eq!(whole, b"abcde");
        assert!(decode_chunks(b"x\r\n", &mut whole).is_err());
    }
}
