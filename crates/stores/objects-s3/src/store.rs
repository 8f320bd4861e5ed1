//! The store: the implementation of each call of the contract.

use std::{io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_s3::{Client, error::SdkError};
use bytes::Bytes;
use sextant_objects::{
    BlobPage, ByteStream, Error, ListRequest, ObjectInfo, ObjectPath, ObjectStore, Page, PutBlob,
};
use sextant_types::{Digest, StoreId};

use crate::{
    Error as OpenError, S3Config, client,
    failure::{Failure, Reason},
    keys::Keys,
    put::Checksum,
    retry::{Attempts, Policy},
};

/// The slowest connection that does not time out, bytes/s.
const SLOWEST_BYTES_PER_S: u64 = 128 << 10;

/// Artefacts in an S3 bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub struct S3Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) bucket: String,
    pub(crate) keys: Keys,
    pub(crate) policy: Policy,
    pub(crate) timeout: Duration,
    pub(crate) part_bytes: usize,
    pub(crate) parallel_parts: usize,
    pub(crate) spool: PathBuf,
}

impl S3Store {
    /// Opens a bucket, and checks that it exists and gives access.
    pub async fn open(config: S3Config) -> Result<Self, OpenError> {
        config.check()?;
        let client = client::build(&config).await?;
        let store = Self {
            inner: Arc::new(Inner {
                client,
                keys: Keys::new(&config.prefix),
                policy: Policy {
                    max_attempts: config.max_attempts,
                    backoff: config.backoff,
                    max_backoff: config.max_backoff,
                },
                timeout: config.timeout,
                part_bytes: config.part_bytes,
                parallel_parts: config.parallel_parts,
                spool: config.spool.unwrap_or_else(std::env::temp_dir),
                bucket: config.bucket,
            }),
        };
        match store.inner.look_at_bucket().await {
            Ok(()) => Ok(store),
            Err(failure) if failure.passes() => Err(OpenError::Away {
                bucket: store.inner.bucket.clone(),
                problem: failure.text().to_owned(),
            }),
            Err(failure) => Err(OpenError::Bucket {
                bucket: store.inner.bucket.clone(),
                problem: match failure.reason {
                    Reason::Missing => "it does not exist: create it or correct its name".into(),
                    _ => failure.text().to_owned(),
                },
            }),
        }
    }
}

#[async_trait]
impl ObjectStore for S3Store {
    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        let key = self.inner.keys.identity();
        let text = match self.inner.get(&key, "identity").await {
            Ok(text) => text,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let read = text.trim_end().parse().map(Some);
        read.map_err(|error| Error::Io {
            object: key,
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        let (key, text) = (self.inner.keys.identity(), format!("{identity}\n"));
        let put = self.inner.put_once(&key, text.into(), Checksum::Crc).await;
        put.map_err(|failure| failure.into_error("identity"))
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.inner.put_blob(bytes).await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        self.inner.put_blob_stream(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        self.inner.get_blob(digest).await
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        let key = self.inner.keys.blob(digest);
        self.inner.get_range(&key, range, &digest.to_string()).await
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        let found = self.inner.head(&self.inner.keys.blob(digest)).await;
        let found = found.map_err(|failure| failure.into_error(&digest.to_string()))?;
        Ok(found.map(|found| found.size_bytes))
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        let listed = self.inner.list_blobs(after, limit).await;
        listed.map_err(|failure| failure.into_error("blobs"))
    }

    async fn delete_blob_stored_by(
        &self,
        digest: &Digest,
        stored_by_ms: u64,
    ) -> Result<bool, Error> {
        let key = self.inner.keys.blob(digest);
        let object = digest.to_string();
        self.inner.delete(&key, stored_by_ms, &object).await
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        self.inner.put_file(path, bytes).await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        let key = self.inner.keys.file(path);
        self.inner.put_stream(&key, bytes, path.as_str()).await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        let key = self.inner.keys.file(path);
        self.inner.get(&key, path.as_str()).await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        let key = self.inner.keys.file(path);
        self.inner.get_range(&key, range, path.as_str()).await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        let found = self.inner.head(&self.inner.keys.file(path)).await;
        let found = found.map_err(|failure| failure.into_error(path.as_str()))?;
        Ok(found.map(|found| ObjectInfo {
            path: path.clone(),
            size_bytes: found.size_bytes,
            modified_ms: found.modified_ms,
        }))
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let listed = self.inner.list(request).await;
        listed.map_err(|failure| failure.into_error(&request.prefix))
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        let key = self.inner.keys.file(path);
        self.inner.delete(&key, u64::MAX, path.as_str()).await
    }
}

/// The properties of an object without its bytes.
#[derive(Debug)]
pub(crate) struct ObjectHead {
    pub(crate) size_bytes: u64,
    pub(crate) modified_ms: u64,
    /// The multipart upload that wrote it, if it was sent in parts.
    pub(crate) upload: Option<String>,
}

// === impl Inner ===

impl Inner {
    pub(crate) fn attempts(&self) -> Attempts {
        self.policy.begin()
    }

    /// One attempt of a request whose body has `body_bytes`, within its time limit.
    pub(crate) async fn within<T, E>(
        &self,
        body_bytes: usize,
        request: impl Future<Output = Result<T, SdkError<E, aws_sdk_s3::config::http::HttpResponse>>>,
    ) -> Result<T, Failure>
    where
        Failure: From<SdkError<E, aws_sdk_s3::config::http::HttpResponse>>,
    {
        let sending = Duration::from_secs(body_bytes as u64 / SLOWEST_BYTES_PER_S);
        match tokio::time::timeout(self.timeout + sending, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(no_answer()),
        }
    }

    async fn look_at_bucket(&self) -> Result<(), Failure> {
        let mut attempts = self.attempts();
        loop {
            let request = self.client.head_bucket().bucket(&self.bucket);
            match self.within(0, request.send()).await {
                Ok(_) => return Ok(()),
                Err(failure) => attempts.again(failure).await?,
            }
        }
    }

    /// Size and modification time of an object.
    pub(crate) async fn head(&self, key: &str) -> Result<Option<ObjectHead>, Failure> {
        let mut attempts = self.attempts();
        loop {
            let request = self.client.head_object().bucket(&self.bucket).key(key);
            let failure = match self.within(0, request.send()).await {
                Ok(found) => {
                    let upload = found.metadata().and_then(|it| it.get(crate::upload::MARK));
                    return Ok(Some(ObjectHead {
                        size_bytes: size(found.content_length()),
                        modified_ms: millis(found.last_modified()),
                        upload: upload.cloned(),
                    }));
                }
                Err(failure) => failure,
            };
            match self.judge(failure, key).await {
                Failure {
                    reason: Reason::Missing,
                    ..
                } => return Ok(None),
                failure => attempts.again(failure).await?,
            }
        }
    }

    /// The class of a failure to read a key. If the server failed internally, the listing shows
    /// whether the object exists at all.
    pub(crate) async fn judge(&self, failure: Failure, key: &str) -> Failure {
        if failure.reason != Reason::Internal {
            return failure;
        }
        let request = self.client.list_objects_v2().bucket(&self.bucket);
        let request = request.prefix(key).max_keys(1).send();
        match self.within(0, request).await {
            Ok(page) if page.contents().first().and_then(|it| it.key()) != Some(key) => {
                Failure::new(Reason::Missing, "it is not listed")
            }
            _ => failure,
        }
    }

    /// Removes an object unless it was written after the given time.
    async fn delete(&self, key: &str, written_by_ms: u64, object: &str) -> Result<bool, Error> {
        let deleted = async {
            // S3 gives the same answer whether or not there was something to delete.
            let found = self.head(key).await?;
            if found.is_none_or(|found| found.modified_ms > written_by_ms) {
                return Ok(false);
            }
            let mut attempts = self.attempts();
            loop {
                let request = self.client.delete_object().bucket(&self.bucket).key(key);
                match self.within(0, request.send()).await {
                    Ok(_) => return Ok(true),
                    Err(failure) => attempts.again(failure).await?,
                }
            }
        };
        deleted
            .await
            .map_err(|failure: Failure| failure.into_error(object))
    }
}

pub(crate) fn no_answer() -> Failure {
    Failure::new(Reason::Passing, "no answer in time")
}

pub(crate) fn size(length: Option<i64>) -> u64 {
    length.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)
}

pub(crate) fn millis(time: Option<&aws_sdk_s3::primitives::DateTime>) -> u64 {
    let millis = time.and_then(|time| time.to_millis().ok());
    millis.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)
}
