//! What can be wrong with a configuration.

use std::path::PathBuf;

/// A configuration that cannot be used. Nothing has been started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("configuration file `{path}` cannot be read")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A layer is not TOML, or not a table.
    #[error("{origin} is not a valid configuration: {reason}")]
    Unreadable {
        /// The file or flag.
        origin: String,
        /// What the parser said, with line and column.
        reason: String,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}` in {origin}{}", hint(.nearest.as_deref()))]
    UnknownKey {
        /// The key as it was written.
        key: String,
        /// Where it was written.
        origin: String,
        /// The key that is spelt most alike.
        nearest: Option<String>,
    },
    /// A key that there was.
    #[error("`{key}` in {origin} is no setting any more: {instead}")]
    Removed {
        /// The key as it was written.
        key: String,
        /// Where it was written.
        origin: String,
        /// What to do.
        instead: &'static str,
    },
    /// A value of the wrong type or out of range.
    #[error("`{key}` in {origin} is {value}: it must be {rule}{}", meant(.nearest.as_deref()))]
    InvalidValue {
        /// Which key.
        key: String,
        /// Where it was written.
        origin: String,
        /// The value, shortened.
        value: String,
        /// What would be accepted.
        rule: String,
        /// The accepted word that is spelt most alike.
        nearest: Option<String>,
    },
    /// A value that no file could hold either.
    #[error("the environment variable `{variable}` is no Unicode: write its value in UTF-8")]
    NotUnicode {
        /// Which variable.
        variable: String,
    },
    /// Two values, each of which could be used with another one.
    #[error(
        "`{lower}` is `{lower_value}`: it must be less than `{upper}`, which is `{upper_value}`"
    )]
    NotLess {
        /// The key whose value must be less.
        lower: String,
        /// Its value.
        lower_value: String,
        /// The key whose value must be greater.
        upper: String,
        /// Its value.
        upper_value: String,
    },
    /// `--set` without `=`.
    #[error("`--set {0}` has no value: write `--set section.key=value`")]
    NoValue(String),
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| {
        format!("; did you mean `{nearest}`?")
    })
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `docs/config.md` lists all keys".to_owned(),
        |nearest| format!(": did you mean `{nearest}`?"),
    )
}
