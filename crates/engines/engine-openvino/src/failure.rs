//! Converts OpenVINO's errors to the trait's.

use openvino::InferenceError;
use sextant_engine::Error;

/// Longest text that is kept of a message.
const MAX_MESSAGE: usize = 400;

/// The text before the names of operators that OpenVINO does not have.
const UNKNOWN: &str = "No conversion rule found for operations:";

/// The file was read, but OpenVINO cannot compute it.
const UNCONVERTED: &str = "OpConversionFailure";

/// Why a model could not be read or prepared.
pub(crate) fn load(error: &InferenceError) -> Error {
    let text = message(error);
    let said = error.message.as_deref().unwrap_or_default();
    if let Some(operators) = unknown_operators(said) {
        return Error::Unsupported(format!("operators `{operators}`"));
    }
    match said.contains(UNCONVERTED) {
        true => Error::Unsupported(text),
        false if is_allocation(&text) => Error::MemoryExceeded(text),
        false => Error::InvalidModel(text),
    }
}

/// Why a run failed.
pub(crate) fn run(error: &InferenceError) -> Error {
    let text = message(error);
    match is_allocation(&text) {
        true => Error::MemoryExceeded(text),
        false => Error::Failed(text),
    }
}

/// The library's message, without its place in the library's sources.
pub(crate) fn message(error: &InferenceError) -> String {
    let kind = error.kind.to_string();
    let said = error.message.as_deref().unwrap_or(&kind);
    let plain = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Exception from "));
    let line = plain.collect::<Vec<_>>().join(" ");
    let line = if line.is_empty() { kind } else { line };
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}

/// The operators in the message about those that are missing: `.. operations: Warp-17, ai.acme.Weft-1`.
fn unknown_operators(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(UNKNOWN)?;
    let line = rest.trim_start().lines().next()?.trim();
    (!line.is_empty()).then_some(line)
}

fn is_allocation(text: &str) -> bool {
    ["bad_alloc", "could not allocate", "Failed to allocate"]
        .iter()
        .any(|said| text.contains(said))
}

#[cfg(test)]
mod tests {
    use openvino::InferenceErrorKind;

    use super::*;

    #[test]
    fn places_in_sources_are_left_out() {
        let error = |message: Option<&str>| InferenceError {
            kind: InferenceErrorKind::GeneralError,
            message: message.map(str::to_owned),
        };
        let said =
            "Exception from src/core.cpp:97:\nException from src/frontend.cpp:59:\n\nit is bad\n";
        assert_eq!(message(&error(Some(said))), "it is bad");
        assert_eq!(message(&error(None)), message(&error(Some(""))));
    }

    #[test]
    fn missing_operators_are_named() {
        let said = "OpConversionFailure:\n-- No conversion rule found for operations: Warp-17, Weft-1\nTo help";
        assert_eq!(unknown_operators(said), Some("Warp-17, Weft-1"));
        assert_eq!(unknown_operators("it is bad"), None);
    }
}
