//! Arithmetic between models: pooling, vectors of length one, probabilities.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature, Tensor};

use crate::{Error, bytes_of, check_size, named, numbers, spec, text::TEXT_INDEX};

/// How the vectors of tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Their mean, without those that the mask leaves out.
    #[default]
    Mean,
    /// That of the first token.
    First,
    /// The greatest of each component, without those that the mask leaves out.
    Max,
}

/// Options of `pool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolOptions {
    /// Which.
    #[serde(default)]
    pub mode: Pooling,
    /// Whether the vector is scaled to length one.
    #[serde(default)]
    pub normalize: bool,
}

/// Options of `normalize`: there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NormalizeOptions {}

/// Options of `softmax`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SoftmaxOptions {
    /// Scores are divided by it; above zero.
    #[serde(default = "one")]
    pub temperature: f32,
}

fn one() -> f32 {
    1.0
}

/// Bytes of a row's range.
const ROW_BYTES: usize = size_of::<Range<usize>>();

/// With `windows`, rows are parts of texts, and an input gives the text of each row.
pub(crate) fn pool_signature(windows: bool) -> Signature {
    let index = windows.then(|| spec(TEXT_INDEX, DataType::Int64, &[-1]));
    let inputs = [
        spec("hidden", DataType::Fp32, &[-1, -1, -1]),
        spec("attention_mask", DataType::Int64, &[-1, -1]),
    ];
    Signature {
        inputs: inputs.into_iter().chain(index).collect(),
        outputs: vec![spec("embedding", DataType::Fp32, &[-1, -1])],
        batched: false,
    }
}

pub(crate) fn normalize_signature() -> Signature {
    let vectors = || vec![spec("vectors", DataType::Fp32, &[-1, -1])];
    Signature {
        inputs: vectors(),
        outputs: vectors(),
        batched: false,
    }
}

pub(crate) fn softmax_signature(options: &SoftmaxOptions) -> Result<Signature, Error> {
    if !options.temperature.is_finite() || options.temperature <= 0.0 {
        return Err(Error::Option {
            option: "temperature",
            why: "is a number above zero".to_owned(),
        });
    }
    Ok(Signature {
        inputs: vec![spec("scores", DataType::Fp32, &[-1, -1])],
        outputs: vec![spec("probabilities", DataType::Fp32, &[-1, -1])],
        batched: false,
    })
}

/// One vector for each row, or for each text: `hidden` is `[rows, tokens, components]`, the mask `[rows, tokens]`. If
/// an input gives the text of each row, the tokens of all rows of a text count as those of one row.
pub(crate) fn pool(
    options: &PoolOptions,
    inputs: &[NamedTensor],
) -> Result<Vec<NamedTensor>, Error> {
    let (hidden, mask) = (named(inputs, "hidden")?, named(inputs, "attention_mask")?);
    let [rows, tokens, components] = numbers::shape("hidden", hidden)?;
    if numbers::shape("attention_mask", mask)? != [rows, tokens] {
        let why = format!(
            "has shape {:?}: `hidden` has {:?}",
            mask.shape(),
            hidden.shape()
        );
        return Err(Error::Input {
            input: "attention_mask",
            why,
        });
    }
    let (hidden, mask) = (
        numbers::floats("hidden", hidden)?,
        numbers::floats("attention_mask", mask)?,
    );
    // The number of rows without tokens, or with vectors without components, is not limited by the data.
    check_size("embedding", &[rows], ROW_BYTES as u64)?;
    let texts = match inputs.iter().any(|it| it.name == TEXT_INDEX) {
        true => texts(named(inputs, TEXT_INDEX)?, rows)?,
        false => (0..rows).map(|row| row..row + 1).collect(),
    };
    check_size("embedding", &[texts.len(), components], 4)?;
    let mut pooled = vec![0f32; texts.len() * components];
    if components > 0 && tokens > 0 {
        for (rows, into) in texts.iter().zip(pooled.chunks_exact_mut(components)) {
            let tokens = rows.start * tokens..rows.end * tokens;
            let hidden = &hidden[tokens.start * components..tokens.end * components];
            pool_row(options.mode, hidden, &mask[tokens], into);
        }
    }
    if options.normalize && components > 0 {
        pooled.chunks_exact_mut(components).for_each(to_length_one);
    }
    Ok(vec![numbers::tensor(
        "embedding",
        vec![texts.len(), components],
        &pooled,
    )?])
}

/// Most bytes of the result of [`pool`], which is copied once.
pub(crate) fn pooled_bytes(inputs: &[NamedTensor]) -> u64 {
    let shape = named(inputs, "hidden").and_then(|it| numbers::shape("hidden", it));
    shape.map_or(0, |[rows, _, components]| {
        let row = components.saturating_mul(2 * 4);
        bytes_of(&[rows, row.saturating_add(ROW_BYTES)], 1)
    })
}

/// The rows of each text: they are contiguous, and no text is skipped.
fn texts(index: &Tensor, rows: usize) -> Result<Vec<Range<usize>>, Error> {
    let wrong = |why: String| Error::Input {
        input: TEXT_INDEX,
        why,
    };
    let [count] = numbers::shape(TEXT_INDEX, index)?;
    if count != rows {
        return Err(wrong(format!(
            "has {count} elements, and `hidden` has {rows} rows"
        )));
    }
    let mut texts: Vec<Range<usize>> = Vec::new();
    for (row, of) in numbers::floats(TEXT_INDEX, index)?.into_iter().enumerate() {
        let next = texts.len() as f32;
        match texts.last_mut() {
            Some(last) if of == next - 1.0 => last.end = row + 1,
            _ if of == next => texts.push(row..row + 1),
            _ => {
                return Err(wrong(format!(
                    "has {of} in row `{row}`, after the rows of {next} texts"
                )));
            }
        }
    }
    Ok(texts)
}

fn pool_row(mode: Pooling, hidden: &[f32], mask: &[f32], into: &mut [f32]) {
    let components = into.len();
    let kept = || {
        let tokens = hidden.chunks_exact(components).zip(mask);
        tokens
            .filter(|(_, mask)| **mask != 0.0)
            .map(|(token, _)| token)
    };
    match mode {
        Pooling::First => into.copy_from_slice(&hidden[..components]),
        Pooling::Mean => {
            let count = kept().count().max(1) as f32;
            kept().for_each(|token| into.iter_mut().zip(token).for_each(|(sum, it)| *sum += it));
            into.iter_mut().for_each(|sum| *sum /= count);
            // The sum of large numbers may overflow the type although their mean does not.
            let far = into.iter_mut().enumerate();
            for (component, mean) in far.filter(|(_, mean)| !mean.is_finite()) {
                let sum: f64 = kept().map(|token| f64::from(token[component])).sum();
                *mean = (sum / f64::from(count)) as f32;
            }
        }
        Pooling::Max => {
            let mut tokens = kept();
            if let Some(first) = tokens.next() {
                into.copy_from_slice(first);
            }
            tokens.for_each(|token| {
                into.iter_mut()
                    .zip(token)
                    .for_each(|(most, it)| *most = most.max(*it));
            });
        }
    }
}

/// A vector of zeros stays unchanged. The squares of large and of small numbers do not fit the vector's type.
fn to_length_one(vector: &mut [f32]) {
    let numbers = vector.iter().map(|it| f64::from(*it));
    let length = numbers.map(|it| it * it).sum::<f64>().sqrt();
    if length > 0.0 {
        let divide = |it: &mut f32| *it = (f64::from(*it) / length) as f32;
        vector.iter_mut().for_each(divide);
    }
}

pub(crate) fn normalize(inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
    let vectors = named(inputs, "vectors")?;
    let [rows, components] = numbers::shape("vectors", vectors)?;
    let mut values = numbers::floats("vectors", vectors)?;
    if components > 0 {
        values.chunks_exact_mut(components).for_each(to_length_one);
    }
    Ok(vec![numbers::tensor(
        "vectors",
        vec![rows, components],
        &values,
    )?])
}

pub(crate) fn softmax(
    options: &SoftmaxOptions,
    inputs: &[NamedTensor],
) -> Result<Vec<NamedTensor>, Error> {
    let scores = named(inputs, "scores")?;
    let [rows, classes] = numbers::shape("scores", scores)?;
    let mut values = numbers::floats("scores", scores)?;
    if classes > 0 {
        for row in values.chunks_exact_mut(classes) {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut()
                .for_each(|it| *it = ((*it - most) / options.temperature).exp());
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|it| *it /= sum);
        }
    }
    Ok(vec![numbers::tensor(
        "probabilities",
        vec![rows, classes],
        &values,
    )?])
}
