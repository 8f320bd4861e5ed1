//! Why a run failed, as one text that carries the code which a client sees.
//!
//! A batch and each part of it fail with a text. Most of what fails is the engine's complaint about the
//! inputs ([`Code::EngineFailed`]). What went past a limit, or took the engine's process with it, has its
//! code before the text. Whoever does not know of that shows the whole.

use sextant_types::Code;

/// Codes that stand before a text.
const NAMED: [Code; 3] = [
    Code::TimeExceeded,
    Code::MemoryExceeded,
    Code::EngineCrashed,
];

/// The text of a failure with this code.
pub fn write(code: Code, reason: &str) -> String {
    match NAMED.contains(&code) {
        true => format!("{}: {reason}", code.as_str()),
        false => reason.to_owned(),
    }
}

/// The code of a failure and the rest of its text.
pub fn read(text: &str) -> (Code, &str) {
    let named = text.split_once(": ").and_then(|(code, reason)| {
        let code = Code::parse(code).filter(|code| NAMED.contains(code))?;
        Some((code, reason))
    });
    named.unwrap_or((Code::EngineFailed, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_its_way_as_text() {
        for code in NAMED {
            let text = write(code, "it took: too long");
            assert_eq!(read(&text), (code, "it took: too long"));
        }
        let text = write(Code::EngineFailed, "index: out of range");
        assert_eq!(read(&text), (Code::EngineFailed, "index: out of range"));
        let foreign = "internal: not a code of a run";
        assert_eq!(read(foreign), (Code::EngineFailed, foreign));
    }
}
