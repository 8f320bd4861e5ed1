//! Errors in the files and settings that a run is made of.

/// An error of the simulator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read `{file}`")]
    Read {
        /// Its path.
        file: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{file}`")]
    Write {
        /// Its path.
        file: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line of a file is malformed.
    #[error("{file}, line {line}: `{value}` {problem}")]
    Line {
        /// The file's path, or its name when it is shipped.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The text that was found.
        value: String,
        /// The defect.
        problem: String,
    },
    /// An experiment's file cannot be parsed.
    #[error("{file}: {problem}")]
    Experiment {
        /// The file's path, or the experiment's name when it is shipped.
        file: String,
        /// The defect, with the line or the cell.
        problem: String,
    },
    /// A name that is not among the shipped ones.
    #[error("there is no {kind} `{name}`; known: {known}")]
    Unknown {
        /// The kind of thing that was looked up.
        kind: &'static str,
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A setting that cannot be run.
    #[error("{0}")]
    Setting(String),
}

impl Error {
    /// A malformed `value` in a line of a file.
    pub fn line(
        file: &str,
        line: usize,
        value: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self::Line {
            file: file.to_owned(),
            line,
            value: value.into(),
            problem: problem.into(),
        }
    }

    /// A file that cannot be parsed.
    pub fn experiment(file: &str, problem: impl Into<String>) -> Self {
        Self::Experiment {
            file: file.to_owned(),
            problem: problem.into(),
        }
    }

    /// A `name` that is not among the `known` ones of its kind.
    pub fn unknown(kind: &'static str, name: &str, known: &[&str]) -> Self {
        Self::Unknown {
            kind,
            name: name.to_owned(),
            known: known.join(", "),
        }
    }
}
