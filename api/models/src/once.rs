//! `Idempotency-Key`: a request that a client repeats is carried out once.

use axum::{
    extract::FromRequestParts,
    http::{HeaderName, request::Parts},
};
use serde_json::Value;
use sextant_registry::OnceKey;
use sextant_types::Code;
use sha2::{Digest, Sha256};

use crate::{auth::Caller, problem::Problem};

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest key, characters.
const LONGEST: usize = 255;

/// The key in the request, if there is one.
pub struct IdempotencyKey(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(HEADER) else {
            return Ok(Self(None));
        };
        let bytes = value.as_bytes();
        let is_sound =
            (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        match value.to_str() {
            Ok(text) if is_sound => Ok(Self(Some(text.to_owned()))),
            _ => {
                let detail = format!(
                    "`Idempotency-Key` must be 1 to {LONGEST} printable characters without spaces"
                );
                Err(Problem::new(Code::InvalidRequest, detail).field(HEADER.as_str()))
            }
        }
    }
}

impl IdempotencyKey {
    /// What the registry keeps of a request, whose content is `what`.
    pub fn of(self, caller: &Caller, operation: &str, what: &Value) -> Option<OnceKey> {
        let key = self.0?;
        let asked = format!("{operation} {what}");
        Some(OnceKey {
            caller: caller.name().to_owned(),
            key,
            fingerprint: hex::encode(Sha256::digest(asked)),
        })
    }
}
