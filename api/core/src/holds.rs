//! Names that stay loaded: each is asked from time to time by a synthetic query.

use std::collections::HashMap;

use parking_lot::Mutex;
use sextant_types::Code;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::problem::Problem;

/// Most names that are held.
const MOST_HELD: usize = 4096;

/// The names that are held.
#[derive(Default)]
pub struct Holds(Mutex<HashMap<String, DropGuard>>);

// === impl Holds ===

impl Holds {
    /// Asks for a name until it is released or `end` is cancelled. It replaces the task that asked for the name before.
    ///
    /// # Errors
    ///
    /// Too many names are held.
    pub fn hold(
        &self,
        name: String,
        end: CancellationToken,
        asking: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Problem> {
        let mut held = self.0.lock();
        if held.len() >= MOST_HELD && !held.contains_key(&name) {
            let detail = format!("`{MOST_HELD}` names are held already: unload some");
            return Err(Problem::new(Code::Overloaded, detail));
        }
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = end.cancelled() => {}
                () = asking => {}
            }
        });
        held.insert(name, stop.drop_guard());
        Ok(())
    }

    /// Releases a name.
    pub fn release(&self, name: &str) {
        self.0.lock().remove(name);
    }
}
