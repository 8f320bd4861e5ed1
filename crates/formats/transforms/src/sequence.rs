//! The text of a model that reads a line step by step.
//!
//! Connectionist temporal classification (Graves et al. 2006, section 3.2, best path): the likeliest class of each
//! step, with repeats joined and blanks left out.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature};

use crate::{Error, bytes_of, check_size, classes, named, numbers, spec};

/// Options of `ctc`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CtcOptions {
    /// The path of a file in the artefact store with the text of a class on each line, including that of the blank.
    pub labels_file: String,
    /// The number of the blank class.
    #[serde(default)]
    pub blank: usize,
}

/// The transform.
pub(crate) struct Ctc {
    labels: Vec<Bytes>,
    /// Bytes of the longest of them.
    longest: usize,
    blank: usize,
}

// === impl Ctc ===

impl Ctc {
    pub fn new(options: &CtcOptions, files: &BTreeMap<String, Bytes>) -> Result<Self, Error> {
        let file = files.get(&options.labels_file);
        let file = file.ok_or_else(|| Error::File {
            path: options.labels_file.clone(),
            why: "is not in the artefact store".to_owned(),
        })?;
        let labels = classes::lines(file);
        if options.blank >= labels.len() {
            return Err(Error::Option {
                option: "blank",
                why: format!("is one of the `{}` classes of the file", labels.len()),
            });
        }
        Ok(Self {
            longest: labels.iter().map(Bytes::len).max().unwrap_or_default(),
            labels,
            blank: options.blank,
        })
    }

    pub fn signature(&self) -> Signature {
        let classes = self.labels.len() as i64;
        Signature {
            inputs: vec![spec("scores", DataType::Fp32, &[-1, -1, classes])],
            outputs: vec![
                spec("text", DataType::Bytes, &[-1]),
                spec("scores", DataType::Fp32, &[-1]),
            ],
            batched: false,
        }
    }

    pub fn apply(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
        let tensor = named(inputs, "scores")?;
        let [rows, steps, classes] = numbers::shape("scores", tensor)?;
        if classes != self.labels.len() {
            let names = self.labels.len();
            return Err(Error::Input {
                input: "scores",
                why: format!("has {classes} classes, and there are {names} names"),
            });
        }
        check_size("text", &self.texts([rows, steps, classes]), 1)?;
        let values = numbers::floats("scores", tensor)?;
        let (mut texts, mut scores) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for row in 0..rows {
            let steps = values[row * steps * classes..][..steps * classes].chunks_exact(classes);
            let (text, score) = self.read(steps.map(likeliest));
            texts.push(text);
            scores.push(score);
        }
        Ok(vec![
            numbers::text("text", vec![rows], texts)?,
            numbers::tensor("scores", vec![rows], &scores)?,
        ])
    }

    /// Most bytes of the texts while they are assembled.
    pub fn text_bytes(&self, inputs: &[NamedTensor]) -> u64 {
        let shape = named(inputs, "scores").and_then(|it| numbers::shape("scores", it));
        shape.map_or(0, |shape| bytes_of(&self.texts(shape), 1))
    }

    /// The number of texts, one for each row, and the bytes of a text with a class for each step.
    fn texts(&self, [rows, steps, _]: [usize; 3]) -> [usize; 2] {
        let text = steps.saturating_mul(self.longest);
        [rows, text.saturating_add(size_of::<Bytes>())]
    }

    /// The text of classes, and the mean score of those that count; 0 if none do.
    fn read(&self, steps: impl Iterator<Item = (usize, f32)>) -> (Bytes, f32) {
        let (mut text, mut sum, mut count, mut before) = (Vec::new(), 0f64, 0u32, None);
        for (class, score) in steps {
            if before != Some(class) && class != self.blank {
                text.extend_from_slice(&self.labels[class]);
                sum += f64::from(score);
                count += 1;
            }
            before = Some(class);
        }
        (text.into(), (sum / f64::from(count.max(1))) as f32)
    }
}

/// The position and the value of the first of the greatest scores. NaN is never the greatest.
fn likeliest(scores: &[f32]) -> (usize, f32) {
    let first = (0, f32::NEG_INFINITY);
    let scores = scores.iter().copied().enumerate();
    scores.fold(first, |best, it| if it.1 > best.1 { it } else { best })
}
