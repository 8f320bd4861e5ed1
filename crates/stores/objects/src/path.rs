//! Names of files in the store.

use std::{fmt, str::FromStr, sync::Arc};

/// Longest accepted path, bytes.
pub const MAX_PATH_BYTES: usize = 512;

/// Longest accepted component of a path, bytes: the limit of common file systems.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// The name of a file: components separated by `/`, relative to the store. Ordered by bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPath(Arc<str>);

/// Why a text is not a path of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path `{path}` is refused: {reason}")]
pub struct InvalidPath {
    /// The refused path, escaped and shortened to 64 characters.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl InvalidPath {
    pub(crate) fn new(path: &str, reason: &'static str) -> Self {
        let path = path.chars().take(64).flat_map(char::escape_debug).collect();
        Self { path, reason }
    }
}

impl ObjectPath {
    /// Refuses a path that is empty, absolute or too long, or that has empty, `.` or `..`
    /// components, control characters or backslashes.
    pub fn parse(path: &str) -> Result<Self, InvalidPath> {
        match fault(path) {
            None => Ok(Self(path.into())),
            Some(reason) => Err(InvalidPath::new(path, reason)),
        }
    }

    /// The path as text, without a leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between slashes; never empty.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// This path with `suffix` appended to its last component or as further components:
    /// `output.jsonl` and `.parts/00000001.jsonl`.
    pub fn with_suffix(&self, suffix: &str) -> Result<Self, InvalidPath> {
        Self::parse(&format!("{self}{suffix}"))
    }
}

fn fault(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        return Some("it is longer than 512 bytes");
    }
    if path.contains("://") {
        return Some(
            "it is an address: copy the file into the artefact store and name its path there",
        );
    }
    if path.starts_with('/') {
        return Some("it is absolute");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Some("it has a control character or a backslash");
    }
    path.split('/').find_map(|component| match component {
        "" => Some("it has an empty component"),
        "." | ".." => Some("it has a `.` or `..` component"),
        _ if component.len() > MAX_COMPONENT_BYTES => {
            Some("it has a component longer than 255 bytes")
        }
        _ => None,
    })
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_debug())
    }
}

impl FromStr for ObjectPath {
    type Err = InvalidPath;
    fn from_str(path: &str) -> Result<Self, InvalidPath> {
        Self::parse(path)
    }
}

impl AsRef<str> for ObjectPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_a_user_would_write() {
        for path in [
            "a",
            "a/b.jsonl",
            "in put/é.npy",
            "..a/b..",
            ".parts/00000000.jsonl",
        ] {
            assert_eq!(ObjectPath::parse(path).unwrap().as_str(), path);
        }
        let longest = format!("{}/{}/{}", "a".repeat(255), "b".repeat(253), "cc");
        assert_eq!(longest.len(), MAX_PATH_BYTES);
        assert!(ObjectPath::parse(&longest).is_ok());
    }

    #[test]
    fn refuses_what_leaves_the_store_or_confuses() {
        let long = "a/".repeat(256) + "a";
        let component = "a".repeat(256);
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/..",
            "a/../b",
            "./a",
            "a/.",
            "a//b",
            "a/",
            "a\0b",
            "a\nb",
            "a\\..\\b",
            "\u{85}",
            &long,
            &component,
        ] {
            assert!(ObjectPath::parse(path).is_err(), "{path:?} was accepted");
        }
    }

    #[test]
    fn a_refusal_shows_no_control_characters() {
        let refused = ObjectPath::parse("a\u{1b}[2J").unwrap_err().to_string();
        assert!(!refused.contains('\u{1b}'), "{refused:?}");
    }

    #[test]
    fn a_suffix_is_checked_too() {
        let path = ObjectPath::parse("out.jsonl").unwrap();
        let part = path.with_suffix(".parts/00000001.jsonl").unwrap();
        assert_eq!(part.as_str(), "out.jsonl.parts/00000001.jsonl");
        assert!(path.with_suffix("/../x").is_err());
    }
}
