//! A store that is away for a while, as a server that is restarted.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use sextant_objects::{
    BlobPage, ByteStream, Error, ListRequest, LocalStore, ObjectInfo, ObjectPath, ObjectStore,
    Page, PutBlob,
};
use sextant_records::{Chunk, Files, Join, RecordAnswer, Tally};
use sextant_types::{DataType, Digest, NamedTensor, StoreId, Tensor, offline::RecordFormat};

use crate::support::{block_on, model, path, spec};

/// Refuses so many calls, then answers.
struct FlakyStore {
    store: LocalStore,
    left: AtomicU32,
}

impl FlakyStore {
    fn check(&self, object: &dyn ToString) -> Result<(), Error> {
        let less = |left: u32| left.checked_sub(1);
        let (order, object) = (Ordering::SeqCst, object.to_string());
        match self.left.fetch_update(order, order, less) {
            Ok(_) => Err(Error::Unavailable {
                object,
                source: io::ErrorKind::ConnectionRefused.into(),
            }),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl ObjectStore for FlakyStore {
    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        self.store.identity().await
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        self.store.set_identity(identity).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.store.put_blob(bytes).await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        self.store.put_blob_stream(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        self.store.get_blob(digest).await
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        self.store.get_blob_range(digest, range).await
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        self.store.stat_blob(digest).await
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        self.store.list_blobs(after, limit).await
    }

    async fn delete_blob_stored_by(
        &self,
        digest: &Digest,
        stored_by_ms: u64,
    ) -> Result<bool, Error> {
        self.store.delete_blob_stored_by(digest, stored_by_ms).await
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        self.check(path)?;
        self.store.put(path, bytes).await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        self.check(path)?;
        self.store.put_stream(path, bytes).await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        self.check(path)?;
        self.store.get(path).await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        self.check(path)?;
        self.store.get_range(path, range).await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        self.check(path)?;
        self.store.stat(path).await
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        self.check(&request.prefix)?;
        self.store.list(request).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        self.check(path)?;
        self.store.delete(path).await
    }
}

fn answer() -> RecordAnswer {
    let scores = Tensor::from_elements(vec![1, 2], &[0.5_f32, -1.0]).expect("a tensor");
    Ok(vec![NamedTensor::new("scores", scores)])
}

#[test]
fn a_store_that_is_away_for_a_while_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path().join("objects"), None).expect("a store");
    let left = AtomicU32::new(0);
    let away = Arc::new(FlakyStore { store, left });
    let files = Files::new(Arc::clone(&away) as Arc<dyn ObjectStore>);
    let goes_away = || away.left.store(3, Ordering::SeqCst);
    let is_back = || assert_eq!(away.left.load(Ordering::SeqCst), 0);
    let signature = model(vec![], vec![spec("scores", DataType::Fp32, &[Some(2)])]);
    block_on(async {
        let chunk = Chunk {
            first: 0,
            answers: &[answer()],
            batched: true,
            names: &[],
        };
        let part = Tally::default().encode(RecordFormat::Jsonl, chunk);
        goes_away();
        let put = files.put(&path("part"), part.expect("a part")).await;
        put.expect("written");
        is_back();
        let place = |_| ObjectPath::parse("part");
        let join = Join::new(&files, RecordFormat::Jsonl, 0..1, place, &signature).await;
        let join = join.expect("joined");
        goes_away();
        let written = join.write(&path("out"), || std::future::ready(true)).await;
        let bytes = written.expect("written").expect("confirmed");
        is_back();
        goes_away();
        let whole = files.get(&path("out")).await.expect("read");
        is_back();
        assert_eq!(whole.len() as u64, bytes);
        assert!(whole.starts_with(b"{\"index\":0,\"outputs\":"), "{whole:?}");
    });
}
