//! Flags of the configuration, for `serve` and `config`.

use std::path::PathBuf;

use clap::Args;

use super::Error;
use sextant_config::{Config, Flag, Sources};

/// Where settings come from; `docs/config.md` lists them.
#[derive(Debug, Args)]
pub struct Settings {
    /// TOML file with the configuration.
    #[arg(
        long,
        env = "SEXTANT_CONFIG",
        hide_env_values = true,
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    /// Address and port of the HTTP API [env: SEXTANT_LISTEN] [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Parts to run, separated by commas: api, dispatcher, autoscaler, variant-gen, worker
    /// [env: SEXTANT_ROLES] [default: all].
    #[arg(long, visible_alias = "role", value_name = "ROLES")]
    roles: Option<String>,
    /// Folder of the registry and the artefact store [env: SEXTANT_DATA_DIR] [default: ./data].
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// Lowest level that is logged, or a filter [env: SEXTANT_LOG__LEVEL] [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// `text` or `json` [env: SEXTANT_LOG__FORMAT] [default: text].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// ONNX Runtime shared library [env: SEXTANT_ONNXRUNTIME_LIBRARY] [default: searched].
    #[arg(long, value_name = "FILE")]
    onnxruntime_library: Option<String>,
    /// Any other setting, such as `worker.cores=2`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Settings {
    /// The configuration with these flags on top.
    pub fn load(self) -> Result<Config, Error> {
        let flags = [
            ("--listen", "listen", self.listen),
            ("--roles", "roles", self.roles),
            ("--data-dir", "data_dir", self.data_dir),
            ("--log-level", "log.level", self.log_level),
            ("--log-format", "log.format", self.log_format),
            (
                "--onnxruntime-library",
                "onnxruntime_library",
                self.onnxruntime_library,
            ),
        ];
        let sources = Sources {
            file: self.config,
            environment: Sources::environment_of_process()?,
            flags: flags
                .into_iter()
                .filter_map(|(name, key, value)| value.map(|value| Flag { name, key, value }))
                .collect(),
            set: self.set,
        };
        Ok(Config::load(&sources)?)
    }
}
