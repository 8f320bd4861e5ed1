//! Errors in the terms of JSON: the JSON reader's messages name Rust's types.

/// Phrases of the reader's messages, and their meaning for a person who writes JSON. Longer ones first.
const WORDS: [(&str, &str); 25] = [
    (
        "EOF while parsing a string",
        "the body ends within a string",
    ),
    ("EOF while parsing a list", "the body ends within an array"),
    (
        "EOF while parsing an object",
        "the body ends within an object",
    ),
    (
        "EOF while parsing a value",
        "the body ends where a value should be",
    ),
    ("expected ident", "expected `true`, `false` or `null`"),
    ("expected value", "expected a JSON value"),
    (
        "trailing characters",
        "something follows behind the JSON value",
    ),
    ("invalid type: unit value", "invalid type: null"),
    ("invalid type: sequence", "invalid type: an array"),
    ("invalid type: map", "invalid type: an object"),
    ("invalid type: floating point", "invalid type: number"),
    ("invalid type: integer", "invalid type: number"),
    ("invalid value: integer", "invalid value: number"),
    ("expected a borrowed string", "expected a string"),
    ("expected a sequence", "expected an array"),
    ("expected a map", "expected an object"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
    ("expected usize", "expected a whole number from 0 on"),
    ("expected u64", "expected a whole number from 0 on"),
    (
        "expected u32",
        "expected a whole number from 0 to 4294967295",
    ),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected i64", "expected a whole number"),
    (
        "expected a nonzero u32",
        "expected a whole number from 1 on",
    ),
    ("expected a boolean", "expected `true` or `false`"),
];

/// A reader's message in the terms of JSON.
pub(super) fn plain(said: &str) -> String {
    let mut text = WORDS.iter().fold(said.to_owned(), |text, (word, plain)| {
        text.replace(word, plain)
    });
    // `struct TargetsBody`, `enum OnInfeasible`, `tuple struct Text`: clients do not know these names.
    for (begin, plain) in [
        ("expected struct ", "expected an object"),
        ("expected tuple struct ", "expected a string"),
        ("expected enum ", "expected a string"),
    ] {
        if let Some(at) = text.find(begin) {
            let name = &text[at + begin.len()..];
            let length = name
                .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .unwrap_or(name.len());
            text.replace_range(at..at + begin.len() + length, plain);
        }
    }
    text
}

/// The path of a mistake, without the parts that have no name in JSON.
pub(super) fn place(path: &str) -> Option<String> {
    let known = path.trim_end_matches(['?', '.']);
    (!known.is_empty()).then(|| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_is_not_spoken() {
        for (said, wanted) in [
            (
                "invalid type: string \"5\", expected f64 at line 1 column 9",
                "invalid type: string \"5\", expected a number at line 1 column 9",
            ),
            (
                "invalid type: map, expected a sequence at line 2 column 1",
                "invalid type: an object, expected an array at line 2 column 1",
            ),
            (
                "invalid type: string \"x\", expected struct TargetsBody at line 1 column 3",
                "invalid type: string \"x\", expected an object at line 1 column 3",
            ),
            (
                "EOF while parsing a value at line 1 column 0",
                "the body ends where a value should be at line 1 column 0",
            ),
            (
                "expected ident at line 1 column 2",
                "expected `true`, `false` or `null` at line 1 column 2",
            ),
        ] {
            assert_eq!(plain(said), wanted);
        }
    }

    #[test]
    fn only_places_that_can_be_named_are() {
        assert_eq!(place("?"), None);
        assert_eq!(place("."), None);
        assert_eq!(place("targets.?").as_deref(), Some("targets"));
        assert_eq!(place("inputs[0].shape").as_deref(), Some("inputs[0].shape"));
    }
}
