//! ONNX Runtime's errors as the trait's.

use ort::ErrorCode;
use sextant_engine::Error;
use sextant_types::NamedTensor;

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

/// The error of a run whose inputs are at fault where one of them has no elements: operators that need some say so in
/// words of their own, and only when they run.
pub(crate) fn of_inputs(error: Error, inputs: &[NamedTensor]) -> Error {
    let empty = inputs.iter().find(|input| input.tensor.is_empty());
    match (error, empty) {
        (Error::Failed(_), Some(input)) => Error::InvalidInput(format!(
            "input `{}` has no elements, and the model needs some",
            input.name
        )),
        (error, _) => error,
    }
}

/// Whether an allocation was refused: by the system, or by the runtime where the size of a buffer does
/// not fit a number.
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

/// The message in one line, not endless.
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
    use sextant_types::Tensor;

    #[test]
    fn inputs_without_elements_are_at_fault() {
        let tensor = |shape: Vec<usize>| {
            let values = vec![0i64; shape.iter().product()];
            NamedTensor::new(
                "ids",
                Tensor::from_elements(shape, &values).expect("it fits"),
            )
        };
        let failed = || Error::Failed("attention.cc:42 sequence_length > 0 was false".to_owned());
        let [empty, full] = [vec![1, 0], vec![1, 2]].map(tensor);
        let wanted =
            Error::InvalidInput("input `ids` has no elements, and the model needs some".to_owned());
        assert_eq!(
            of_inputs(failed(), &[full.clone(), empty.clone()]).to_string(),
            wanted.to_string()
        );
        assert_eq!(
            of_inputs(failed(), &[full]).to_string(),
            failed().to_string()
        );
        let memory = || Error::MemoryExceeded("too much".to_owned());
        assert_eq!(
            of_inputs(memory(), &[empty]).to_string(),
            memory().to_string()
        );
    }

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
