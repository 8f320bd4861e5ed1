//! A validation set with additions to its file.
//!
//! If records have no labels, the answers of the uploaded file replace them, and a custom metric has a graph. Both are
//! put in front of the file once, so that every later measurement, in whatever process, reads the same.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sextant_types::Names;

use super::{Invalid, Labels, SetRequirements, ValidationSet, read_file};

/// The first bytes of such a file.
const MAGIC: &[u8] = b"sextant-labels/1\n";

/// Most bytes of a file's front to which something is added.
const MOST_FRONT_BYTES: u64 = 16 << 20;

/// The head of a front.
#[derive(Default, Serialize, Deserialize)]
struct Head {
    /// The labels of each group of records; `None` if the file has them.
    labels: Option<Vec<Labels>>,
    /// The model's names of inputs that have other names in the file, by the file's names.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    names: Names,
    /// Bytes of the metric's graph, which follows; 0 for none.
    judge_bytes: u64,
}

/// A file that was split into its parts.
pub(super) struct Bundle {
    head: Head,
    judge: Bytes,
    file: Bytes,
}

/// The front of a file, without the file, to be extended.
#[derive(Default)]
pub(crate) struct Front {
    head: Head,
    /// Where the rest begins: the metric's graph, if there is one, and the file.
    start: u64,
}

/// The result of searching a front at the beginning of a file.
pub(crate) enum FrontSearch {
    Front(Front),
    /// This many bytes of the file are needed.
    More(u64),
}

/// The file with these labels, those of each group of records.
///
/// # Errors
/// If they cannot be serialised.
pub fn with_labels(file: &Bytes, labels: &[Labels]) -> Result<Bytes, serde_json::Error> {
    let front = Front::default().labelled(labels.to_vec()).write()?;
    Ok([front, file.clone()].concat().into())
}

/// Splits a file into its parts; `None` if it has no front.
pub(super) fn open(bytes: &Bytes) -> Result<Option<Bundle>, Invalid> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Ok(None);
    };
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok();
    let length = length.filter(|length| *length <= rest.len());
    let (head, rest) = rest.split_at(length.ok_or_else(broken)?);
    let head = read_head(head)?;
    let judge_bytes = usize::try_from(head.judge_bytes).map_err(|_| broken())?;
    let (judge, file) = rest.split_at_checked(judge_bytes).ok_or_else(broken)?;
    Ok(Some(Bundle {
        judge: bytes.slice_ref(judge),
        file: bytes.slice_ref(file),
        head,
    }))
}

fn read_head(head: &[u8]) -> Result<Head, Invalid> {
    serde_json::from_slice(head).map_err(|error| Invalid::Archive(error.to_string()))
}

fn broken() -> Invalid {
    Invalid::Archive("what stands in front of it is cut short".to_owned())
}

// === impl Front ===

impl Front {
    /// Bytes that show whether a file has a front.
    pub(crate) const LEAST_BYTES: u64 = MAGIC.len() as u64 + 8;

    /// Searches a front in the first bytes of a file: [`Self::LEAST_BYTES`] if it has so many.
    pub(crate) fn find(beginning: &[u8]) -> Result<FrontSearch, Invalid> {
        let Some(rest) = beginning.strip_prefix(MAGIC) else {
            return Ok(FrontSearch::Front(Self::default()));
        };
        let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
        let length = u64::from_le_bytes(*length);
        if length > MOST_FRONT_BYTES {
            let why = format!("what stands in front of it is over {MOST_FRONT_BYTES} bytes");
            return Err(Invalid::Archive(why));
        }
        let start = Self::LEAST_BYTES + length;
        match rest.get(..length as usize) {
            None => Ok(FrontSearch::More(start)),
            Some(head) => Ok(FrontSearch::Front(Self {
                head: read_head(head)?,
                start,
            })),
        }
    }

    /// Where the rest begins in the front's file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of the metric's graph that follows.
    pub(crate) fn judge_bytes(&self) -> u64 {
        self.head.judge_bytes
    }

    /// Adds the labels of each group of records.
    pub(crate) fn labelled(mut self, labels: Vec<Labels>) -> Self {
        self.head.labels = Some(labels);
        self
    }

    /// Adds a metric's graph of `bytes` bytes.
    pub(crate) fn judged(mut self, bytes: u64) -> Self {
        self.head.judge_bytes = bytes;
        self
    }

    /// Adds the model's names of inputs that the file names otherwise, by the file's names.
    pub(crate) fn named(mut self, names: Names) -> Self {
        self.head.names = names;
        self
    }

    /// The front's bytes. The metric's graph, if there is one, and the file follow.
    pub(crate) fn write(&self) -> Result<Bytes, serde_json::Error> {
        let head = serde_json::to_vec(&self.head)?;
        let mut bytes = BytesMut::with_capacity(MAGIC.len() + 8 + head.len());
        bytes.put_slice(MAGIC);
        bytes.put_u64_le(head.len() as u64);
        bytes.put_slice(&head);
        Ok(bytes.freeze())
    }
}

// === impl Bundle ===

impl Bundle {
    /// The file without the front, and the model's names of inputs that it names otherwise.
    pub(super) fn into_file(self) -> (Bytes, Names) {
        (self.file, self.head.names)
    }

    /// The validation set.
    pub(super) fn read(&self, expected: SetRequirements<'_>) -> Result<ValidationSet, Invalid> {
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
    /// Replaces the labels by those of each group.
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

    /// Elements as bytes: one list for all, or one for each text.
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
