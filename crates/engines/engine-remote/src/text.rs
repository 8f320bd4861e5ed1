//! Makes text from other programs fit for messages.

/// Longest text that is kept of a message.
const MAX_MESSAGE: usize = 400;

/// One line without control characters, cut where it is long.
pub(crate) fn shorten(message: &str) -> String {
    let line = |text: &str| text.replace(char::is_control, " ");
    let message = message.trim();
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}..", line(&message[..end])),
        None => line(message),
    }
}

/// The message in an error's body: the protocol's `error`, a problem document's `detail`, or the
/// text.
pub(crate) fn of_error(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        error: Option<String>,
        detail: Option<String>,
    }
    let said = serde_json::from_slice::<ErrorBody>(body);
    let said = said.ok().and_then(|said| said.error.or(said.detail));
    match said {
        Some(text) => shorten(&text),
        None => shorten(&String::from_utf8_lossy(body)),
    }
}
