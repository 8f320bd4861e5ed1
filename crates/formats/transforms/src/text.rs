//! Sentences as token ids, by the `tokenizer.json` that a model was trained with.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sextant_types::{DataType, NamedTensor, Signature};
use tokenizers::{
    EncodeInput, Encoding, PaddingParams, PaddingStrategy, Tokenizer, TruncationParams,
};

use crate::{Error, check_size, named, numbers, spec};

/// Most tokens of a sentence.
const MOST_TOKENS: usize = 65_536;

/// Most bytes of one sentence.
const MOST_TEXT_BYTES: usize = 1 << 20;

/// Bytes that a tokenizer takes for each byte of text: a token may be as short, and has a text, places and ids.
const TIMES: u64 = 128;

/// Bytes that it takes for a sentence beside these.
const SENTENCE_BYTES: u64 = 1024;

/// How sentences become token ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenizeOptions {
    /// The path of the `tokenizer.json` in the artefact store.
    pub tokenizer: String,
    /// Longer sentences are cut after so many tokens, special ones included. Left out: as the file says.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// How long the rows become.
    #[serde(default)]
    pub pad_to: PadTo,
    /// Whether the tokens that the model's form wants, such as `[CLS]`, are added.
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
    special_tokens: bool,
    /// The length of all rows, where it is fixed.
    length: Option<usize>,
    /// Whether it takes pairs of sentences.
    pairs: bool,
}

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
        let tokenizer = Tokenizer::from_bytes(file);
        let mut tokenizer =
            tokenizer.map_err(|error| fail(format!("is no `tokenizer.json`: {error}")))?;
        if options
            .max_tokens
            .is_some_and(|most| !(1..=MOST_TOKENS).contains(&most))
        {
            return Err(invalid("max_tokens", "is 1 to 65536"));
        }
        let most = options
            .max_tokens
            .or(tokenizer.get_truncation().map(|it| it.max_length));
        let truncation = TruncationParams {
            max_length: most.unwrap_or(MOST_TOKENS),
            ..tokenizer.get_truncation().cloned().unwrap_or_default()
        };
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
        let padding = PaddingParams {
            strategy: length.map_or(PaddingStrategy::BatchLongest, PaddingStrategy::Fixed),
            ..tokenizer.get_padding().cloned().unwrap_or_default()
        };
        tokenizer.with_padding(Some(padding));
        Ok(Self {
            tokenizer,
            special_tokens: options.special_tokens,
            length,
            pairs,
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
                .into(),
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
        let length = encoded
            .first()
            .map_or(self.length.unwrap_or(0), Encoding::len);
        let shape = vec![encoded.len(), length];
        check_size("input_ids", &shape, 3 * 8)?;
        let column = |name, of: fn(&Encoding) -> &[u32]| {
            let values = encoded
                .iter()
                .flat_map(|row| of(row).iter().map(|id| i64::from(*id)));
            numbers::tensor(name, shape.clone(), &values.collect::<Vec<i64>>())
        };
        Ok(vec![
            column("input_ids", Encoding::get_ids)?,
            column("attention_mask", Encoding::get_attention_mask)?,
            column("token_type_ids", Encoding::get_type_ids)?,
        ])
    }
}

/// Bytes that sentences take while they are tokenised.
pub(crate) fn needs_bytes(inputs: &[NamedTensor]) -> u64 {
    let texts = inputs.iter().filter_map(|input| input.tensor.texts());
    // A longer one is refused before it is read.
    let bytes = texts.flat_map(|texts| texts.iter().map(|text| text.len().min(MOST_TEXT_BYTES)));
    bytes
        .map(|bytes| TIMES * bytes as u64 + SENTENCE_BYTES)
        .sum()
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
