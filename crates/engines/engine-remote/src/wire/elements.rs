//! Elements of a tensor: a JSON list, flat or nested, or strings with their lengths.

use std::borrow::Cow;

use bytes::Bytes;
use half::{bf16, f16};
use sextant_types::{DataType, Texts, TextsBuilder};

use crate::text::shorten;

/// Elements in row-major order.
pub(crate) enum Elements {
    Plain(Vec<u8>),
    Strings(TextsBuilder),
}

/// Most lists around an element.
const MAX_DEPTH: usize = 32;

/// Reads at most `count` elements. `json` is a JSON value, so only its meaning is checked here.
/// Numbers are read exactly from their text, not converted from another type.
pub(crate) fn read(json: &str, data_type: DataType, count: usize) -> Result<Elements, String> {
    let mut elements = match data_type {
        DataType::Bytes => Elements::Strings(TextsBuilder::default()),
        _ => Elements::Plain(Vec::new()),
    };
    let (mut rest, mut depth, mut found) = (json.trim_start(), 0, 0);
    if !rest.starts_with('[') {
        return Err("has data that is not a list".to_owned());
    }
    while let Some(first) = rest.chars().next() {
        match first {
            '[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err("is nested too deeply".to_owned());
                }
            }
            ']' => depth -= 1,
            ',' | ' ' | '\t' | '\r' | '\n' => {}
            _ => {
                found += 1;
                if found > count {
                    return Err(format!("has more than the `{count}` elements of its shape"));
                }
                let (token, after) = rest.split_at(length(rest));
                elements.push(token, data_type)?;
                rest = after;
                continue;
            }
        }
        rest = &rest[1..];
    }
    if found < count {
        return Err(format!("has `{found}` elements, its shape `{count}`"));
    }
    Ok(elements)
}

/// Reads exactly `count` strings, each after its length in four bytes.
pub(crate) fn strings(bytes: &Bytes, count: usize) -> Result<Texts, String> {
    let mut rest = &bytes[..];
    let mut strings = TextsBuilder::with_capacity(count.min(bytes.len() / 4), bytes.len());
    while let Some(length) = rest.first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        let end = usize::try_from(length)
            .ok()
            .and_then(|it| it.checked_add(4));
        let end = end.filter(|end| *end <= rest.len());
        let end = end.ok_or("has a string that is longer than its data")?;
        if strings.len() == count {
            break;
        }
        let (text, after) = rest.split_at(end);
        strings.push(&text[4..]).map_err(|it| it.to_string())?;
        rest = after;
    }
    if strings.len() == count && rest.is_empty() {
        return Ok(strings.finish());
    }
    Err(format!("does not have the `{count}` strings of its shape"))
}

/// Length of the string or word at the beginning of `text`.
fn length(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'"') {
        let end = |byte: &u8| matches!(byte, b',' | b']' | b' ' | b'\t' | b'\r' | b'\n');
        return bytes.iter().position(end).unwrap_or(bytes.len());
    }
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

// === impl Elements ===

impl Elements {
    fn push(&mut self, token: &str, data_type: DataType) -> Result<(), String> {
        let bytes = match self {
            Self::Plain(bytes) => bytes,
            Self::Strings(strings) => {
                let string: Option<Cow<'_, str>> = serde_json::from_str(token).ok();
                let string = string.ok_or_else(|| wrong(token, data_type))?;
                return strings.push(string.as_bytes()).map_err(|it| it.to_string());
            }
        };
        plain(bytes, token, data_type).ok_or_else(|| wrong(token, data_type))
    }
}

fn wrong(token: &str, data_type: DataType) -> String {
    format!("has `{}` where {data_type} is due", shorten(token))
}

fn plain(bytes: &mut Vec<u8>, token: &str, data_type: DataType) -> Option<()> {
    match data_type {
        DataType::Bool => bytes.push(match token {
            "true" | "1" => 1,
            "false" | "0" => 0,
            _ => return None,
        }),
        DataType::Uint8 => bytes.push(token.parse().ok()?),
        DataType::Uint16 => bytes.extend(token.parse::<u16>().ok()?.to_le_bytes()),
        DataType::Uint32 => bytes.extend(token.parse::<u32>().ok()?.to_le_bytes()),
        DataType::Uint64 => bytes.extend(token.parse::<u64>().ok()?.to_le_bytes()),
        DataType::Int8 => bytes.extend(token.parse::<i8>().ok()?.to_le_bytes()),
        DataType::Int16 => bytes.extend(token.parse::<i16>().ok()?.to_le_bytes()),
        DataType::Int32 => bytes.extend(token.parse::<i32>().ok()?.to_le_bytes()),
        DataType::Int64 => bytes.extend(token.parse::<i64>().ok()?.to_le_bytes()),
        DataType::Fp16 => bytes.extend(half(token)?.to_le_bytes()),
        DataType::Bf16 => {
            let value = bf16::from_f64(token.parse().ok()?);
            bytes.extend(value.is_finite().then_some(value)?.to_le_bytes());
        }
        DataType::Fp32 => {
            let value: f32 = token.parse().ok()?;
            bytes.extend(value.is_finite().then_some(value)?.to_le_bytes());
        }
        DataType::Fp64 => {
            let value: f64 = token.parse().ok()?;
            bytes.extend(value.is_finite().then_some(value)?.to_le_bytes());
        }
        DataType::Bytes => return None,
    }
    Some(())
}

fn half(token: &str) -> Option<f16> {
    let value = f16::from_f64(token.parse().ok()?);
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(json: &str, count: usize) -> Result<Vec<f32>, String> {
        let Elements::Plain(bytes) = read(json, DataType::Fp32, count)? else {
            panic!("floats are plain");
        };
        let (chunks, _) = bytes.as_chunks::<4>();
        Ok(chunks.iter().map(|it| f32::from_le_bytes(*it)).collect())
    }

    #[test]
    fn lists_may_be_nested() {
        assert_eq!(floats("[1, 2.5, -3e0]", 3).unwrap(), [1.0, 2.5, -3.0]);
        assert_eq!(
            floats(" [ [1,2],\n[3,4] ] ", 4).unwrap(),
            [1.0, 2.0, 3.0, 4.0]
        );
        assert_eq!(floats("[]", 0).unwrap(), [0f32; 0]);
    }

    #[test]
    fn counts_types_and_sizes_are_checked() {
        for (json, count) in [
            ("[1]", 2),
            ("[1,2,3]", 2),
            ("7", 1),
            ("\"7\"", 1),
            ("[null]", 1),
            ("[true]", 1),
            ("[\"1\"]", 1),
            ("[1e39]", 1),
            ("[{}]", 1),
            ("{\"a\":[1]}", 1),
        ] {
            assert!(floats(json, count).is_err(), "{json}");
        }
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        assert!(floats(&deep, 1).is_err());
        assert!(read("[256]", DataType::Uint8, 1).is_err());
        assert!(read("[1.0]", DataType::Int32, 1).is_err());
        assert!(read("[2]", DataType::Bool, 1).is_err());
        assert!(read("[70000]", DataType::Fp16, 1).is_err());
    }

    #[test]
    fn strings_keep_escapes_and_brackets() {
        let json = r#"["a\"],", "é\\", ""]"#;
        let Ok(Elements::Strings(strings)) = read(json, DataType::Bytes, 3) else {
            panic!("strings");
        };
        let strings = strings.finish();
        assert!(strings.iter().eq(["a\"],", "é\\", ""].map(str::as_bytes)));
    }

    #[test]
    fn string_lengths_are_believed_only_within_the_data() {
        let good = Bytes::from_static(b"\x01\0\0\0a\0\0\0\0");
        let read = strings(&good, 2).unwrap();
        assert!(read.iter().eq(["a", ""].map(str::as_bytes)));
        for (bytes, count) in [
            (&b"\x01\0\0\0a\0\0\0\0"[..], 1),
            (b"\x01\0\0\0a", 2),
            (b"\xff\xff\xff\xffa", 1),
            (b"\x01\0\0", 1),
        ] {
            assert!(strings(&Bytes::copy_from_slice(bytes), count).is_err());
        }
    }
}
