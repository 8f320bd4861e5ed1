//! The GPUs of this machine.

use std::sync::Arc;

use sextant_engine::Engine;

/// The GPU of that number, or all that are visible.
pub(super) fn open(ordinal: Option<u32>) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    let device = match ordinal {
        Some(ordinal) => format!("cuda:{ordinal}"),
        None => "cuda".to_owned(),
    };
    anyhow::bail!(
        "device `{device}` cannot be opened: this build has no CUDA engine; take it out of \
         `worker.devices`"
    )
}
