//! The configuration of a runtime.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use sextant_engine::DeviceMemory;
use sextant_types::VariantId;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// The placeholder of the free port in a command, an environment or an address.
pub(crate) const PORT: &str = "{port}";

/// The address at which a command listens by default.
pub(crate) const LOCAL: &str = "http://127.0.0.1:{port}";

/// A runtime.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// Its name in manifests and in the names of variants.
    pub name: String,
    /// Where it is.
    pub source: Source,
    /// Longest time until it is ready, and until it has loaded a model.
    pub ready_timeout: Duration,
    /// Longest time of a batch. A child process that takes longer is killed.
    pub request_timeout: Duration,
    /// Whether tensors are sent as bytes after the JSON.
    pub binary: Binary,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// What loads models.
    pub load: Load,
    /// The memory for loaded models there.
    pub memory: DeviceMemory,
    /// Largest answer that is read, bytes.
    pub max_response_bytes: u64,
}

/// Where a runtime is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A server that runs already: `http://host:port`, perhaps with a path.
    Address(String),
    /// A child process.
    Command(Program),
}

/// How a child process is started. `{port}` is replaced by a free port of this machine in
/// arguments, environment and address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments; no shell reads them.
    pub command: Vec<String>,
    /// Variables in addition to those of this process, of which those that begin with `SEXTANT_`
    /// are not passed on.
    pub environment: BTreeMap<String, String>,
    /// Working folder; by default this process's.
    pub folder: Option<PathBuf>,
    /// Its address; by default `http://127.0.0.1:{port}`.
    pub url: Option<String>,
}

/// Whether tensors are sent as bytes after the JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Binary {
    /// If the server announces the extension `binary_tensor_data`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What loads models into the runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Load {
    /// The runtime itself; they are loaded when it is ready.
    #[default]
    None,
    /// This engine, by the model repository extension.
    Repository,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// The name breaks the naming rule of variants.
    #[error("runtime name `{0}`: use `a-z 0-9 - _ .`, beginning with a letter or digit")]
    Name(String),
    /// The address cannot be used.
    #[error("runtime `{runtime}`: address `{url}` {reason}")]
    Url {
        /// The runtime.
        runtime: String,
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No program is named.
    #[error("runtime `{0}`: the command is empty")]
    Command(String),
    /// A header cannot be sent, or contradicts a header of the protocol.
    #[error("runtime `{runtime}`: header `{header}` cannot be set")]
    Header {
        /// The runtime.
        runtime: String,
        /// Its name.
        header: String,
    },
    /// A time or size is zero.
    #[error("runtime `{runtime}`: `{what}` must be greater than 0")]
    Zero {
        /// The runtime.
        runtime: String,
        /// Which value.
        what: &'static str,
    },
}

/// Headers that describe the request itself.
const OWN_HEADERS: [&str; 6] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "inference-header-content-length",
    "transfer-encoding",
];

// === impl RemoteConfig ===

impl RemoteConfig {
    /// A runtime with the usual limits: ready within 2 minutes, 30 s for a batch, 256 MiB for an
    /// answer, 4 GiB of models in pages of 16 MiB.
    pub fn new(name: impl Into<String>, source: Source) -> Self {
        Self {
            name: name.into(),
            source,
            ready_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            binary: Binary::Auto,
            headers: Vec::new(),
            load: Load::None,
            memory: DeviceMemory {
                page_bytes: 16 << 20,
                pages: 256,
            },
            max_response_bytes: 256 << 20,
        }
    }

    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        let runtime = || self.name.clone();
        if VariantId::new(&self.name).is_err() {
            return Err(InvalidConfig::Name(runtime()));
        }
        match &self.source {
            Source::Address(url) => self.check_url(url)?,
            Source::Command(program) => {
                if program.command.first().is_none_or(String::is_empty) {
                    return Err(InvalidConfig::Command(runtime()));
                }
                let url = program.url.as_deref().unwrap_or(LOCAL);
                self.check_url(&url.replace(PORT, "1"))?;
            }
        }
        let refused = self.headers.iter().find(|(name, value)| {
            let own = OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name));
            own || HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err()
        });
        if let Some((header, _)) = refused {
            return Err(InvalidConfig::Header {
                runtime: runtime(),
                header: header.clone(),
            });
        }
        self.check_positive()
    }

    fn check_positive(&self) -> Result<(), InvalidConfig> {
        let values = [
            ("ready_timeout", self.ready_timeout.is_zero()),
            ("request_timeout", self.request_timeout.is_zero()),
            ("memory.page_bytes", self.memory.page_bytes == 0),
            ("memory.pages", self.memory.pages == 0),
            ("max_response_bytes", self.max_response_bytes == 0),
        ];
        match values.iter().find(|(_, is_zero)| *is_zero) {
            None => Ok(()),
            Some((what, _)) => Err(InvalidConfig::Zero {
                runtime: self.name.clone(),
                what,
            }),
        }
    }

    fn check_url(&self, url: &str) -> Result<(), InvalidConfig> {
        let refuse = |reason| {
            Err(InvalidConfig::Url {
                runtime: self.name.clone(),
                url: url.to_owned(),
                reason,
            })
        };
        let Ok(uri) = url.parse::<Uri>() else {
            return refuse("is not an address: write `http://host:port`");
        };
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return refuse("needs TLS, which is not built in: use a local proxy"),
            _ => return refuse("must begin with `http://`"),
        }
        let authority = uri.authority().map(|it| it.as_str()).unwrap_or_default();
        if authority.is_empty() || authority.contains('@') {
            return refuse("must name a host and no user");
        }
        if uri.query().is_some() {
            return refuse("must not hold a query");
        }
        Ok(())
    }
}
