//! Files of tokenizers that are made to do harm.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::json;
use sextant_transforms::{Error, Options, Transform};

use crate::WORDS;

/// Of a file of some megabytes gigabytes could be made: it is refused before anything is.
#[test]
fn tokenizers_of_which_too_much_would_be_made_are_refused() {
    let with = |old: &str, new: &str| {
        assert!(WORDS.contains(old));
        WORDS.replace(old, new)
    };
    let normalizer = |text: &str| with(r#"{"type":"Lowercase"}"#, text);
    let replace = |pattern: &str| {
        format!(r#"{{"type":"Replace","pattern":{{"Regex":"{pattern}"}},"content":"x"}}"#)
    };
    let many = vec![replace("a{1,999}b{1,999}"); 1000].join(",");
    let words: String = (0..5 << 20).map(|_| r#","a":5"#).collect();
    let cases = [
        (
            "nested",
            normalizer(&"[".repeat(100_000)),
            "is nested more than 32 times",
        ),
        (
            "an expression of a megabyte",
            normalizer(&replace(&"(a|b)".repeat(200_000))),
            "an expression has at most 16384",
        ),
        (
            "an expression under another spelling of its name",
            normalizer(&replace(&"(a|b)".repeat(200_000)).replace("Regex", r"\u0052egex")),
            "an expression has at most 16384",
        ),
        (
            "a thousand expressions",
            normalizer(&format!(r#"{{"type":"Sequence","normalizers":[{many}]}}"#)),
            "has more than 512 values outside of `model` and `added_tokens`",
        ),
        (
            "five million words",
            with(r#""film":4"#, &format!(r#""film":4{words}"#)),
            "has more than 4194304 values",
        ),
        (
            "an expression that is large once it is compiled",
            normalizer(&replace("((a{1000}){1000}){1000}")),
            "is no `tokenizer.json`",
        ),
    ];
    let options: Options =
        serde_json::from_value(json!({"tokenize": {"tokenizer": "t.json"}})).expect("options");
    for (name, file, wanted) in cases {
        let files = [("t.json".to_owned(), Bytes::from(file))].into();
        let made = Transform::new(&options, &files, &BTreeSet::new());
        let Err(Error::File { why, .. }) = made else {
            panic!("{name} is taken");
        };
        assert!(why.contains(wanted), "{name}: {why}");
    }
    let files = [("t.json".to_owned(), Bytes::from(WORDS))].into();
    let memory = options.memory_to_read(&files);
    assert!(
        memory > 100 * 128 && memory < 200 * 128 + 3 * 2048,
        "{memory}"
    );
}
