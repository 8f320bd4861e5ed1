//! Secrets and their hashes.
//!
//! A key is 32 random bytes. Nobody can try them all, so a plain SHA-256 protects it as well as a
//! slow hash would, and a request costs a microsecond instead of a tenth of a second.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The beginning of every key, so that scanners of published code can find keys.
const PREFIX: &str = "sx_";

/// Random bytes in a key.
const RANDOM_BYTES: usize = 32;

/// Least length of an administrator's key, which a person chose, bytes.
const LEAST_BYTES: usize = 20;

/// A new key in plain text: it is shown once, to the caller that created it.
pub struct Secret(String);

/// The SHA-256 of a secret.
#[derive(Clone, Copy)]
pub struct Hash([u8; 32]);

/// The administrator's key of the configuration; only its hash is kept.
#[derive(Clone)]
pub struct AdminKey(Hash);

/// An administrator's key that could be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the administrator's key has `{length}` bytes: give it at least {LEAST_BYTES}, random ones"
)]
pub struct WeakKey {
    /// Its length, bytes.
    pub length: usize,
}

// === impl Secret ===

impl Secret {
    /// Generates a new key.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        Ok(Self(format!("{PREFIX}{}", hex::encode(random))))
    }

    /// The hash, which is stored.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.0)
    }

    /// The key itself.
    pub fn reveal(self) -> String {
        self.0
    }
}

impl Hash {
    /// The hash of what a client sent.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Parses the registry's form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The registry's form.
    pub fn to_text(self) -> String {
        hex::encode(self.0)
    }

    /// The first bytes of the hash, by which a key is looked up. Timings may reveal them, but they
    /// are of no use: an attacker would have to find a preimage.
    pub fn bucket(self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }

    /// Compares in a time that does not depend on the content.
    pub fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl AdminKey {
    /// Keeps the hash of a key that is long enough.
    pub fn new(secret: &str) -> Result<Self, WeakKey> {
        match secret.len() {
            length if length < LEAST_BYTES => Err(WeakKey { length }),
            _ => Ok(Self(Hash::of(secret))),
        }
    }

    /// Whether the key with the hash `presented` is this one.
    pub fn is(&self, presented: Hash) -> bool {
        self.0.is(presented)
    }
}

impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminKey")
    }
}
