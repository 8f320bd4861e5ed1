//! Which engines of this machine load a model.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_engine::{Engine, LoadRequest};
use sextant_objects::digest_of;
use sextant_types::{Optimization, Precision};

use crate::serve::{engines, isolated};

/// An engine, and what keeps it from running a model.
pub(super) struct EngineCheck {
    name: String,
    trouble: Option<String>,
}

/// Has each engine load the model, in a process that the model may end.
pub(super) fn able(model: &Bytes) -> Vec<EngineCheck> {
    let all = engines::each().into_iter();
    let able = all.map(|(name, engine)| EngineCheck {
        name,
        trouble: match engine.and_then(isolated) {
            Err(missing) => Some(format!("{missing:#}")),
            Ok(engine) => load(&engine, model),
        },
    });
    able.collect()
}

/// Why an engine does not load it.
fn load(engine: &Arc<dyn Engine>, model: &Bytes) -> Option<String> {
    let request = LoadRequest {
        artefact: digest_of(model),
        model: model.clone().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    engine.load(&request).err().map(|error| error.to_string())
}

// === impl EngineCheck ===

impl EngineCheck {
    pub(super) fn document(&self) -> Value {
        json!({"name": self.name, "runs": self.trouble.is_none(), "reason": self.trouble})
    }

    pub(super) fn line(&self) -> String {
        match &self.trouble {
            None => format!("  {}  loads it\n", self.name),
            Some(trouble) => format!("  {}  does not: {}\n", self.name, trouble.trim()),
        }
    }
}
