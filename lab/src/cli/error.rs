//! Why a command did not succeed, how it is told and with which exit code.

use serde_json::json;
use sextant_simulator::Error as Simulation;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not make sense together.
    #[error("{0}")]
    Usage(String),
    /// Files or settings cannot be used.
    #[error(transparent)]
    Simulation(#[from] Simulation),
    /// Nothing can be written to standard output.
    #[error("standard output cannot be written")]
    Output(#[source] std::io::Error),
}

impl Error {
    /// 2 where the caller has to write something else, 1 where a file cannot be read or written.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Simulation(Simulation::Read { .. } | Simulation::Write { .. })
            | Self::Output(_) => 1,
            Self::Simulation(_) | Self::Usage(_) => 2,
        }
    }

    /// Tells the error on standard error.
    pub fn report(&self, json: bool) {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(source) = next {
            text.push_str(&format!(": {source}"));
            next = source.source();
        }
        match json {
            true => eprintln!("{}", json!({"detail": text})),
            false => eprintln!("error: {text}"),
        }
    }
}
