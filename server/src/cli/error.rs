//! Errors of commands, their messages and their exit codes.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::output::{Table, candidates, tell};
use sextant_config as config;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not make sense together.
    #[error("{0}")]
    Usage(String),
    /// The configuration cannot be used.
    #[error(transparent)]
    Configuration(#[from] config::Error),
    /// The server answered with a problem document.
    #[error("{}", .0.summary())]
    Problem(Box<Problem>),
    /// Nobody listens.
    #[error("no server answers at `{server}`")]
    Unreachable {
        /// Where it was looked for.
        server: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The connection broke, or what answered is not Sextant.
    #[error("the request to `{server}` failed")]
    Http {
        /// Whom.
        server: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The server's answer, or a value for it, is not what it should be.
    #[error("unexpected answer: {reason}")]
    Answer {
        /// What is wrong with it.
        reason: String,
    },
    /// A job that was followed did not succeed.
    #[error("job `{job}` {state}{}", detail(.code, .message))]
    Job {
        /// Which job.
        job: String,
        /// `failed` or `cancelled`.
        state: String,
        /// The code of its error.
        code: Option<String>,
        /// The message of its error.
        message: Option<String>,
    },
    /// Ctrl-C while a job was followed.
    #[error(
        "job `{job}` continues; `sextant job follow {job}` follows it, `sextant job cancel {job}` stops it"
    )]
    Interrupted {
        /// Which job.
        job: String,
    },
    /// A job ended well, with records that could not be answered.
    #[error("job `{job}` could not answer `{failed}` of its records")]
    FailedRecords {
        /// Which job.
        job: String,
        /// How many.
        failed: u64,
    },
    /// Items of a file of feedback were refused.
    #[error("`{refused}` of the items were refused; what is accepted is kept")]
    RefusedItems {
        /// How many.
        refused: u64,
    },
    /// Of the thresholds that were tried none is good enough.
    #[error(
        "no threshold makes the pipeline right often enough for `{least}`: nothing is registered"
    )]
    NoThreshold {
        /// What was asked for.
        least: f64,
    },
    /// A file cannot be read or written.
    #[error("{}", of_file(.path, .source))]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An `--input` that holds no tensor.
    #[error("input `{name}`: {reason}")]
    Input {
        /// Which input.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Load cannot be sent.
    #[error(transparent)]
    Load(#[from] sextant_bench_client::Error),
    /// A simulation's files or settings cannot be used.
    #[cfg(feature = "simulator")]
    #[error(transparent)]
    Simulation(#[from] sextant_simulator::Error),
    /// The machine lacks something.
    #[error("{failed} of the findings would keep the service from its work")]
    Unfit {
        /// How many.
        failed: usize,
    },
    /// A backup was not taken or restored.
    #[error(transparent)]
    Backup(sextant_storage::backup::Error),
    /// A model of another library was not converted.
    #[error("{text}")]
    Conversion {
        /// A stable code.
        code: &'static str,
        /// What happened and what to do.
        text: String,
    },
    /// No thread or timer could be had.
    #[error("the runtime cannot start")]
    Runtime(#[source] io::Error),
    /// The service could not start or broke.
    #[error(transparent)]
    Service(anyhow::Error),
}

/// An RFC 9457 problem document.
#[derive(Debug, Clone)]
pub struct Problem {
    /// As it came.
    pub document: Value,
    /// Who sent it.
    pub server: String,
}

impl Error {
    /// 2 where the caller has to write something else, 1 where the request was refused or failed.
    pub fn exit_code(&self) -> u8 {
        #[cfg(feature = "simulator")]
        if let Self::Simulation(error) = self {
            use sextant_simulator::Error as Simulation;
            return match error {
                Simulation::Read { .. } | Simulation::Write { .. } => 1,
                _ => 2,
            };
        }
        match self {
            Self::Load(error) => of_load(error),
            // As shells do for an interrupted command.
            Self::Conversion { code, .. } if code.ends_with("interrupted") => 130,
            Self::Conversion { .. } => 2,
            Self::Usage(_) | Self::Configuration(_) | Self::Input { .. } => 2,
            // As shells do for an interrupted command.
            Self::Interrupted { .. } => 130,
            // The name was mistyped.
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => 2,
            _ => 1,
        }
    }

    /// Tells the error on standard error.
    pub fn report(&self, json: bool) {
        let text = match json {
            true => self.document().to_string(),
            false => self.text(),
        };
        tell(&text);
    }

    fn text(&self) -> String {
        match self {
            Self::Problem(problem) => problem.text(),
            Self::Interrupted { .. } => self.to_string(),
            Self::Backup(error) => format!("error[{}]: {}", error.code(), with_sources(self)),
            Self::Conversion { code, text } => format!("error[{code}]: {text}"),
            Self::Job {
                code: Some(code), ..
            } => {
                format!("error: {self}\nhint: `/docs/errors/{code}` of the service says what to do")
            }
            Self::Unreachable { server, source } => {
                let hint = match tls_fault(source) {
                    Some(hint) => hint.to_owned(),
                    None => format!(
                        "start one with `sextant serve`, or name another with `--server` (now `{server}`)"
                    ),
                };
                format!("error: {}\nhint: {hint}", with_sources(self))
            }
            other => format!("error: {}", with_sources(other)),
        }
    }

    fn document(&self) -> Value {
        match self {
            Self::Problem(problem) => problem.document.clone(),
            Self::Backup(error) => json!({"code": error.code(), "detail": with_sources(self)}),
            Self::Conversion { code, text } => json!({"code": code, "detail": text}),
            Self::Job {
                code: Some(code), ..
            } => json!({"code": code, "detail": with_sources(self)}),
            other => json!({"detail": with_sources(other)}),
        }
    }
}

/// What to do where somebody listens and no connection by TLS comes about; `None` where it is something else.
fn tls_fault(error: &reqwest::Error) -> Option<&'static str> {
    let text = with_sources(error);
    let is = |word: &str| text.contains(word);
    if is("UnknownIssuer") || is("unknown issuer") {
        return Some(
            "the server's certificate is of an authority that is not trusted here: name the authority's certificate in \
             `SEXTANT_CA`",
        );
    }
    if is("InvalidContentType") || is("corrupt message") {
        return Some("what listens there does not speak TLS: name it with `http://`");
    }
    let certificate = is("certificate") || is("Certificate");
    certificate.then_some("the server's certificate is refused, for the reason above")
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// The exit code of a load that cannot be sent.
fn of_load(error: &sextant_bench_client::Error) -> u8 {
    use sextant_bench_client::Error as Load;
    match error {
        Load::Unreachable { .. } | Load::Start(_) => 1,
        Load::Read { source, .. } if source.kind() != io::ErrorKind::NotFound => 1,
        _ => 2,
    }
}

/// What is the matter with a file.
fn of_file(path: &Path, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => format!("there is no file or folder `{}`", path.display()),
        _ => format!("`{}` cannot be read or written", path.display()),
    }
}

fn detail(code: &Option<String>, message: &Option<String>) -> String {
    match (code, message) {
        (Some(code), Some(message)) => format!(": [{code}] {message}"),
        (None, Some(text)) | (Some(text), None) => format!(": {text}"),
        (None, None) => String::new(),
    }
}

// === impl Problem ===

impl Problem {
    /// Whether its stable code is `code`.
    pub fn is(&self, code: &str) -> bool {
        self.field("code") == Some(code)
    }

    /// When to try again, where it passes by itself.
    pub fn retry_after(&self) -> Option<Duration> {
        let ms = self.document.get("retry_after_ms").and_then(Value::as_u64);
        ms.map(Duration::from_millis)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.document.get(name).and_then(Value::as_str)
    }

    /// `error[target_infeasible]: no variant ..`, without the leading word.
    fn summary(&self) -> String {
        let code = self.field("code").unwrap_or("unknown");
        let detail = self.field("detail").or(self.field("title")).unwrap_or("");
        format!("[{code}]: {detail}")
    }

    fn text(&self) -> String {
        let mut text = format!("error{}", self.summary());
        if let Some(field) = self.field("field") {
            text.push_str(&format!("\nfield: {field}"));
        }
        let closest = self.closest();
        if !closest.is_empty() {
            text.push_str("\nclosest variants:\n");
            text.push_str(&closest.render());
        }
        if self.is("unauthenticated") {
            text.push_str(
                "\nhint: the key is read from the environment variable `SEXTANT_API_KEY`",
            );
        }
        if let Some(page) = self.field("type").filter(|page| page.starts_with('/')) {
            text.push_str(&format!("\nsee: {}{page}", self.server));
        }
        text
    }

    fn closest(&self) -> Table {
        candidates(self.document.get("closest"))
    }
}
