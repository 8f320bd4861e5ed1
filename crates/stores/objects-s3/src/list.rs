//! Lists files and blobs.

use aws_sdk_s3::{operation::list_objects_v2::ListObjectsV2Output, types::Object};
use sextant_objects::{BlobInfo, BlobPage, ListRequest, ObjectInfo, Page};
use sextant_types::Digest;

use crate::{
    failure::Failure,
    store::{Inner, millis, size},
};

/// Largest number of entries of a page of S3's listing.
const MAX_PAGE: usize = 1000;

impl Inner {
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<Page, Failure> {
        let after = request.after.as_ref().map(|path| self.keys.file(path));
        let file = |object: &Object| {
            Some(ObjectInfo {
                path: self.keys.path(object.key()?)?,
                size_bytes: size(object.size()),
                modified_ms: millis(object.last_modified()),
            })
        };
        let prefix = self.keys.files(&request.prefix);
        let (objects, more) = self.list_as(&prefix, (after, request.limit), file).await?;
        let last = objects.last().filter(|_| more);
        Ok(Page {
            next: last.map(|last| last.path.clone()),
            objects,
        })
    }

    pub(crate) async fn list_blobs(
        &self,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<BlobPage, Failure> {
        let after = after.map(|digest| self.keys.blob(digest));
        let blob = |object: &Object| {
            Some(BlobInfo {
                digest: self.keys.digest(object.key()?)?,
                size_bytes: size(object.size()),
                stored_ms: whole_seconds(millis(object.last_modified())),
            })
        };
        let prefix = self.keys.blobs();
        let (blobs, more) = self.list_as(&prefix, (after, limit), blob).await?;
        let last = blobs.last().filter(|_| more);
        Ok(BlobPage {
            next: last.map(|last| last.digest),
            blobs,
        })
    }

    /// Objects after a key that `read` accepts, up to a limit, and whether there may be more. Keys without one of the
    /// store's names are skipped.
    async fn list_as<T>(
        &self,
        prefix: &str,
        (mut after, limit): (Option<String>, usize),
        read: impl Fn(&Object) -> Option<T>,
    ) -> Result<(Vec<T>, bool), Failure> {
        let limit = limit.max(1);
        let mut found = Vec::new();
        loop {
            let wanted = (limit - found.len()).min(MAX_PAGE);
            let listed = self.list_once(prefix, after, wanted).await?;
            let more = listed.is_truncated().unwrap_or(false);
            let last = listed.contents().last();
            after = last.and_then(|it| it.key().map(str::to_owned));
            found.extend(listed.contents().iter().filter_map(&read));
            if !more || after.is_none() {
                return Ok((found, false));
            }
            if found.len() >= limit {
                return Ok((found, true));
            }
        }
    }

    async fn list_once(
        &self,
        prefix: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<ListObjectsV2Output, Failure> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let mut attempts = self.attempts();
        loop {
            let request = self.client.list_objects_v2().bucket(&self.bucket);
            let request = request.prefix(prefix).max_keys(limit);
            let request = request.set_start_after(after.clone());
            match self.within(0, request.send()).await {
                Ok(listed) => return Ok(listed),
                Err(failure) => attempts.again(failure).await?,
            }
        }
    }
}

/// Listings may have a finer time than the headers with which it is compared later.
fn whole_seconds(ms: u64) -> u64 {
    ms - ms % 1000
}
