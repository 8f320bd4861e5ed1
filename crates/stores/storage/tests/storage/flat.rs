//! A store without folders, like an object store: a path may be that of a file and a prefix of others.

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use sextant_objects::{
    BlobPage, ByteStream, Error, ListRequest, ObjectInfo, ObjectPath, ObjectStore, Page, PutBlob,
};
use sextant_types::{Digest, StoreId};

use crate::support::path;

/// Keeps files in one folder, under names without `/`.
pub struct FlatStore(pub Arc<dyn ObjectStore>);

fn flat(of: &ObjectPath) -> ObjectPath {
    path(&of.to_string().replace('/', "+"))
}

fn deep(mut info: ObjectInfo) -> ObjectInfo {
    info.path = path(&info.path.to_string().replace('+', "/"));
    info
}

#[async_trait]
impl ObjectStore for FlatStore {
    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        self.0.identity().await
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        self.0.set_identity(identity).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.0.put_blob(bytes).await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        self.0.put_blob_stream(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        self.0.get_blob(digest).await
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        self.0.get_blob_range(digest, range).await
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        self.0.stat_blob(digest).await
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        self.0.list_blobs(after, limit).await
    }

    async fn delete_blob_stored_by(&self, digest: &Digest, by_ms: u64) -> Result<bool, Error> {
        self.0.delete_blob_stored_by(digest, by_ms).await
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        self.0.put(&flat(path), bytes).await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        self.0.put_stream(&flat(path), bytes).await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        self.0.get(&flat(path)).await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        self.0.get_range(&flat(path), range).await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        Ok(self.0.stat(&flat(path)).await?.map(deep))
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let page = self.0.list(request).await?;
        let objects = page.objects.into_iter().map(deep).collect();
        Ok(Page { objects, ..page })
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        self.0.delete(&flat(path)).await
    }
}
