//! What others wrote, made fit for messages.

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

/// What an error's body says: the protocol's `error`, a problem document's `detail`, or its text.
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
