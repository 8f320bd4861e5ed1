//! Limits on the content of a `tokenizer.json`.
//!
//! It is read in the process that answers queries, and takes many times its size in memory: a token of one letter takes
//! eight bytes of the file and some hundred of memory, and each regular expression is compiled. So the file is scanned
//! first, without building anything. The files of known models have up to 1.8 million values (256,000 tokens and half a
//! million merges), few of which are outside of the model and the added tokens.

/// Most values: tokens, their numbers, merges and their parts.
const MOST_VALUES: u64 = 4 << 20;

/// Most values outside of the model and the added tokens; the regular expressions are among them.
const MOST_OTHERS: u64 = 512;

/// Greatest nesting of objects and lists.
const MOST_DEPTH: usize = 32;

/// Longest text: a token, or a regular expression.
const MOST_TEXT_BYTES: usize = 16 << 10;

/// The only text that is a table, and its greatest length.
const TABLE: &[u8] = b"precompiled_charsmap";
const MOST_TABLE_BYTES: usize = 4 << 20;

/// Bytes of memory that a value takes while the file is read.
const VALUE_BYTES: u64 = 128;

/// Number of copies of the texts that are held meanwhile.
const TEXTS: u64 = 2;

/// The state of the scan.
#[derive(Default)]
struct Look<'a> {
    depth: usize,
    values: u64,
    /// Number of values outside of the model and the added tokens.
    others: u64,
    /// The member of the top level that is being read.
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

/// Refuses a file that would take too much memory. The reader reports a file that is not JSON.
///
/// # Errors
/// What the file has too much of, as the end of a sentence.
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

/// The text that begins at `begin`, without its closing quotation mark.
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
