//! A store in a folder, signatures, and arrays as NumPy writes them.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use sextant_objects::{LocalStore, ObjectPath};
use sextant_records::{Error, Files, Outline, Reader, Record};
use sextant_types::{DataType, Signature, TensorSpec, offline::RecordFormat};

pub struct Store {
    pub files: Files,
    _folder: tempfile::TempDir,
}

impl Store {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = LocalStore::open(folder.path().join("objects"), None).expect("a store");
        Self {
            files: Files::new(Arc::new(store)),
            _folder: folder,
        }
    }

    pub async fn put(&self, name: &str, bytes: impl Into<Bytes>) -> ObjectPath {
        let path = path(name);
        let put = self.files.put(&path, bytes.into()).await;
        put.expect("the store takes it");
        path
    }

    /// Looks through a file and reads it from `first`, so many records at a time.
    pub async fn read(
        &self,
        name: &str,
        signature: &Signature,
        (first, chunk): (u64, u32),
    ) -> Result<Vec<Record>, Error> {
        let path = path(name);
        let format = RecordFormat::of_path(name).expect("a suffix");
        let outline = Outline::scan(&self.files, &path, format, signature).await?;
        let mut reader = Reader::open(&self.files, &path, &outline, signature, first).await?;
        let mut records = Vec::new();
        let mut left = outline.records - first;
        while left > 0 {
            let count = left.min(u64::from(chunk)) as u32;
            records.extend(reader.read(count).await?);
            left -= u64::from(count);
        }
        Ok(records)
    }
}

pub fn path(name: &str) -> ObjectPath {
    ObjectPath::parse(name).expect("a path")
}

/// A file that NumPy wrote: `tests/data/make.py` says how.
pub fn numpy(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    std::fs::read(format!("{folder}/{name}")).expect("the file is there")
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

pub fn spec(name: &str, data_type: DataType, row: &[Option<u64>]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: [&[None], row].concat(),
    }
}

/// A batched model.
pub fn model(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Signature {
    Signature {
        inputs,
        outputs,
        batched: true,
    }
}

pub fn one_input(data_type: DataType, row: &[Option<u64>]) -> Signature {
    model(vec![spec("x", data_type, row)], vec![])
}
