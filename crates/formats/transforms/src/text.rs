//! Sentences as token ids, by the `tokenizer.json` with which a model was trained.

use std::{collections::BTreeMap, iter::repeat_n};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature};
use tokenizers::{
    EncodeInput, Encoding, PaddingDirection, PaddingParams, PostProcessor, Tokenizer,
    TruncationDirection, TruncationParams,
};

use crate::{Error, check_size, named, numbers, spec};

mod file;

pub(crate) use file::memory_to_read;

/// Most tokens of a sentence.
const MOST_TOKENS: usize = 65_536;

/// Most bytes of one sentence.
const MOST_TEXT_BYTES: usize = 1 << 20;

/// Bytes of memory that a tokenizer takes for each byte of text: a token may be one byte, and has a text, offsets and
/// ids.
const TIMES: u64 = 128;

/// The least such number if long sentences become several rows: half of a row may be repeated, and each row has the
/// added tokens.
const WINDOW_TIMES: u64 = 6;

/// Bytes that it takes for a sentence in addition to these, and to those of the added tokens.
const SENTENCE_BYTES: u64 = 1024;

/// How sentences become token ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenizeOptions {
    /// The path of the `tokenizer.json` in the artefact store.
    pub tokenizer: String,
    /// Longer sentences are cut after so many tokens, including special ones. If it is left out, the file
    /// says the number.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// Longer sentences become several rows, each of which repeats so many tokens of the row before: none
    /// with 0, at most half of the tokens that a row can have. If it is left out, longer sentences are cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<usize>,
    /// How long the rows become.
    #[serde(default)]
    pub pad_to: PadTo,
    /// Whether special tokens of the model, such as `[CLS]`, are added.
    #[serde(default = "yes")]
    pub special_tokens: bool,
}

/// How long the rows of a query become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PadTo {
    /// As the longest of the query.
    #[default]
    Longest,
    /// As `max_tokens` says.
    MaxTokens,
}

fn yes() -> bool {
    true
}

/// The transform.
pub(crate) struct Tokenize {
    tokenizer: Tokenizer,
    /// The padding of rows, and its side.
    padding: PaddingParams,
    special_tokens: bool,
    /// The length of all rows, if it is fixed.
    length: Option<usize>,
    /// Whether its input is pairs of sentences.
    pairs: bool,
    /// Whether a sentence may become several rows.
    windows: bool,
    /// Memory of a sentence's rows as a multiple of the sentence.
    times: u64,
    /// Number of tokens that are added to each row.
    added: u64,
}

/// The name of the output that gives the text of each row.
pub(crate) const TEXT_INDEX: &str = "text_index";

fn invalid(option: &'static str, why: impl Into<String>) -> Error {
    Error::Option {
        option,
        why: why.into(),
    }
}

// === impl Tokenize ===

impl Tokenize {
    pub fn new(
        options: &TokenizeOptions,
        files: &BTreeMap<String, Bytes>,
        pairs: bool,
    ) -> Result<Self, Error> {
        let fail = |why: String| Error::File {
            path: options.tokenizer.clone(),
            why,
        };
        let file = files.get(&options.tokenizer);
        let file = file.ok_or_else(|| fail("is not in the artefact store".to_owned()))?;
        file::check(file).map_err(fail)?;
        let tokenizer = Tokenizer::from_bytes(file);
        let mut tokenizer =
            tokenizer.map_err(|error| fail(format!("is no `tokenizer.json`: {error}")))?;
        let most = options
            .max_tokens
            .or(tokenizer.get_truncation().map(|it| it.max_length));
        let truncation = truncation(&tokenizer, options, most, pairs)?;
        let set = tokenizer.with_truncation(Some(truncation));
        set.map_err(|error| {
            invalid(
                "max_tokens",
                format!("is refused by the tokenizer: {error}"),
            )
        })?;
        let length = match options.pad_to {
            PadTo::Longest => None,
            PadTo::MaxTokens => {
                let without = || invalid("pad_to", "is `max_tokens`, and there is no `max_tokens`");
                Some(most.ok_or_else(without)?)
            }
        };
        let added = added(&tokenizer, pairs);
        let times = options.overlap.zip(most).map_or(1, |(overlap, most)| {
            let new = most.saturating_sub(added).saturating_sub(overlap);
            WINDOW_TIMES.max(most.div_ceil(new.max(1)) as u64)
        });
        let padding = tokenizer.get_padding().cloned().unwrap_or_default();
        // The tokenizer would pad rows before it is known whether they may be so long.
        tokenizer.with_padding(None);
        Ok(Self {
            tokenizer,
            padding,
            special_tokens: options.special_tokens,
            length,
            pairs,
            windows: options.overlap.is_some(),
            times,
            added: if options.special_tokens {
                added as u64
            } else {
                0
            },
        })
    }

    pub fn signature(&self) -> Signature {
        let length = self.length.map_or(-1, |length| length as i64);
        let text = |name| spec(name, DataType::Bytes, &[-1]);
        let ids = |name| spec(name, DataType::Int64, &[-1, length]);
        let pair = self.pairs.then(|| text("pair"));
        Signature {
            inputs: [text("text")].into_iter().chain(pair).collect(),
            outputs: ["input_ids", "attention_mask", "token_type_ids"]
                .map(ids)
                .into_iter()
                .chain(
                    self.windows
                        .then(|| spec(TEXT_INDEX, DataType::Int64, &[-1])),
                )
                .collect(),
            batched: false,
        }
    }

    pub fn apply(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, Error> {
        let texts = sentences(inputs, "text")?;
        let rows: Vec<EncodeInput<'_>> = match self.pairs {
            false => texts.into_iter().map(EncodeInput::from).collect(),
            true => {
                let pairs = sentences(inputs, "pair")?;
                if pairs.len() != texts.len() {
                    let why = format!("has {} rows, and `text` has {}", pairs.len(), texts.len());
                    return Err(Error::Input { input: "pair", why });
                }
                texts
                    .into_iter()
                    .zip(pairs)
                    .map(EncodeInput::from)
                    .collect()
            }
        };
        let encoded = self.tokenizer.encode_batch(rows, self.special_tokens);
        let encoded = encoded.map_err(|error| Error::Input {
            input: "text",
            why: format!("cannot be tokenised: {error}"),
        })?;
        let rows: Vec<(usize, &Encoding)> = match self.windows {
            true => windows(&encoded).collect(),
            false => encoded.iter().enumerate().collect(),
        };
        let length = self.length_of(&rows);
        let shape = vec![rows.len(), length];
        check_size("input_ids", &shape, 3 * 8)?;
        let column = |name, fill: u32, of: fn(&Encoding) -> &[u32]| {
            let values = rows.iter().map(|(_, row)| of(row)).flat_map(|row| {
                let missing = length.saturating_sub(row.len());
                let (before, behind) = match self.padding.direction {
                    PaddingDirection::Left => (missing, 0),
                    PaddingDirection::Right => (0, missing),
                };
                let before = repeat_n(fill, before).chain(row.iter().copied());
                before.chain(repeat_n(fill, behind)).map(i64::from)
            });
            numbers::tensor(name, shape.clone(), &values.collect::<Vec<i64>>())
        };
        let (id, kind) = (self.padding.pad_id, self.padding.pad_type_id);
        let mut outputs = vec![
            column("input_ids", id, Encoding::get_ids)?,
            column("attention_mask", 0, Encoding::get_attention_mask)?,
            column("token_type_ids", kind, Encoding::get_type_ids)?,
        ];
        if self.windows {
            let texts: Vec<i64> = rows.iter().map(|(text, _)| *text as i64).collect();
            outputs.push(numbers::tensor(TEXT_INDEX, vec![rows.len()], &texts)?);
        }
        Ok(outputs)
    }

    /// The length of these rows.
    fn length_of(&self, rows: &[(usize, &Encoding)]) -> usize {
        if let Some(length) = self.length {
            return length;
        }
        let lengths = rows.iter().map(|(_, row)| row.len());
        let longest = lengths.max().unwrap_or(0);
        match self.padding.pad_to_multiple_of {
            None | Some(0) => longest,
            Some(multiple) => longest
                .checked_next_multiple_of(multiple)
                .unwrap_or(usize::MAX),
        }
    }

    /// Bytes of memory that sentences take while they are tokenised.
    pub fn needs_bytes(&self, inputs: &[NamedTensor]) -> u64 {
        let texts = inputs.iter().filter_map(|input| input.tensor.texts());
        // A longer sentence is refused before it is read.
        let bytes =
            texts.flat_map(|texts| texts.iter().map(|text| text.len().min(MOST_TEXT_BYTES)));
        let beside = SENTENCE_BYTES + TIMES * self.added;
        let all: u64 = bytes.map(|bytes| TIMES * bytes as u64 + beside).sum();
        all.saturating_mul(self.times)
    }
}

/// Number of tokens that the file adds to each row.
fn added(tokenizer: &Tokenizer, pairs: bool) -> usize {
    let added = tokenizer.get_post_processor();
    added.map_or(0, |it| it.added_tokens(pairs))
}

/// Where sentences are cut, and how many tokens the next row repeats.
fn truncation(
    tokenizer: &Tokenizer,
    options: &TokenizeOptions,
    most: Option<usize>,
    pairs: bool,
) -> Result<TruncationParams, Error> {
    let added = added(tokenizer, pairs);
    if most.is_some_and(|most| most <= added || most > MOST_TOKENS) {
        let why = format!(
            "is {} to {MOST_TOKENS}: `{added}` tokens are added to each sentence",
            added + 1
        );
        return Err(invalid("max_tokens", why));
    }
    let of_file = tokenizer.get_truncation().cloned().unwrap_or_default();
    let max_length = most.unwrap_or(MOST_TOKENS);
    let Some(overlap) = options.overlap else {
        return Ok(TruncationParams {
            max_length,
            ..of_file
        });
    };
    if pairs {
        return Err(invalid(
            "overlap",
            "is for texts alone, and `pair` is mapped",
        ));
    }
    let room = most.map(|most| most - added);
    let room = room.ok_or_else(|| invalid("overlap", "needs `max_tokens`"))?;
    if overlap > room / 2 {
        let why = format!(
            "is at most `{}`: a row has room for `{room}` tokens of a text",
            room / 2
        );
        return Err(invalid("overlap", why));
    }
    Ok(TruncationParams {
        max_length,
        stride: overlap,
        direction: TruncationDirection::Right,
        ..of_file
    })
}

/// The rows of all texts, with the number of each row's text.
fn windows(encoded: &[Encoding]) -> impl Iterator<Item = (usize, &Encoding)> {
    let numbered = encoded.iter().enumerate();
    numbered.flat_map(|(text, first)| {
        let all = std::iter::once(first).chain(first.get_overflowing());
        all.map(move |row| (text, row))
    })
}

/// The rows of an input of texts.
fn sentences(inputs: &[NamedTensor], input: &'static str) -> Result<Vec<String>, Error> {
    let rows = numbers::strings(input, named(inputs, input)?)?;
    let rows = rows.iter().enumerate().map(|(row, text)| {
        let fail = |why: String| Error::Row { input, row, why };
        if text.len() > MOST_TEXT_BYTES {
            return Err(fail(format!(
                "has {} bytes: at most {MOST_TEXT_BYTES} are taken",
                text.len()
            )));
        }
        let text = std::str::from_utf8(text).map(str::to_owned);
        text.map_err(|error| fail(format!("is not UTF-8: {error}")))
    });
    rows.collect()
}
