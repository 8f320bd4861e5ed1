//! The engine passes the conformance suite over the example's runtime, started by itself, with
//! tensors as bytes and as JSON.
//!
//! All properties of a form share one engine and its child process: nothing that one leaves behind
//! may disturb the next. The processes end with this one.

use std::sync::{Arc, OnceLock};

use sextant_engine::Engine;
use sextant_engine_remote::RemoteEngine;

#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/runtime.rs"]
mod runtime;

type Shared = OnceLock<RemoteEngine>;

fn engine(shared: &'static Shared, arguments: &[&str]) -> Arc<dyn Engine> {
    let start = || {
        let script = runtime::root().join("examples/remote-runtime/server.py");
        let config = runtime::script(&script.to_string_lossy(), arguments);
        RemoteEngine::new(config).expect("the configuration is good")
    };
    Arc::new(shared.get_or_init(start).clone())
}

mod binary {
    use std::sync::Arc;

    use sextant_engine::Engine;

    use super::{Shared, fixtures};

    fn engine() -> Arc<dyn Engine> {
        static SHARED: Shared = Shared::new();
        super::engine(&SHARED, &["--end-with-parent"])
    }

    sextant_engine::bind_conformance!(engine(), fixtures::fixtures());
}

mod json {
    use std::sync::Arc;

    use sextant_engine::Engine;

    use super::{Shared, fixtures};

    fn engine() -> Arc<dyn Engine> {
        static SHARED: Shared = Shared::new();
        super::engine(&SHARED, &["--end-with-parent", "--no-binary"])
    }

    sextant_engine::bind_conformance!(engine(), fixtures::fixtures());
}
