//! The part of an answer that is needed to score a label that comes later.

use sextant_types::{Data, Metric, Tensor, convert};
use sha2::{Digest, Sha256};

use crate::bytes::Reader;

/// The most bytes of predictions in a token: 1,024 rows of a classifier with up to 255 classes. A larger answer has no
/// prediction in its token, and labels of its rows are stored without a score.
pub const MOST_PREDICTION_BYTES: usize = 1024;

/// The most classes of a row. It suffices for `top16` and smaller metrics.
const MOST_BEST: u32 = 16;

/// No class: the row has a value that is not a number, so no label is right.
const NO_CLASS: u16 = u16::MAX;

/// The prediction, row by row.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// A label cannot be scored: the metric is another one, or there are too many rows.
    Unknown,
    /// The likeliest classes of each row, best first, the same number for each row.
    Classes {
        /// The number of classes for each row, 1 or more.
        best: u8,
        /// Row after row.
        classes: Vec<u16>,
    },
    /// The one number of each row.
    Numbers(Vec<f32>),
    /// The first bytes of a digest of each row's elements.
    Digests(Vec<u64>),
}

// === impl Prediction ===

impl Prediction {
    /// The part of the output that the metric scores, for an answer of `rows` rows.
    pub fn of(metric: Metric, output: &Tensor, rows: u32) -> Self {
        let rows = rows as usize;
        if rows == 0 || output.is_empty() || !output.len().is_multiple_of(rows) {
            return Self::Unknown;
        }
        let width = output.len() / rows;
        let predicted = match metric {
            Metric::Top1 | Metric::F1Micro => classes(output, width, 1),
            Metric::TopK(k) if k <= MOST_BEST => classes(output, width, k as usize),
            Metric::MeanAbsoluteError
            | Metric::RootMeanSquareError
            | Metric::MeanAbsolutePercentageError => numbers(output, width),
            Metric::Exact => digests(output, width),
            _ => None,
        };
        let fits = predicted.filter(|it| it.size() <= MOST_PREDICTION_BYTES);
        fits.unwrap_or(Self::Unknown)
    }

    /// The bytes, as in tokens.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Reads the bytes that [`Self::to_bytes`] made of a prediction of `rows` rows; `None` for any other bytes.
    pub fn of_bytes(bytes: &[u8], rows: u32) -> Option<Self> {
        let mut reader = Reader(bytes);
        let read = Self::read(&mut reader, rows)?;
        reader.0.is_empty().then_some(read)
    }

    /// The number of bytes that it takes in a token.
    fn size(&self) -> usize {
        match self {
            Self::Unknown => 1,
            Self::Classes { classes, .. } => 2 + classes.len() * width_of(classes),
            Self::Numbers(numbers) => 1 + 4 * numbers.len(),
            Self::Digests(digests) => 1 + 8 * digests.len(),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unknown => out.push(0),
            Self::Classes { best, classes } => {
                let wide = width_of(classes) == 2;
                out.extend([if wide { 2 } else { 1 }, *best]);
                match wide {
                    true => out.extend(classes.iter().flat_map(|it| it.to_le_bytes())),
                    false => out.extend(classes.iter().map(|it| *it as u8)),
                }
            }
            Self::Numbers(numbers) => {
                out.push(3);
                out.extend(numbers.iter().flat_map(|it| it.to_le_bytes()));
            }
            Self::Digests(digests) => {
                out.push(4);
                out.extend(digests.iter().flat_map(|it| it.to_le_bytes()));
            }
        }
    }

    /// Reads what [`Self::write`] has written for `rows` rows.
    pub(crate) fn read(from: &mut Reader<'_>, rows: u32) -> Option<Self> {
        let rows = rows as usize;
        Some(match from.byte()? {
            0 => Self::Unknown,
            kind @ (1 | 2) => {
                let best = from.byte().filter(|best| *best > 0)?;
                let count = rows.checked_mul(best.into())?;
                let each = |_| match kind {
                    1 => from.byte().map(u16::from),
                    _ => from.array().map(u16::from_le_bytes),
                };
                let classes = (0..count).map(each).collect::<Option<_>>()?;
                Self::Classes { best, classes }
            }
            3 => Self::Numbers((0..rows).map(|_| from.f32()).collect::<Option<_>>()?),
            4 => Self::Digests((0..rows).map(|_| from.u64()).collect::<Option<_>>()?),
            _ => return None,
        })
    }
}

fn width_of(classes: &[u16]) -> usize {
    match classes.iter().all(|class| *class <= u16::from(u8::MAX)) {
        true => 1,
        false => 2,
    }
}

/// The likeliest classes of each row. Of equals the first goes first, as in the scores at registration.
fn classes(output: &Tensor, width: usize, best: usize) -> Option<Prediction> {
    let is_vector = output.shape().last() == Some(&width);
    if !is_vector || width < best || width >= NO_CLASS.into() {
        return None;
    }
    let scores: Vec<f64> = convert::numbers(output)?
        .map(convert::Number::real)
        .collect();
    let mut classes = Vec::with_capacity(best * scores.len() / width);
    for row in scores.chunks_exact(width) {
        likeliest(row, best, &mut classes);
    }
    let best = u8::try_from(best).ok()?;
    Some(Prediction::Classes { best, classes })
}

fn likeliest(row: &[f64], best: usize, into: &mut Vec<u16>) {
    if row.iter().any(|score| score.is_nan()) {
        into.extend(std::iter::repeat_n(NO_CLASS, best));
        return;
    }
    let from = into.len();
    for _ in 0..best {
        let taken = into.get(from..).unwrap_or_default();
        let free = (0..row.len()).filter(|at| !taken.contains(&(*at as u16)));
        let greater = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
        let likeliest = free.reduce(greater).unwrap_or(NO_CLASS.into());
        into.push(likeliest as u16);
    }
}

fn numbers(output: &Tensor, width: usize) -> Option<Prediction> {
    let numbers = convert::numbers(output).filter(|_| width == 1)?;
    Some(Prediction::Numbers(
        numbers.map(|it| it.real() as f32).collect(),
    ))
}

fn digests(output: &Tensor, width: usize) -> Option<Prediction> {
    let digests = match output.data() {
        Data::Strings(texts) => {
            let texts: Vec<&[u8]> = texts.iter().collect();
            texts.chunks_exact(width).map(digest_of_texts).collect()
        }
        Data::Plain(_) => {
            let numbers: Vec<f64> = convert::numbers(output)?
                .map(convert::Number::real)
                .collect();
            numbers.chunks_exact(width).map(digest_of_numbers).collect()
        }
    };
    Some(Prediction::Digests(digests))
}

/// The digest of a row of texts.
pub(crate) fn digest_of_texts<T: AsRef<[u8]>>(texts: &[T]) -> u64 {
    let mut hasher = Sha256::new();
    for text in texts {
        let text = text.as_ref();
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    first_bytes(hasher)
}

/// The digest of a row of numbers. Zeros of both signs are the same.
pub(crate) fn digest_of_numbers(numbers: &[f64]) -> u64 {
    let mut hasher = Sha256::new();
    for number in numbers {
        hasher.update((number + 0.0).to_le_bytes());
    }
    first_bytes(hasher)
}

fn first_bytes(hasher: Sha256) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize()[..8]);
    u64::from_le_bytes(first)
}
