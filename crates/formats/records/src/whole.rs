//! Files that are one record each: images and texts, in order.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_objects::{ObjectInfo, ObjectPath};
use sextant_types::{NamedTensor, Signature, Tensor, Texts, offline::RecordFormat};

use crate::{Error, Files, Outline, Record};

/// Most bytes of a file that is a record.
const MOST_BYTES: u64 = 256 << 20;

/// A file and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeFile {
    /// Its path.
    pub path: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// When it was last written, ms since the Unix epoch.
    pub modified_ms: u64,
}

/// Reads such files one after the other.
pub(crate) struct WholeFiles {
    left: std::vec::IntoIter<WholeFile>,
    input: String,
    /// Dimensions of the input, the batch included.
    rank: usize,
}

// === impl Outline ===

impl Outline {
    /// The outline of files that are one record each, in their order.
    ///
    /// # Errors
    /// If the model has another input than one of strings.
    pub fn of_files(files: Vec<ObjectInfo>, signature: &Signature) -> Result<Self, Error> {
        if let (Some(first), None) = (files.first(), signature.only_text()) {
            let names = signature.inputs.iter().map(|it| format!("`{}`", it.name));
            let names = names.collect::<Vec<_>>().join(", ");
            let reason = format!(
                "a file is a record of what takes one input of strings, and the inputs are {names}: say `format` where it has \
                 records"
            );
            return Err(Error::input(&first.path, reason));
        }
        Ok(Self {
            format: RecordFormat::File,
            size_bytes: files.iter().map(|file| file.size_bytes).sum(),
            modified_ms: files.iter().map(|file| file.modified_ms).max().unwrap_or(0),
            records: files.len() as u64,
            // The largest, so that no chunk is too large.
            record_bytes: files.iter().map(|file| file.size_bytes).max().unwrap_or(0),
            marks: Vec::new(),
            files: files.into_iter().map(WholeFile::from).collect(),
        })
    }

    /// The paths of `count` records from `first` on, if each is a file; else none.
    pub fn names(&self, first: u64, count: u32) -> Vec<String> {
        let from = usize::try_from(first).unwrap_or(usize::MAX);
        let files = self.files.iter().skip(from).take(count as usize);
        files.map(|file| file.path.clone()).collect()
    }
}

// === impl WholeFiles ===

impl WholeFiles {
    pub fn new(outline: &Outline, signature: &Signature, first: u64) -> Self {
        let from = usize::try_from(first).unwrap_or(usize::MAX);
        let left: Vec<WholeFile> = outline.files.iter().skip(from).cloned().collect();
        let input = signature.only_text();
        Self {
            left: left.into_iter(),
            input: input.map(|spec| spec.name.clone()).unwrap_or_default(),
            rank: input.map_or(0, |spec| spec.shape.len()),
        }
    }

    pub async fn read(&mut self, files: &Files, count: u32) -> Result<Vec<Record>, Error> {
        let mut records = Vec::with_capacity(count as usize);
        for file in self.left.by_ref().take(count as usize) {
            let bytes = file.read(files).await?;
            records.push(bytes.and_then(|bytes| {
                let text = Texts::one(bytes).map_err(|error| error.to_string())?;
                let tensor = Tensor::from_texts(vec![1; self.rank], text);
                let tensor = tensor.map_err(|error| error.to_string())?;
                Ok(vec![NamedTensor::new(&self.input, tensor)])
            }));
        }
        Ok(records)
    }
}

// === impl WholeFile ===

impl WholeFile {
    /// The content of the file, or why it cannot be a record.
    async fn read(&self, files: &Files) -> Result<Result<Bytes, String>, Error> {
        let changed = || Error::Changed {
            path: self.path.clone(),
        };
        let path = ObjectPath::parse(&self.path).map_err(sextant_objects::Error::from)?;
        let now = files.stat(&path).await?.ok_or_else(changed)?;
        if Self::from(now) != *self {
            return Err(changed());
        }
        if self.size_bytes > MOST_BYTES {
            let (path, has) = (&self.path, self.size_bytes);
            let why = format!(
                "`{path}` has {has} bytes: a file that is a record has at most {MOST_BYTES}"
            );
            return Ok(Err(why));
        }
        let bytes = files.get(&path).await?;
        match bytes.len() as u64 == self.size_bytes {
            true => Ok(Ok(bytes)),
            false => Err(changed()),
        }
    }
}

impl From<ObjectInfo> for WholeFile {
    fn from(of: ObjectInfo) -> Self {
        Self {
            path: of.path.to_string(),
            size_bytes: of.size_bytes,
            modified_ms: of.modified_ms,
        }
    }
}
