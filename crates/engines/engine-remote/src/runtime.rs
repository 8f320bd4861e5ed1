//! A configured runtime and the lives of its server: starting it, finding it, and starting it
//! again.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
};

use parking_lot::Mutex;
use sextant_engine::{DeviceMemory, Error, Interrupt};

use crate::{
    child::Child,
    config::{LOCAL, PORT, Program, RemoteConfig},
    server::Server,
};

/// A configured runtime, and its server once it was needed.
pub(crate) struct Runtime {
    name: &'static str,
    config: RemoteConfig,
    current: Mutex<Option<Arc<Server>>>,
}

// === impl Runtime ===

impl Runtime {
    pub(crate) fn new(name: &'static str, config: RemoteConfig) -> Self {
        Self {
            name,
            config,
            current: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn memory(&self) -> DeviceMemory {
        self.config.memory
    }

    pub(crate) fn child_id(&self) -> Option<u32> {
        let current = self.current.lock();
        current.as_ref()?.child_id()
    }

    /// A ready server: the present one, or a new life of it. Other callers wait meanwhile.
    pub(crate) fn server(&self, interrupt: &Interrupt) -> Result<Arc<Server>, Error> {
        let mut current = self.current.lock();
        if let Some(server) = current.as_ref().filter(|server| server.lives()) {
            // A busy server may need the time of a batch to answer.
            let patience = self.config.ready_timeout.max(self.config.request_timeout);
            server.wait_ready(patience, interrupt)?;
            return Ok(Arc::clone(server));
        }
        *current = None;
        let server = Arc::new(Server::start(self.name, &self.config)?);
        server.wait_ready(self.config.ready_timeout, interrupt)?;
        *current = Some(Arc::clone(&server));
        Ok(server)
    }
}

impl Drop for Runtime {
    /// Models may outlive their engine, but the server does not.
    fn drop(&mut self) {
        if let Some(server) = self.current.lock().take() {
            server.close();
        }
    }
}

/// Starts the program on a free port; returns its address and its process.
pub(crate) fn spawn(name: &'static str, program: &Program) -> Result<(String, Child), Error> {
    let unavailable = |reason: String| Error::Unavailable {
        engine: name,
        reason,
    };
    let port = free_port().map_err(|error| unavailable(format!("no port is free: {error}")))?;
    let child = Child::start(name, program, port).map_err(|error| {
        let first = program.command.first().map(String::as_str);
        let first = first.unwrap_or_default();
        unavailable(format!("`{first}` cannot be started: {error}"))
    })?;
    let url = program.url.as_deref().unwrap_or(LOCAL);
    Ok((url.replace(PORT, &port.to_string()), child))
}

/// A port that is free now. Another process may take it before the child does; the child then fails
/// to start, and reports that.
fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
