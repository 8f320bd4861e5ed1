//! What a `tokenizer.json` may hold.
//!
//! It is read where queries are answered, and what is made of its bytes takes many times as much: a token of one letter
//! takes eight bytes of the file and some hundred of memory, and each expression is compiled. So the file is looked over
//! first, without anything being made of it. Those of known models have up to 1.8 million values (256,000 tokens and half
//! a million merges), few of which are outside of the model and the added tokens.

/// Most values: tokens, their numbers, merges and their parts.
const MOST_VALUES: u64 = 4 << 20;

/// Most values outside of the model and the added tokens, where the expressions are.
const MOST_OTHERS: u64 = 512;

/// Most objects and lists in each other.
const MOST_DEPTH: usize = 32;

/// Longest text: a token, or an expression.
const MOST_TEXT_BYTES: usize = 16 << 10;

/// The one text that is a table, and the longest that it may be.
const TABLE: &[u8] = b"precompiled_charsmap";
const MOST_TABLE_BYTES: usize = 4 << 20;

/// Bytes that a value takes while the file is read.
const VALUE_BYTES: u64 = 128;

/// How often texts are held meanwhile.
const TEXTS: u64 = 2;

/// What was seen of a file so far.
#[derive(Default)]
struct Look<'a> {
    depth: usize,
    values: u64,
    /// Those outside of the model and the added tokens.
    others: u64,
    /// The member of the whole that is being read.
    section: &'a [u8],
    /// The last text.
    text: &'a [u8],
    /// The name of the member that is being read.
    key: &'a [u8],
}

/// Bytes of memory that a file may take while it is read.
pub(crate) fn memory_to_read(file: &[u8]) -> u64 {
    let is_value = |byte: &&u8| matches!(byte, b',' | b':' | b'[' | b'{');
    let values = file.iter().filter(is_value).count() as u64;
    let texts = TEXTS.saturating_mul(file.len() as u64);
    values.saturating_mul(VALUE_BYTES).saturating_add(texts)
}

/// Refuses a file of which too much would be made. What is no JSON is said by whoever reads it.
///
/// # Errors
/// What it has too much of, as the end of a sentence.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    let mut look = Look::default();
    let mut at = 0;
    while let Some(byte) = file.get(at) {
        at += 1;
        if *byte == b'"' {
            let text = text_at(file, at);
            at += text.len() + 1;
            look.text(text)?;
        } else {
            look.sign(*byte)?;
        }
    }
    Ok(())
}

/// The text that begins there, without the sign at its end.
fn text_at(file: &[u8], begin: usize) -> &[u8] {
    let rest = file.get(begin..).unwrap_or_default();
    let mut is_escaped = false;
    let end = rest.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

// === impl Look ===

impl<'a> Look<'a> {
    fn text(&mut self, text: &'a [u8]) -> Result<(), String> {
        let most = match self.key == TABLE {
            true => MOST_TABLE_BYTES,
            false => MOST_TEXT_BYTES,
        };
        if text.len() > most {
            return Err(format!(
                "has a text of {} bytes: a token or an expression has at most {most}",
                text.len()
            ));
        }
        self.text = text;
        Ok(())
    }

    fn sign(&mut self, byte: u8) -> Result<(), String> {
        match byte {
            b'[' | b'{' => {
                self.depth += 1;
                self.key = &[];
                self.value()?;
            }
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            b',' => {
                self.key = &[];
                self.value()?;
            }
            b':' => {
                self.key = self.text;
                if self.depth == 1 {
                    self.section = self.text;
                }
                self.value()?;
            }
            _ => {}
        }
        match self.depth > MOST_DEPTH {
            true => Err(format!("is nested more than {MOST_DEPTH} times")),
            false => Ok(()),
        }
    }

    fn value(&mut self) -> Result<(), String> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(format!("has more than {MOST_VALUES} values"));
        }
        if !matches!(self.section, b"model" | b"added_tokens") {
            self.others += 1;
        }
        match self.others > MOST_OTHERS {
            true => Err(format!(
                "has more than {MOST_OTHERS} values outside of `model` and `added_tokens`"
            )),
            false => Ok(()),
        }
    }
}
