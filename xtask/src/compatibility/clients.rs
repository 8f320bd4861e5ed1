//! Suites of calls by clients: each a script that prints one JSON object for each call.

use anyhow::{Result, bail};

use super::{Bed, Check};
use crate::provision::python;
use crate::server::Server;
use crate::shell;

const KSERVE: &str = include_str!("../../compatibility/kserve-requirements.txt");

// === impl Bed ===

impl Bed {
    /// Triton's clients: over HTTP in JSON and with binary tensors, over gRPC.
    pub(super) fn tritonclient(&self, server: &Server) -> Result<Vec<Check>> {
        let mut checks = Vec::new();
        for script in ["tritonclient_http.py", "tritonclient_grpc.py"] {
            checks.extend(calls("tritonclient", &self.python, script, server)?);
        }
        Ok(checks)
    }

    /// KServe's clients, REST and gRPC.
    pub(super) fn kserve(&self, server: &Server) -> Result<Vec<Check>> {
        let folder = self.provisioned.cache.join("python-kserve");
        let python = python::environment(&folder, KSERVE)?;
        calls("kserve", &python, "kserve_clients.py", server)
    }

    /// What generic gRPC tools do: list, describe and call with nothing but reflection.
    pub(super) fn reflection(&self, server: &Server) -> Result<Vec<Check>> {
        calls("reflection", &self.python, "reflection.py", server)
    }
}

fn calls(
    suite: &'static str,
    interpreter: &std::path::Path,
    script: &str,
    server: &Server,
) -> Result<Vec<Check>> {
    let script = format!("compatibility/{script}");
    let mut command = python::script(interpreter, &script);
    let output = shell::results(command.arg(server.address.to_string()))?;
    if !output.status.success() {
        bail!("`{script}` ended early");
    }
    let check = |said: &serde_json::Value| {
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        Some(Check {
            suite,
            name: format!("{} ({})", text("call")?, text("form")?),
            failure: text("failure"),
        })
    };
    let said = shell::objects(&output.stdout);
    Ok(said.iter().filter_map(check).collect())
}
