//! One life of a server: the requests to it, and the meaning of its faults.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_engine::{Error, Interrupt};

use crate::{
    child::Child,
    client::{Client, Fault, Limits, MAX_SMALL_BYTES, Payload, Reply},
    config::{Binary, Load, RemoteConfig, Source},
    manifest::Manifest,
    metadata::{self, ModelMetadata},
    runtime::spawn,
};

/// First and longest pause between two checks of a server that is not ready.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// Longest time of one check.
const LOOK: Duration = Duration::from_secs(5);

/// How long a broken connection may be noticed before the process's end.
const NEWS: Duration = Duration::from_millis(500);

/// The extension that says that tensors may be sent as bytes.
const BINARY_EXTENSION: &str = "binary_tensor_data";

/// One life of a server. A child process has many, one after the other.
pub(crate) struct Server {
    name: &'static str,
    client: Client,
    child: Option<Child>,
    /// Why it was given up.
    lost: OnceLock<String>,
    /// Number of handles of each model that was loaded through the repository.
    loaded: Mutex<BTreeMap<String, u64>>,
    config: RemoteConfig,
}

// === impl Server ===

impl Server {
    pub(crate) fn start(name: &'static str, config: &RemoteConfig) -> Result<Self, Error> {
        let (url, child) = match &config.source {
            Source::Address(url) => (url.clone(), None),
            Source::Command(program) => {
                let (url, child) = spawn(name, program)?;
                (url, Some(child))
            }
        };
        Ok(Self {
            name,
            client: Client::new(&url, config.headers.clone()),
            child,
            lost: OnceLock::new(),
            loaded: Mutex::default(),
            config: config.clone(),
        })
    }

    /// The id of its child process.
    pub(crate) fn child_id(&self) -> Option<u32> {
        let child = self.child.as_ref()?;
        child.wait_end(Duration::ZERO).is_none().then(|| child.id())
    }

    /// Whether it was not given up and its process, if it has one, has not ended.
    pub(crate) fn lives(&self) -> bool {
        let child = self.child.as_ref();
        let ended = child.is_some_and(|child| child.wait_end(Duration::ZERO).is_some());
        self.lost.get().is_none() && !ended
    }

    /// Checks, less and less often, until the server says that it is ready, or `interrupt` is raised.
    pub(crate) fn wait_ready(&self, time: Duration, interrupt: &Interrupt) -> Result<(), Error> {
        let deadline = Instant::now() + time;
        let [mut pause, longest] = PAUSES;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = left.clamp(PAUSES[0], LOOK);
            let seen = match self.client.get("/v2/health/ready", look) {
                Ok(reply) if reply.is_success() => return Ok(()),
                Ok(reply) => reply.refusal(),
                Err(fault) => describe(&fault, look),
            };
            if left.is_zero() {
                self.give_up("it did not become ready");
                return Err(self.unavailable(format!("it is not ready within {time:?}: {seen}")));
            }
            if interrupt.is_raised() {
                return Err(self.unavailable("the load was called off".to_owned()));
            }
            self.pause(pause.min(left))?;
            pause = (pause * 2).min(longest);
        }
    }

    /// Waits between two checks; the end of the process cuts the wait short.
    fn pause(&self, time: Duration) -> Result<(), Error> {
        match &self.child {
            None => thread::park_timeout(time),
            Some(child) => {
                if let Some(end) = child.wait_end(time) {
                    return Err(self.unavailable(format!("its process ended: {end}")));
                }
            }
        }
        Ok(())
    }

    fn unavailable(&self, reason: String) -> Error {
        Error::Unavailable {
            engine: self.name,
            reason,
        }
    }

    /// Whether tensors are sent as bytes.
    pub(crate) fn binary(&self) -> Result<bool, Error> {
        match self.config.binary {
            Binary::Always => Ok(true),
            Binary::Never => Ok(false),
            Binary::Auto => {
                let reply = self.get("/v2")?;
                // Not all servers describe themselves; all accept JSON.
                Ok(reply.is_success()
                    && metadata::extensions(&reply.json)
                        .iter()
                        .any(|name| name == BINARY_EXTENSION))
            }
        }
    }

    /// The server's description of a model.
    pub(crate) fn metadata(&self, manifest: &Manifest) -> Result<ModelMetadata, Error> {
        let reply = self.get(&manifest.path())?;
        self.refuse(manifest, &reply)?;
        metadata::read(&reply.json)
            .map_err(|reason| Error::InvalidModel(format!("runtime `{}`: {reason}", self.name)))
    }

    /// Whether the server says that the model is ready; a server that does not know the request says no, too.
    pub(crate) fn is_ready(&self, manifest: &Manifest) -> bool {
        let reply = self.client.get(&format!("{}/ready", manifest.path()), LOOK);
        reply.is_ok_and(|reply| reply.is_success())
    }

    /// Loads the model, unless another handle has loaded it or the runtime loads models itself.
    pub(crate) fn acquire(&self, manifest: &Manifest) -> Result<(), Error> {
        if self.config.load == Load::None {
            return Ok(());
        }
        // Held during the request: an unload must not overtake the load that follows it.
        let mut loaded = self.loaded.lock();
        if !loaded.contains_key(&manifest.model) {
            let reply = self.repository(&manifest.model, "load");
            let reply = reply.map_err(|fault| self.blame(&fault, self.config.ready_timeout))?;
            self.refuse(manifest, &reply)?;
        }
        *loaded.entry(manifest.model.clone()).or_default() += 1;
        Ok(())
    }

    /// The counterpart of [`Self::acquire`].
    pub(crate) fn release(&self, model: &str) {
        let mut loaded = self.loaded.lock();
        let Some(handles) = loaded.get_mut(model) else {
            return;
        };
        *handles -= 1;
        if *handles > 0 {
            return;
        }
        loaded.remove(model);
        if !self.lives() {
            return;
        }
        let reason = match self.repository(model, "unload") {
            Ok(reply) if reply.is_success() => return,
            Ok(reply) => reply.refusal(),
            Err(fault) => describe(&fault, self.config.ready_timeout),
        };
        tracing::warn!(runtime = self.name, model, "cannot be unloaded: {reason}");
    }

    fn repository(&self, model: &str, verb: &str) -> Result<Reply, Fault> {
        let limits = Limits {
            time: self.config.ready_timeout,
            bytes: MAX_SMALL_BYTES,
        };
        let path = format!("/v2/repository/models/{model}/{verb}");
        self.client.post(&path, &Payload::json("{}"), limits)
    }

    /// Runs a batch on the server.
    pub(crate) fn infer(&self, path: &str, payload: &Payload) -> Result<Reply, Error> {
        if let Some(reason) = self.lost.get() {
            return Err(Error::Gone(self.text(reason)));
        }
        let limits = Limits {
            time: self.config.request_timeout,
            bytes: self.config.max_response_bytes,
        };
        let reply = self.client.post(path, payload, limits);
        reply.map_err(|fault| self.blame(&fault, limits.time))
    }

    fn get(&self, path: &str) -> Result<Reply, Error> {
        let time = self.config.request_timeout;
        let reply = self.client.get(path, time);
        reply.map_err(|fault| self.blame(&fault, time))
    }

    /// The runtime cannot run a model that it refuses.
    fn refuse(&self, manifest: &Manifest, reply: &Reply) -> Result<(), Error> {
        let (name, model, refusal) = (self.name, &manifest.model, reply.refusal());
        match reply.status {
            200..300 => Ok(()),
            400..500 => Err(Error::Unsupported(format!(
                "runtime `{name}` does not offer `{model}`: {refusal}"
            ))),
            _ => Err(Error::Failed(format!(
                "runtime `{name}`, model `{model}`: {refusal}"
            ))),
        }
    }

    /// The error of a fault: whether the server is gone or only this batch failed. A child that does not answer is
    /// killed.
    fn blame(&self, fault: &Fault, time: Duration) -> Error {
        let text = describe(fault, time);
        match fault {
            Fault::Malformed(_) => Error::Failed(self.text(&text)),
            Fault::Timeout => {
                self.give_up(&text);
                Error::Lost(self.text(&text))
            }
            Fault::Refused(_) => match self.obituary() {
                Some(end) => Error::Gone(self.text(&format!("{text}; {end}"))),
                None => Error::Failed(self.text(&text)),
            },
            Fault::Transport(_) => match self.obituary() {
                Some(end) => Error::Lost(self.text(&format!("{text}; {end}"))),
                None => Error::Failed(self.text(&text)),
            },
        }
    }

    fn text(&self, reason: &str) -> String {
        format!("runtime `{}`: {reason}", self.name)
    }

    /// Why the server is gone, if it is.
    fn obituary(&self) -> Option<String> {
        match &self.child {
            Some(child) => {
                let end = child.wait_end(NEWS)?;
                let reason = self.lost.get();
                Some(
                    reason
                        .cloned()
                        .unwrap_or(format!("its process ended: {end}")),
                )
            }
            None => match self.client.get("/v2/health/ready", LOOK) {
                Ok(_) => None,
                Err(_) => Some("it is not ready any more".to_owned()),
            },
        }
    }

    /// Ends the child process, which may finish its present work.
    pub(crate) fn close(&self) {
        if let Some(child) = &self.child {
            self.lost
                .get_or_init(|| "its engine was dropped".to_owned());
            child.stop();
        }
    }

    /// Kills the child process. A server at an address goes on, because it serves others, too.
    fn give_up(&self, reason: &str) {
        if let Some(child) = &self.child {
            self.lost.get_or_init(|| reason.to_owned());
            child.kill();
        }
    }
}

fn describe(fault: &Fault, time: Duration) -> String {
    match fault {
        Fault::Timeout => format!("no answer within {time:?}"),
        Fault::Refused(reason) | Fault::Transport(reason) => {
            format!("the connection failed: {reason}")
        }
        Fault::Malformed(reason) => reason.clone(),
    }
}
