//! Writes objects that are small or whose name is known.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    sync::Arc,
};

use aws_sdk_s3::{primitives::ByteStream as Body, types::ChecksumAlgorithm};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use sextant_objects::{ByteStream, Error, ObjectPath, PutBlob, digest_of};
use sextant_types::Digest;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::{failure::Failure, store::Inner};

/// The checksum with which S3 verifies the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Checksum {
    /// Their SHA-256, known in advance: the store accepts no other bytes.
    Sha256(Digest),
    /// A CRC that the SDK computes.
    Crc,
}

/// Size of the pieces in which a spool file is read.
const SPOOL_PIECE_BYTES: usize = 1 << 20;

impl Inner {
    pub(crate) async fn put_blob(self: &Arc<Self>, bytes: Bytes) -> Result<Digest, Error> {
        let (digest, bytes) = spawn_blocking(move || (digest_of(&bytes), bytes))
            .await
            .map_err(|panic| broken("blob", panic.into()))?;
        let (key, object) = (self.keys.blob(&digest), digest.to_string());
        if self.is_large(bytes.len()) {
            let whole = stream::iter([Ok(bytes)]);
            self.put_stream(&key, Box::pin(whole), &object).await?;
        } else {
            let put = self.put_once(&key, bytes, Checksum::Sha256(digest)).await;
            put.map_err(|failure| failure.into_error(&object))?;
        }
        Ok(digest)
    }

    /// The name is known only after the last byte. A blob that does not fit into one part is first
    /// written to disk.
    pub(crate) async fn put_blob_stream(
        self: &Arc<Self>,
        mut bytes: ByteStream<'_>,
    ) -> Result<PutBlob, Error> {
        let mut pending = BytesMut::new();
        let mut spool: Option<Spool> = None;
        while let Some(piece) = bytes.next().await {
            pending.extend_from_slice(&piece.map_err(|source| Error::Input {
                object: "blob".into(),
                source,
            })?);
            if pending.len() >= self.part_bytes {
                let full = pending.split().freeze();
                spool = Some(self.spool(spool, full).await?);
            }
        }
        let Some(spool) = spool else {
            let size_bytes = pending.len() as u64;
            let digest = self.put_blob(pending.freeze()).await?;
            return Ok(PutBlob { digest, size_bytes });
        };
        let mut spool = self.spool(Some(spool), pending.freeze()).await?;
        let digest = Digest::from_bytes(std::mem::take(&mut spool.hash).finalize().into());
        let size_bytes = spool.size_bytes;
        let stored = spool.read().map_err(|source| broken("blob", source))?;
        self.put_stream(&self.keys.blob(&digest), stored, &digest.to_string())
            .await?;
        Ok(PutBlob { digest, size_bytes })
    }

    pub(crate) async fn put_file(
        self: &Arc<Self>,
        path: &ObjectPath,
        bytes: Bytes,
    ) -> Result<(), Error> {
        let key = self.keys.file(path);
        if self.is_large(bytes.len()) {
            let whole = stream::iter([Ok(bytes)]);
            self.put_stream(&key, Box::pin(whole), path.as_str())
                .await?;
            return Ok(());
        }
        let put = self.put_once(&key, bytes, Checksum::Crc).await;
        put.map_err(|failure| failure.into_error(path.as_str()))
    }

    /// One request with the whole object.
    pub(crate) async fn put_once(
        &self,
        key: &str,
        bytes: Bytes,
        checksum: Checksum,
    ) -> Result<(), Failure> {
        let mut attempts = self.attempts();
        loop {
            let request = self.client.put_object().bucket(&self.bucket).key(key);
            let request = match checksum {
                Checksum::Sha256(digest) => {
                    request.checksum_sha256(aws_smithy_types::base64::encode(digest.as_bytes()))
                }
                Checksum::Crc => request.checksum_algorithm(ChecksumAlgorithm::Crc32),
            };
            let request = request.body(Body::from(bytes.clone()));
            match self.within(bytes.len(), request.send()).await {
                Ok(_) => return Ok(()),
                Err(failure) => attempts.again(failure).await?,
            }
        }
    }

    /// Whether an object of this size is sent in parts.
    fn is_large(&self, bytes: usize) -> bool {
        bytes > self.part_bytes
    }

    async fn spool(&self, spool: Option<Spool>, bytes: Bytes) -> Result<Spool, Error> {
        let folder = self.spool.clone();
        let written = spawn_blocking(move || {
            let mut spool = match spool {
                Some(spool) => spool,
                // The file has no name: it is removed with the process.
                None => Spool {
                    file: tempfile::tempfile_in(folder)?,
                    hash: Sha256::new(),
                    size_bytes: 0,
                },
            };
            spool.file.write_all(&bytes)?;
            spool.hash.update(&bytes);
            spool.size_bytes += bytes.len() as u64;
            Ok(spool)
        });
        let written = written.await.unwrap_or_else(|panic| Err(panic.into()));
        written.map_err(|source| broken("blob", source))
    }
}

/// A stream on disk.
struct Spool {
    file: File,
    hash: Sha256,
    size_bytes: u64,
}

impl Spool {
    /// The bytes again, from the start.
    fn read(mut self) -> io::Result<ByteStream<'static>> {
        self.file.seek(SeekFrom::Start(0))?;
        Ok(Box::pin(stream::try_unfold(self.file, |file| async move {
            let (file, bytes) = spawn_blocking(move || {
                let mut bytes = Vec::with_capacity(SPOOL_PIECE_BYTES);
                (&file)
                    .take(SPOOL_PIECE_BYTES as u64)
                    .read_to_end(&mut bytes)?;
                Ok::<_, io::Error>((file, bytes))
            })
            .await
            .map_err(io::Error::from)??;
            Ok((!bytes.is_empty()).then(|| (Bytes::from(bytes), file)))
        })))
    }
}

/// The error of a fault of this machine's disk.
fn broken(object: &str, source: io::Error) -> Error {
    let object = object.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::StorageFull {
            object,
            source: Some(source),
        },
        _ => Error::Io { object, source },
    }
}
