//! Writes large objects in parts, a few of them concurrently. The object appears only when the upload is completed. An
//! upload that fails or is dropped is aborted.

use std::sync::Arc;

use aws_sdk_s3::{
    primitives::ByteStream as Body,
    types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart},
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::Fuse};
use sextant_objects::{ByteStream, Error};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    failure::{Failure, Reason},
    put::Checksum,
    store::Inner,
};

/// The metadata of an object that names the upload which wrote it. It shows whether a completion whose answer was lost
/// was carried out.
pub(crate) const MARK: &str = "sextant-upload";

/// Largest number of parts that S3 permits.
const MAX_PARTS: i32 = 10_000;

/// An upload that was begun. It is aborted if it is dropped unfinished.
struct Upload {
    inner: Arc<Inner>,
    key: String,
    id: String,
    mark: String,
    open: bool,
}

impl Inner {
    /// Stores a stream, in one request if it fits into a part. Returns its size in bytes.
    pub(crate) async fn put_stream(
        self: &Arc<Self>,
        key: &str,
        bytes: ByteStream<'_>,
        object: &str,
    ) -> Result<u64, Error> {
        let mut cutter = Cutter {
            bytes: bytes.fuse(),
            pending: BytesMut::new(),
            part_bytes: self.part_bytes,
        };
        let failed = |failure: Failure| failure.into_error(object);
        let first = cutter.next(object).await?.unwrap_or_default();
        if first.len() < self.part_bytes {
            let size = first.len() as u64;
            let put = self.put_once(key, first, Checksum::Crc).await;
            return put.map(|()| size).map_err(failed);
        }
        let mut upload = Upload::begin(self, key).await.map_err(failed)?;
        let sent = upload.send_parts(first, &mut cutter, object).await;
        let completed = match sent {
            Ok((parts, size)) => {
                let completed = upload.complete(parts).await;
                completed.map(|()| size).map_err(failed)
            }
            Err(error) => Err(error),
        };
        if completed.is_err() {
            upload.abort().await;
        }
        completed
    }
}

/// Cuts a stream into parts of one size; the last part may be smaller.
struct Cutter<'a> {
    /// It is polled once more after a smaller last part, which not every stream permits.
    bytes: Fuse<ByteStream<'a>>,
    pending: BytesMut,
    part_bytes: usize,
}

impl Cutter<'_> {
    async fn next(&mut self, object: &str) -> Result<Option<Bytes>, Error> {
        while self.pending.len() < self.part_bytes {
            match self.bytes.next().await {
                Some(Ok(piece)) => self.pending.extend_from_slice(&piece),
                Some(Err(source)) => {
                    return Err(Error::Input {
                        object: object.to_owned(),
                        source,
                    });
                }
                None => break,
            }
        }
        let length = self.pending.len().min(self.part_bytes);
        Ok((length > 0).then(|| self.pending.split_to(length).freeze()))
    }
}

// === impl Upload ===

impl Upload {
    async fn begin(inner: &Arc<Inner>, key: &str) -> Result<Self, Failure> {
        let mark = Uuid::new_v4().to_string();
        let mut attempts = inner.attempts();
        loop {
            let request = inner.client.create_multipart_upload();
            let request = request.bucket(&inner.bucket).key(key);
            let request = request.checksum_algorithm(ChecksumAlgorithm::Crc32);
            let request = request.metadata(MARK, &mark).send();
            let failure = match inner.within(0, request).await {
                Ok(begun) => match begun.upload_id {
                    Some(id) => {
                        return Ok(Self {
                            inner: inner.clone(),
                            key: key.to_owned(),
                            id,
                            mark,
                            open: true,
                        });
                    }
                    None => Failure::new(Reason::Lasting, "the server gave the upload no name"),
                },
                Err(failure) => failure,
            };
            attempts.again(failure).await?;
        }
    }

    /// Sends all parts. Returns them in order, and the size of the whole.
    async fn send_parts(
        &self,
        first: Bytes,
        cutter: &mut Cutter<'_>,
        object: &str,
    ) -> Result<(Vec<CompletedPart>, u64), Error> {
        let mut sending = JoinSet::new();
        let mut sent = Vec::new();
        let (mut number, mut size, mut next) = (0, 0, Some(first));
        while let Some(bytes) = next {
            number += 1;
            if number > MAX_PARTS {
                let text = format!(
                    "it has more than {MAX_PARTS} parts of {} bytes: raise the size of a part",
                    cutter.part_bytes
                );
                return Err(Failure::new(Reason::Lasting, text).into_error(object));
            }
            size += bytes.len() as u64;
            if sending.len() >= self.inner.parallel_parts {
                sent.push(join(&mut sending, object).await?);
            }
            let (inner, key, id) = (self.inner.clone(), self.key.clone(), self.id.clone());
            sending.spawn(async move { inner.put_part(&key, &id, number, bytes).await });
            next = cutter.next(object).await?;
        }
        while !sending.is_empty() {
            sent.push(join(&mut sending, object).await?);
        }
        sent.sort_by_key(CompletedPart::part_number);
        Ok((sent, size))
    }

    async fn complete(&mut self, parts: Vec<CompletedPart>) -> Result<(), Failure> {
        let parts = CompletedMultipartUpload::builder()
            .set_parts(Some(parts))
            .build();
        let mut attempts = self.inner.attempts();
        loop {
            let request = self.inner.client.complete_multipart_upload();
            let request = request.bucket(&self.inner.bucket).key(&self.key);
            let request = request.upload_id(&self.id).multipart_upload(parts.clone());
            // Joining many parts takes the store some time.
            let patience = self.inner.part_bytes;
            let failure = match self.inner.within(patience, request.send()).await {
                Ok(_) => break,
                Err(failure) => failure,
            };
            // If an upload does not exist when it is completed again, the first completion was carried out.
            if !failure.passes() && attempts.is_repeat() && self.is_stored().await? {
                break;
            }
            attempts.again(failure).await?;
        }
        self.open = false;
        Ok(())
    }

    async fn is_stored(&self) -> Result<bool, Failure> {
        let found = self.inner.head(&self.key).await?;
        Ok(found.is_some_and(|found| found.upload.as_ref() == Some(&self.mark)))
    }

    async fn abort(&mut self) {
        self.open = false;
        abort(&self.inner, &self.key, &self.id).await;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current();
        if let (true, Ok(runtime)) = (self.open, runtime) {
            let (inner, key, id) = (self.inner.clone(), self.key.clone(), self.id.clone());
            runtime.spawn(async move { abort(&inner, &key, &id).await });
        }
    }
}

impl Inner {
    async fn put_part(
        &self,
        key: &str,
        id: &str,
        number: i32,
        bytes: Bytes,
    ) -> Result<CompletedPart, Failure> {
        let mut attempts = self.attempts();
        loop {
            let request = self.client.upload_part().bucket(&self.bucket).key(key);
            let request = request.upload_id(id).part_number(number);
            let request = request.checksum_algorithm(ChecksumAlgorithm::Crc32);
            let request = request.body(Body::from(bytes.clone())).send();
            match self.within(bytes.len(), request).await {
                Ok(stored) => {
                    return Ok(CompletedPart::builder()
                        .part_number(number)
                        .set_e_tag(stored.e_tag)
                        .set_checksum_crc32(stored.checksum_crc32)
                        .build());
                }
                Err(failure) => attempts.again(failure).await?,
            }
        }
    }
}

/// The next part that was sent.
async fn join(
    sending: &mut JoinSet<Result<CompletedPart, Failure>>,
    object: &str,
) -> Result<CompletedPart, Error> {
    let lost = || Failure::new(Reason::Lasting, "the sending of a part ended");
    let sent = match sending.join_next().await {
        Some(Ok(sent)) => sent,
        Some(Err(_)) | None => Err(lost()),
    };
    sent.map_err(|failure| failure.into_error(object))
}

async fn abort(inner: &Inner, key: &str, id: &str) {
    let mut attempts = inner.attempts();
    loop {
        let request = inner.client.abort_multipart_upload();
        let request = request.bucket(&inner.bucket).key(key).upload_id(id);
        let Err(failure) = inner.within(0, request.send()).await else {
            return;
        };
        if let Err(failure) = attempts.again(failure).await {
            let failure = failure.text();
            tracing::warn!(key, failure, "an unfinished upload stays in the bucket");
            return;
        }
    }
}
