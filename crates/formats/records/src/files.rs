//! The artefact store, with repeated attempts while it does not answer.

use std::{future::Future, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use sextant_objects::{Error, ListRequest, ObjectInfo, ObjectPath, ObjectStore};

/// Number of attempts before an error is returned: about half a minute with the pauses.
const ATTEMPTS: u32 = 20;

/// The first pause between two attempts; it doubles.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause between two attempts.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A store whose passing failures are waited for, so that work of hours does not end with one of them. It has only
/// calls that may be repeated.
#[derive(Clone)]
pub struct Files {
    store: Arc<dyn ObjectStore>,
}

impl Files {
    /// Wraps a store.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store }
    }

    /// The store itself, for calls that cannot be repeated.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Reads a file.
    pub async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        patiently(|| self.store.get(path)).await
    }

    /// Reads part of a file; the end may lie beyond the file's.
    pub async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        patiently(|| self.store.get_range(path, range.clone())).await
    }

    /// Writes a file.
    pub async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        patiently(|| self.store.put(path, bytes.clone())).await
    }

    /// Size and time of a file.
    pub async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        patiently(|| self.store.stat(path)).await
    }

    /// Removes a file and tells whether it was there.
    pub async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        patiently(|| self.store.delete(path)).await
    }

    /// Files under a prefix in the order of their paths, up to `most` plus one.
    pub async fn list(&self, prefix: &str, most: usize) -> Result<Vec<ObjectInfo>, Error> {
        let mut request = ListRequest::prefix(prefix);
        let mut found = Vec::new();
        loop {
            let page = patiently(|| self.store.list(&request)).await?;
            found.extend(page.objects);
            match page.next {
                Some(next) if found.len() <= most => request.after = Some(next),
                _ => return Ok(found),
            }
        }
    }
}

/// Whether the store may answer differently later. A store over a network reports that it is unreachable after its own
/// attempts, which take some seconds; a restart of it takes longer. A full store has room again when somebody removes
/// something.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. } | Error::Unavailable { .. } | Error::StorageFull { .. }
    )
}

async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        match call().await {
            Err(error) if may_pass(&error) && attempt < ATTEMPTS => {
                tracing::debug!(%error, attempt, "the artefact store is asked again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            ended => return ended,
        }
    }
    unreachable!("the last attempt returns")
}
