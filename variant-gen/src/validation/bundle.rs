//! A validation set with what its file does not have.
//!
//! Where records have no labels, what the uploaded file answers takes their place, and a metric of the owner's has
//! a graph. Both are put in front of the file once, so that whoever measures later, in whatever process, reads
//! the same.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sextant_types::Names;

use super::{Expected, Invalid, Labels, ValidationSet, read_file};

/// What such a file begins with.
const MAGIC: &[u8] = b"sextant-labels/1\n";

/// What stands in front of a file.
#[derive(Default, Serialize, Deserialize)]
struct Head {
    /// The labels of each group of records; none where the file has them.
    labels: Option<Vec<Labels>>,
    /// Inputs whose name in the file is another one, by that.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    names: Names,
    /// Bytes of the metric's graph, which follow; 0 for none.
    judge_bytes: usize,
}

/// A file that was taken apart.
pub(super) struct Bundle {
    head: Head,
    judge: Bytes,
    file: Bytes,
}

/// The file with these labels, those of each group of records.
///
/// # Errors
/// When they cannot be written down.
pub fn with_labels(file: &Bytes, labels: &[Labels]) -> Result<Bytes, serde_json::Error> {
    let mut bundle = Bundle::around(file);
    bundle.head.labels = Some(labels.to_vec());
    bundle.write()
}

/// The file with the graph of a metric.
///
/// # Errors
/// When it cannot be written down.
pub fn with_judge(file: &Bytes, judge: &Bytes) -> Result<Bytes, serde_json::Error> {
    let mut bundle = Bundle::around(file);
    bundle.judge = judge.clone();
    bundle.write()
}

/// The file with the names of inputs that have others than the model's file gives them, by those.
///
/// # Errors
/// When they cannot be written down.
pub fn with_names(file: &Bytes, names: &Names) -> Result<Bytes, serde_json::Error> {
    let mut bundle = Bundle::around(file);
    bundle.head.names = names.clone();
    bundle.write()
}

/// Takes a file apart; `None` where it is none of these.
pub(super) fn open(bytes: &Bytes) -> Result<Option<Bundle>, Invalid> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Ok(None);
    };
    let broken = || Invalid::Archive("what stands in front of it is cut short".to_owned());
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    let length = length.filter(|length| *length <= rest.len());
    let (head, rest) = rest.split_at(length.ok_or_else(broken)?);
    let head = serde_json::from_slice::<Head>(head);
    let head = head.map_err(|error| Invalid::Archive(error.to_string()))?;
    let judge = rest.get(..head.judge_bytes).ok_or_else(broken)?;
    let file = &rest[head.judge_bytes..];
    Ok(Some(Bundle {
        judge: bytes.slice_ref(judge),
        file: bytes.slice_ref(file),
        head,
    }))
}

// === impl Bundle ===

impl Bundle {
    /// What a file holds, with nothing more in front of it than was.
    fn around(file: &Bytes) -> Self {
        open(file).ok().flatten().unwrap_or_else(|| Self {
            head: Head::default(),
            judge: Bytes::new(),
            file: file.clone(),
        })
    }

    fn write(mut self) -> Result<Bytes, serde_json::Error> {
        self.head.judge_bytes = self.judge.len();
        let head = serde_json::to_vec(&self.head)?;
        let length = MAGIC.len() + 8 + head.len() + self.judge.len() + self.file.len();
        let mut bytes = BytesMut::with_capacity(length);
        bytes.put_slice(MAGIC);
        bytes.put_u64_le(head.len() as u64);
        bytes.put_slice(&head);
        bytes.put_slice(&self.judge);
        bytes.put_slice(&self.file);
        Ok(bytes.freeze())
    }

    /// The file as it was before, and the names of inputs that it may call otherwise.
    pub(super) fn into_file(self) -> (Bytes, Names) {
        (self.file, self.head.names)
    }

    /// The validation set.
    pub(super) fn read(&self, expected: Expected<'_>) -> Result<ValidationSet, Invalid> {
        let names = &self.head.names;
        let set = read_file(&self.file, expected, names)?;
        let judge = Some(&self.judge).filter(|judge| !judge.is_empty());
        let set = ValidationSet {
            judge: judge.cloned(),
            ..set
        };
        match &self.head.labels {
            Some(labels) => set.labelled(labels.clone()),
            None => Ok(set),
        }
    }
}

impl ValidationSet {
    /// The same with these labels, those of each group.
    fn labelled(mut self, labels: Vec<Labels>) -> Result<Self, Invalid> {
        let fits = self.groups.len() == labels.len()
            && self.groups.iter().zip(&labels).all(|(group, labels)| {
                let known = labels.values.len();
                known == labels.per_record.checked_mul(group.records)
            });
        if !fits {
            let reason = "its labels are not those of its records".to_owned();
            return Err(Invalid::Archive(reason));
        }
        for (group, labels) in self.groups.iter_mut().zip(labels) {
            group.labels = labels;
        }
        Ok(self)
    }
}

/// Tensors as JSON.
pub(super) mod tensor {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use sextant_types::{Data, DataType, Tensor};

    /// Elements as bytes, one list for all or one for each text.
    #[derive(Serialize, Deserialize)]
    struct Parts {
        data_type: DataType,
        shape: Vec<usize>,
        bytes: Vec<Vec<u8>>,
    }

    pub fn serialize<S: Serializer>(tensor: &Tensor, to: S) -> Result<S::Ok, S::Error> {
        let parts = Parts {
            data_type: tensor.data_type(),
            shape: tensor.shape().to_vec(),
            bytes: match tensor.data() {
                Data::Plain(bytes) => vec![bytes.to_vec()],
                Data::Strings(texts) => texts.iter().map(<[u8]>::to_vec).collect(),
            },
        };
        parts.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Tensor, D::Error> {
        let parts = Parts::deserialize(from)?;
        let texts = parts.bytes.into_iter().map(Bytes::from);
        let tensor = match parts.data_type {
            DataType::Bytes => Tensor::from_strings(parts.shape, texts),
            data_type => {
                let bytes = texts.into_iter().next().unwrap_or_default();
                Tensor::from_bytes(data_type, parts.shape, bytes)
            }
        };
        tensor.map_err(D::Error::custom)
    }
}
