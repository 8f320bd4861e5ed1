//! Reads objects.
//!
//! A blob's bytes are checked against its name, so an interrupted download continues where it stopped. A named file may
//! be replaced meanwhile, so the whole file is read again. S3's own checksum is verified if the object has one for its
//! whole content; otherwise its length is compared.

use std::ops::Range;

use aws_sdk_s3::{
    operation::get_object::GetObjectOutput, primitives::ByteStream as Body, types::ChecksumMode,
};
use bytes::{Bytes, BytesMut};
use sextant_objects::{Error, digest_of};
use sextant_types::Digest;

use crate::{
    failure::{Failure, Reason},
    store::{Inner, no_answer},
};

/// Largest amount of memory reserved for an object from its stated length alone.
const MAX_AHEAD_BYTES: usize = 1 << 30;

impl Inner {
    /// Reads and verifies a blob.
    pub(crate) async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        let (key, object) = (self.keys.blob(digest), digest.to_string());
        let mut attempts = self.attempts();
        let mut bytes = BytesMut::new();
        let mut seen_before = None;
        loop {
            let failure = match self.continue_blob(&key, &mut bytes).await {
                Ok(()) => {
                    let actual = digest_of(&bytes);
                    if actual == *digest {
                        return Ok(bytes.freeze());
                    }
                    // The bytes were damaged in transit or in the store. If it was in the store, it happens again.
                    bytes.clear();
                    if seen_before.replace(actual) == Some(actual) {
                        let expected = *digest;
                        return Err(Error::Corrupt { expected, actual });
                    }
                    Failure::new(Reason::Passing, "the bytes are not those of the name")
                }
                Err(failure) => self.judge(failure, &key).await,
            };
            if let Err(failure) = attempts.again(failure).await {
                return Err(match seen_before {
                    Some(actual) => Error::Corrupt {
                        expected: *digest,
                        actual,
                    },
                    None => failure.into_error(&object),
                });
            }
        }
    }

    /// Appends the bytes of an object that `bytes` lacks.
    async fn continue_blob(&self, key: &str, bytes: &mut BytesMut) -> Result<(), Failure> {
        let mut request = self.client.get_object().bucket(&self.bucket).key(key);
        if !bytes.is_empty() {
            request = request.range(format!("bytes={}-", bytes.len()));
        }
        let answer = match self.within(0, request.send()).await {
            // Nothing follows the bytes read so far. They may be the whole blob, or not the stored one.
            Err(failure) if failure.reason == Reason::Range => return Ok(()),
            answer => answer?,
        };
        if !bytes.is_empty()
            && span(&answer).is_none_or(|(range, _)| range.start != bytes.len() as u64)
        {
            bytes.clear();
            return Err(Failure::new(
                Reason::Passing,
                "the server sent another range",
            ));
        }
        self.read(answer.body, length(answer.content_length), bytes)
            .await
    }

    /// Reads a whole file.
    pub(crate) async fn get(&self, key: &str, object: &str) -> Result<Bytes, Error> {
        let mut attempts = self.attempts();
        loop {
            let failure = match self.get_once(key).await {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => self.judge(failure, key).await,
            };
            let again = attempts.again(failure).await;
            again.map_err(|failure| failure.into_error(object))?;
        }
    }

    async fn get_once(&self, key: &str) -> Result<Bytes, Failure> {
        let request = self.client.get_object().bucket(&self.bucket).key(key);
        let request = request.checksum_mode(ChecksumMode::Enabled);
        let answer = self.within(0, request.send()).await?;
        let verified = has_whole_checksum(&answer);
        let mut bytes = BytesMut::new();
        self.read(answer.body, length(answer.content_length), &mut bytes)
            .await?;
        if !verified {
            let found = self.head(key).await?;
            if found.is_none_or(|found| found.size_bytes != bytes.len() as u64) {
                return Err(Failure::new(
                    Reason::Passing,
                    "the answer has another length",
                ));
            }
        }
        Ok(bytes.freeze())
    }

    /// Reads the bytes of an object that exist in a range.
    pub(crate) async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        object: &str,
    ) -> Result<Bytes, Error> {
        let mut attempts = self.attempts();
        loop {
            let failure = match self.range_once(key, &range).await {
                Ok(Part::Bytes(bytes)) => return Ok(bytes),
                Ok(Part::Beyond { size }) => {
                    return Err(Error::Range {
                        object: object.to_owned(),
                        size,
                        start: range.start,
                    });
                }
                Err(failure) => self.judge(failure, key).await,
            };
            let again = attempts.again(failure).await;
            again.map_err(|failure| failure.into_error(object))?;
        }
    }

    async fn range_once(&self, key: &str, range: &Range<u64>) -> Result<Part, Failure> {
        // S3 does not support empty ranges.
        if range.start >= range.end {
            return self.at_the_end(key, range.start).await;
        }
        let request = self.client.get_object().bucket(&self.bucket).key(key);
        let wanted = match range.end {
            u64::MAX => format!("bytes={}-", range.start),
            end => format!("bytes={}-{}", range.start, end - 1),
        };
        let answer = match self.within(0, request.range(wanted).send()).await {
            Err(failure) if failure.reason == Reason::Range => {
                return self.at_the_end(key, range.start).await;
            }
            answer => answer?,
        };
        let Some((sent, size)) = span(&answer) else {
            return Err(Failure::new(Reason::Lasting, "the server knows no ranges"));
        };
        if sent != (range.start..range.end.min(size)) {
            return Err(Failure::new(
                Reason::Passing,
                "the server sent another range",
            ));
        }
        let mut bytes = BytesMut::new();
        self.read(answer.body, Some(sent.end - sent.start), &mut bytes)
            .await?;
        Ok(Part::Bytes(bytes.freeze()))
    }

    /// The answer to a range without bytes.
    async fn at_the_end(&self, key: &str, start: u64) -> Result<Part, Failure> {
        match self.head(key).await? {
            None => Err(Failure::new(Reason::Missing, "there is no such object")),
            Some(found) if start > found.size_bytes => Ok(Part::Beyond {
                size: found.size_bytes,
            }),
            Some(_) => Ok(Part::Bytes(Bytes::new())),
        }
    }

    /// Appends a body to `into`. It must have `expected` bytes and must not stall.
    async fn read(
        &self,
        mut body: Body,
        expected: Option<u64>,
        into: &mut BytesMut,
    ) -> Result<(), Failure> {
        let expected = expected.and_then(|it| usize::try_from(it).ok());
        into.reserve(expected.unwrap_or(0).min(MAX_AHEAD_BYTES));
        let before = into.len();
        loop {
            match tokio::time::timeout(self.timeout, body.next()).await {
                Ok(Some(Ok(piece))) => into.extend_from_slice(&piece),
                Ok(Some(Err(error))) => {
                    let text = format!("the body broke off: {error}");
                    return Err(Failure::new(Reason::Passing, text));
                }
                Ok(None) => break,
                Err(_) => return Err(no_answer()),
            }
        }
        let read = into.len() - before;
        match expected {
            Some(expected) if expected != read => {
                let text = format!("received {read} of {expected} bytes");
                Err(Failure::new(Reason::Passing, text))
            }
            _ => Ok(()),
        }
    }
}

/// The bytes of a range that exist.
enum Part {
    Bytes(Bytes),
    /// The range begins after the end.
    Beyond {
        size: u64,
    },
}

/// The range of a partial answer, and the object's size.
fn span(answer: &GetObjectOutput) -> Option<(Range<u64>, u64)> {
    let (range, size) = answer
        .content_range()?
        .strip_prefix("bytes ")?
        .split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    Some((first..last.checked_add(1)?, size.parse().ok()?))
}

fn length(content_length: Option<i64>) -> Option<u64> {
    content_length.and_then(|it| u64::try_from(it).ok())
}

/// Whether the SDK verifies the body: it does not if the checksum is one over the parts' checksums.
fn has_whole_checksum(answer: &GetObjectOutput) -> bool {
    let checksums = [
        answer.checksum_crc32(),
        answer.checksum_crc32_c(),
        answer.checksum_crc64_nvme(),
        answer.checksum_sha1(),
        answer.checksum_sha256(),
    ];
    checksums.into_iter().flatten().any(|it| !it.contains('-'))
}
