//! A hostile server with a model, and an engine for it.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_engine::LoadedModel;
use sextant_engine_remote::{RemoteConfig, RemoteEngine, Source};

use crate::{
    hostile::{HostileServer, Reaction, answer},
    load::load,
};

pub const METADATA: &str = r#"{"name":"m","inputs":[{"name":"input","datatype":"FP32","shape":[-1,2]}],
    "outputs":[{"name":"output","datatype":"FP32","shape":[-1,2]}]}"#;

pub const GOOD: &str =
    r#"{"outputs":[{"name":"output","datatype":"FP32","shape":[1,2],"data":[3,4]}]}"#;

pub const MANIFEST: &str = r#"{"format":"sextant-remote/1","runtime":"hostile","model":"m"}"#;

/// The reactions to metadata and inference; the rest is answered well.
pub struct Script {
    metadata: Reaction,
    infer: Mutex<Reaction>,
}

impl Script {
    pub fn new(metadata: Reaction) -> Arc<Self> {
        Arc::new(Self {
            metadata,
            infer: Mutex::new(answer(200, GOOD)),
        })
    }

    pub fn will(&self, reaction: Reaction) {
        *self.infer.lock() = reaction;
    }

    fn respond(&self, line: &str) -> Reaction {
        let target = line.split(' ').nth(1).unwrap_or_default();
        match target {
            "/v2" => answer(200, r#"{"extensions":["binary_tensor_data"]}"#),
            "/v2/models/m" => self.metadata.clone(),
            "/v2/models/m/infer" => {
                let infer = self.infer.lock();
                infer.clone()
            }
            _ => answer(200, "{}"),
        }
    }
}

/// A server that acts by `script`, and an engine for it.
pub fn hostile(script: &Arc<Script>) -> (HostileServer, RemoteEngine) {
    let acting = Arc::clone(script);
    let server = HostileServer::start(Arc::new(move |line, _| acting.respond(line)));
    let mut config = RemoteConfig::new("hostile", Source::Address(server.address.clone()));
    config.ready_timeout = Duration::from_secs(20);
    config.request_timeout = Duration::from_secs(20);
    config.max_response_bytes = 1 << 20;
    let engine = RemoteEngine::new(config).expect("the configuration is good");
    (server, engine)
}

pub fn model(engine: &RemoteEngine) -> Arc<dyn LoadedModel> {
    load(engine, MANIFEST.into()).unwrap_or_else(|error| panic!("it cannot be loaded: {error}"))
}
