//! Names and identifiers. They are cheap to clone: all are `Arc<str>` or a small array.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// Longest accepted name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// A name that is not lower-case letters, digits, `-`, `_` or `.`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{value}` is not a valid {what} name: use 1 to {MAX_NAME_BYTES} of `a-z 0-9 - _ .`, \
     beginning with a letter or digit"
)]
pub struct InvalidId {
    /// What the name was for: `application`, `model`, ..
    pub what: &'static str,
    /// The refused value, shortened to 64 characters.
    pub value: String,
}

fn check(what: &'static str, value: &str) -> Result<(), InvalidId> {
    let begins = value
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest = value
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'));
    if begins && rest && value.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(InvalidId {
        what,
        value: value.chars().take(64).collect(),
    })
}

/// The most digits of a version number.
const MAX_VERSION_DIGITS: usize = 9;

/// `[application:]name[@version]`.
fn check_reference(what: &'static str, value: &str) -> Result<(), InvalidId> {
    let (application, rest) = match value.split_once(':') {
        Some((application, rest)) => (Some(application), rest),
        None => (None, value),
    };
    let (name, version) = match rest.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (rest, None),
    };
    application.map_or(Ok(()), |it| check("application", it))?;
    check(what, name)?;
    let is_number = |version: &str| {
        let digits = version.bytes().all(|b| b.is_ascii_digit());
        digits && version.len() <= MAX_VERSION_DIGITS && !version.starts_with('0')
    };
    match version {
        Some(version) if version.is_empty() || !is_number(version) => Err(InvalidId {
            what: "version",
            value: value.chars().take(64).collect(),
        }),
        _ => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        name!($(#[$doc])* $type, $what, check);
    };
    ($(#[$doc:meta])* $type:ident, $what:literal, $read:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks `value` against the naming rule.
            pub fn new(value: impl AsRef<str>) -> Result<Self, InvalidId> {
                check($what, value.as_ref())?;
                Ok(Self(value.as_ref().into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.0)
            }
        }

        impl FromStr for $type {
            type Err = InvalidId;
            fn from_str(value: &str) -> Result<Self, InvalidId> {
                $read($what, value)?;
                Ok(Self(value.into()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidId;
            fn try_from(value: String) -> Result<Self, InvalidId> {
                value.parse()
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// An application: the unit that states targets and under which models are registered.
    ApplicationId, "application"
);
name!(
    /// A registered model (an architecture with its weights): its id, or a reference to it as in
    /// [`release`](crate::release). [`ModelId::new`] accepts the names that a model may have; `parse` also accepts
    /// references.
    ModelId, "model", check_reference
);
name!(
    /// A variant, `{model}-{engine}-{precision}-{optimization}-t{threads}-b{max_batch}`.
    VariantId, "variant"
);
name!(
    /// A worker process.
    WorkerId, "worker"
);
name!(
    /// A type of device, such as `cpu-8` or `nvidia-h200`.
    DeviceTypeName, "device type"
);
name!(
    /// A job (registration or offline), a UUID in text.
    JobId, "job"
);

impl ModelId {
    /// The reference to the models of a name in an application.
    pub fn qualified(application: &ApplicationId, name: &ModelId) -> Self {
        Self(format!("{application}:{name}").into())
    }

    /// The reference to a version of the model that this one names. A reference that already names a version is
    /// returned unchanged.
    pub fn at_version(&self, version: u32) -> Self {
        match self.0.contains('@') {
            true => self.clone(),
            false => Self(format!("{self}@{version}").into()),
        }
    }
}

/// SHA-256 of an artefact's bytes: its key in the artefact store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Wraps the 32 bytes of a SHA-256.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

impl FromStr for Digest {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            what: "digest",
            value: text.chars().take(64).collect(),
        };
        if text.len() != 64 || !text.is_ascii() {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte =
                u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidId;
    fn try_from(value: String) -> Result<Self, InvalidId> {
        value.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}
