//! Work for a thread that may block, stopped when nobody waits for it any more.

use crate::{Error, measure::Cancel};

/// Runs `work` on a thread of its own. When the returned future is dropped, `work` is told to
/// stop through its argument.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce(&Cancel) -> T + Send + 'static,
) -> Result<T, Error> {
    let guard = Guard(Cancel::default());
    let cancel = guard.0.clone();
    let result = tokio::task::spawn_blocking(move || work(&cancel)).await;
    result.map_err(|error| Error::Panicked(error.to_string()))
}

struct Guard(Cancel);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
