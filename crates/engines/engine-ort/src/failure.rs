//! Converts ONNX Runtime's errors to the trait's.

use ort::ErrorCode;
use sextant_engine::Error;

/// Longest text that is kept of a message.
const MAX_MESSAGE: usize = 400;

/// Why a session could not be created.
pub(crate) fn load<R>(error: &ort::Error<R>) -> Error {
    let message = shorten(error.message());
    if let Some(operator) = missing_operator(error.message()) {
        return Error::Unsupported(format!("operator `{operator}` ({message})"));
    }
    match error.code() {
        ErrorCode::NotImplemented => Error::Unsupported(message),
        ErrorCode::EngineError
        | ErrorCode::RuntimeException
        | ErrorCode::ExecutionProviderFailure => Error::Failed(message),
        _ => Error::InvalidModel(message),
    }
}

/// Why a run failed.
pub(crate) fn run(error: &ort::Error) -> Error {
    let message = shorten(error.message());
    match error.code() {
        ErrorCode::InvalidArgument => Error::InvalidInput(message),
        _ if is_allocation(&message) => Error::MemoryExceeded(message),
        _ => Error::Failed(message),
    }
}

/// Whether an allocation was refused: by the system, or by the runtime because the size of a buffer does not fit a
/// number.
pub(crate) fn is_allocation(message: &str) -> bool {
    [
        "bad_alloc",
        "Failed to allocate memory",
        "bad_array_new_length",
    ]
    .iter()
    .any(|said| message.contains(said))
}

/// The operator in the messages of ONNX Runtime about operators it does not have:
/// `.. : No Op registered for Foo with domain_version of 17`,
/// `Fatal error: domain:Foo(-1) is not a registered function/op`,
/// `Could not find an implementation for Foo(13) node with name 'x'`.
fn missing_operator(message: &str) -> Option<String> {
    if let Some((_, rest)) = message.split_once("No Op registered for ") {
        return word(rest);
    }
    if let Some((_, rest)) = message.split_once("Could not find an implementation for ") {
        return word(rest);
    }
    let (before, _) = message.split_once(" is not a registered function/op")?;
    let qualified = before.rsplit(char::is_whitespace).next()?;
    word(qualified.rsplit(':').next()?)
}

fn word(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
        .unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The message in one line, cut if it is long.
pub(crate) fn shorten(message: &str) -> String {
    let line = message.trim().replace('\n', " ");
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_in_messages() {
        let cases = [
            (
                "Could not find an implementation for ConvInteger(10) node with name 'c'",
                "ConvInteger",
            ),
            (
                "Fatal error: ai.acme:Warp(-1) is not a registered function/op",
                "Warp",
            ),
            ("Fatal error: Warp is not a registered function/op", "Warp"),
            (
                "In Node, (\"\", Warp, \"\", -1) : ..., Error No Op registered for Warp with \
                 domain_version of 17",
                "Warp",
            ),
        ];
        for (message, operator) in cases {
            assert_eq!(missing_operator(message).as_deref(), Some(operator));
        }
        assert_eq!(missing_operator("Protobuf parsing failed."), None);
    }
}
