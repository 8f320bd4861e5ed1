//! The likeliest classes of each row, by name.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature};

use crate::{Error, bytes_of, check_size, named, numbers, spec};

/// Options of `top_k`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopKOptions {
    /// How many of each row, the likeliest first.
    #[serde(default = "one")]
    pub k: usize,
    /// The names of the classes, in their order. Without names, a class is identified by its number.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The path of a file in the artefact store with a name on each line, instead of `labels`.
    #[serde(default)]
    pub labels_file: Option<String>,
}

fn one() -> usize {
    1
}

/// The transform.
pub(crate) struct TopK {
    k: usize,
    labels: Vec<Bytes>,
    /// Bytes of the longest of them.
    longest: usize,
}

/// Bytes of memory of a name in addition to its text while names are assembled; a number used as a name has fewer.
const NAME_BYTES: usize = 64;

// === impl TopK ===

impl TopK {
    pub fn new(options: &TopKOptions, files: &BTreeMap<String, Bytes>) -> Result<Self, Error> {
        let invalid = |option, why: &str| Error::Option {
            option,
            why: why.to_owned(),
        };
        if options.k == 0 {
            return Err(invalid("k", "is at least 1"));
        }
        let labels = match &options.labels_file {
            None => options
                .labels
                .iter()
                .map(|label| Bytes::from(label.clone()))
                .collect(),
            Some(_) if !options.labels.is_empty() => {
                return Err(invalid(
                    "labels_file",
                    "and `labels` are not given together",
                ));
            }
            Some(path) => {
                let file = files.get(path).ok_or_else(|| Error::File {
                    path: path.clone(),
                    why: "is not in the artefact store".to_owned(),
                })?;
                lines(file)
            }
        };
        Ok(Self {
            k: options.k,
            longest: labels.iter().map(Bytes::len).max().unwrap_or_default(),
            labels,
        })
    }

    pub fn signature(&self) -> Signature {
        let k = self.k as i64;
        Signature {
            inputs: vec![spec("scores", DataType::Fp32, &[-1, -1])],
            outputs: vec![
                spec("labels", DataType::Bytes, &[-1, k]),
                spec("scores", DataType::Fp32, &[-1, k]),
                spec("indices", DataType::Int64, &[-1, k]),
            ],
            batched: false,
        }
    }

    pub fn apply(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
        let tensor = named(inputs, "scores")?;
        let [rows, classes] = numbers::shape("scores", tensor)?;
        let fail = |why: String| Error::Input {
            input: "scores",
            why,
        };
        if classes < self.k {
            return Err(fail(format!(
                "has {classes} classes, and `k` is {}",
                self.k
            )));
        }
        if !self.labels.is_empty() && self.labels.len() != classes {
            let names = self.labels.len();
            return Err(fail(format!(
                "has {classes} classes, and there are {names} names"
            )));
        }
        check_size("labels", &self.names([rows, classes]), 1)?;
        let values = numbers::floats("scores", tensor)?;
        let (mut labels, mut scores, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        for row in values.chunks_exact(classes) {
            let mut order: Vec<usize> = (0..classes).collect();
            // NaN comes last; of equal scores the first class comes first.
            let key = |at: &usize| {
                if row[*at].is_nan() {
                    f32::NEG_INFINITY
                } else {
                    row[*at]
                }
            };
            order.sort_by(|a, b| key(b).total_cmp(&key(a)).then(a.cmp(b)));
            for at in order.into_iter().take(self.k) {
                labels.push(self.label(at));
                scores.push(row[at]);
                indices.push(at as i64);
            }
        }
        let shape = || vec![rows, self.k];
        Ok(vec![
            numbers::text("labels", shape(), labels)?,
            numbers::tensor("scores", shape(), &scores)?,
            numbers::tensor("indices", shape(), &indices)?,
        ])
    }

    /// Most bytes of the names while they are assembled.
    pub fn text_bytes(&self, inputs: &[NamedTensor]) -> u64 {
        let shape = named(inputs, "scores").and_then(|it| numbers::shape("scores", it));
        shape.map_or(0, |shape| bytes_of(&self.names(shape), 1))
    }

    /// The number of names for scores of this shape, and the bytes of the longest.
    fn names(&self, [rows, classes]: [usize; 2]) -> [usize; 3] {
        let name = self.longest.saturating_add(NAME_BYTES);
        [rows, self.k.min(classes), name]
    }

    fn label(&self, class: usize) -> Bytes {
        let named = self.labels.get(class).cloned();
        named.unwrap_or_else(|| class.to_string().into())
    }
}

/// The lines of a file without their ends; an empty last line does not count.
pub(crate) fn lines(file: &Bytes) -> Vec<Bytes> {
    let text = file.strip_suffix(b"\n").unwrap_or(file);
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .map(|line| file.slice_ref(line.strip_suffix(b"\r").unwrap_or(line)))
        .collect()
}
