//! Common code of benchmarks of a running service: the binary, models, a folder, and starting services and sending load
//! to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::Arguments;
use crate::provision::{Provisions, tools};
use crate::server::{self, Server};
use crate::{models, paths, shell};

/// The things that all parts of an experiment use.
pub struct Bench<'a> {
    /// The arguments of the command.
    pub arguments: &'a Arguments,
    /// The provisions of the machine.
    pub provisioned: Provisions,
    /// The program `sextant`, in release.
    pub binary: PathBuf,
    /// Models with random weights.
    pub models: PathBuf,
    /// Working folder, empty at the start.
    pub folder: PathBuf,
}

impl<'a> Bench<'a> {
    /// Builds what is measured; `folder` is the working folder's name.
    pub fn prepare(
        arguments: &'a Arguments,
        provisioned: Provisions,
        folder: &str,
    ) -> Result<Self> {
        tools::wrk()?;
        Self::prepare_without_wrk(arguments, provisioned, folder)
    }

    /// The same for experiments that send all queries themselves.
    pub fn prepare_without_wrk(
        arguments: &'a Arguments,
        provisioned: Provisions,
        folder: &str,
    ) -> Result<Self> {
        let binary = server::build()?;
        let models = models::write(&provisioned.python, &["mlp", "emulated", "resnet18"])?;
        let folder = paths::empty_target(folder)?;
        Ok(Self {
            arguments,
            provisioned,
            binary,
            models,
            folder,
        })
    }

    /// `sextant serve` on a free port over the data folder `name`, and where it will listen.
    pub fn command(&self, name: &str, settings: &[&str]) -> Result<(Command, SocketAddr)> {
        self.command_at(None, name, settings)
    }

    /// The same at `at`, or at a free address.
    pub fn command_at(
        &self,
        at: Option<SocketAddr>,
        name: &str,
        settings: &[&str],
    ) -> Result<(Command, SocketAddr)> {
        let address = at.map_or_else(server::free_address, Ok)?;
        let data = self.folder.join(name);
        let mut command = server::sextant(&self.binary, &self.provisioned, address, &data);
        command.args(["--log-level", "warn"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        Ok((command, address))
    }

    /// Starts Sextant with an empty data folder. With `worker.cores=1` among the settings it runs one batch at a time
    /// on one thread, as the servers that it is compared with do.
    pub fn sextant(&self, name: &str, settings: &[&str]) -> Result<Server> {
        let (command, address) = self.command(name, settings)?;
        Server::start("sextant", command, address, "/health/ready")
    }

    /// Registers a model of `target/models` for an application of its own of the same name.
    pub fn register(&self, server: &Server, name: &str) -> Result<()> {
        self.register_for(server, name, name)
    }

    /// Registers a model of `target/models` for `application`, which gives the model its name.
    pub fn register_for(&self, server: &Server, application: &str, name: &str) -> Result<()> {
        let address = format!("http://{}", server.address);
        let mut command = shell::command(&self.binary);
        command
            .args(["--server", &address, "register"])
            .args(["--application", application, "--metric", "top1"])
            .args(["--name", application])
            .arg("--model")
            .arg(self.models.join(format!("{name}.onnx")))
            .arg("--validation")
            .arg(self.models.join(format!("{name}-validation.npz")));
        shell::run(&mut command)
    }

    /// Writes a file into the working folder.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// Deterministic numbers between 0 and 1, with four digits.
pub fn numbers(count: usize) -> String {
    let mut state = 0x2545_f491_u32;
    let values: Vec<String> = (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            format!("0.{:04}", state % 10_000)
        })
        .collect();
    values.join(",")
}
