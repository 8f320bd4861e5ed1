//! The token of an answer: the facts that are needed when feedback comes. The client holds it.
//!
//! Bytes, little endian: format 1, number of the key (4), time (6), serial number (8), propensity (4), rows (4),
//! version (4), application, model and the part of the variant's name after the model's name, the prediction, and the
//! first 16 bytes of the HMAC-SHA-256 of all of these. As text it is URL-safe base64 without padding.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sextant_types::{ApplicationId, ModelId, VariantId};
use sha2::Sha256;

use crate::{
    Prediction,
    bytes::{Reader, put_text},
};

/// How long after its answer feedback is accepted, ms.
pub const LATEST_MS: u64 = 24 * 3600 * 1000;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The format of the bytes.
const FORMAT: u8 = 1;

/// Bytes of a signature. Forging one takes 2^127 tries on average.
const MAC_BYTES: usize = 16;

/// The longest text of a token: three names of 128 bytes and the longest prediction, in base64.
const LONGEST: usize = 2304;

/// What answered a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerSource<'a> {
    /// The application that was asked.
    pub application: &'a ApplicationId,
    /// The model that answered.
    pub model: &'a ModelId,
    /// Its version; 0 if models have no versions.
    pub version: u32,
    /// The variant that answered.
    pub variant: &'a VariantId,
    /// The probability with which it was chosen; 1 if nothing was drawn.
    pub propensity: f32,
    /// Rows of the answer.
    pub rows: u32,
}

/// The contents of a token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// When the query was answered, ms since the Unix epoch.
    pub at_ms: u64,
    /// Distinguishes queries of the same moment.
    pub serial: u64,
    /// The application that was asked.
    pub application: ApplicationId,
    /// The model that answered.
    pub model: ModelId,
    /// Its version; 0 if models have no versions.
    pub version: u32,
    /// The variant that answered.
    pub variant: VariantId,
    /// The probability with which it was chosen.
    pub propensity: f32,
    /// Rows of the answer.
    pub rows: u32,
    /// The prediction.
    pub prediction: Prediction,
}

/// A key with which tokens are signed.
#[derive(Clone)]
pub struct SigningKey {
    number: u32,
    /// Already initialised with the key. Each signature starts from a copy.
    mac: Hmac<Sha256>,
}

/// The keys whose tokens are accepted.
#[derive(Clone, Default)]
pub struct Keys(Vec<SigningKey>);

/// A token that this service did not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forgery {
    /// It is signed with an unknown key.
    #[error("the token is signed with key `{number}`, which is not known here, or no longer")]
    UnknownKey {
        /// The number of the key.
        number: u32,
    },
    /// Any other defect.
    #[error("the token is not one that this service made")]
    Broken,
}

// === impl SigningKey ===

impl SigningKey {
    /// Makes the key with that number.
    pub fn new(number: u32, secret: &[u8; KEY_BYTES]) -> Self {
        // A key may have any length.
        let mac = Hmac::new_from_slice(secret).expect("any key will do");
        Self { number, mac }
    }

    /// The token of an answer, as text.
    pub fn sign(
        &self,
        served: &AnswerSource<'_>,
        (at_ms, serial): (u64, u64),
        of: &Prediction,
    ) -> String {
        let mut out = Vec::with_capacity(160);
        out.push(FORMAT);
        out.extend(self.number.to_le_bytes());
        out.extend(&at_ms.to_le_bytes()[..6]);
        out.extend(serial.to_le_bytes());
        out.extend(served.propensity.to_le_bytes());
        out.extend(served.rows.to_le_bytes());
        out.extend(served.version.to_le_bytes());
        put_text(&mut out, served.application.as_str());
        let (model, variant) = (served.model.as_str(), served.variant.as_str());
        put_text(&mut out, model);
        let rest = variant.strip_prefix(model);
        out.push(u8::from(rest.is_some()));
        put_text(&mut out, rest.unwrap_or(variant));
        of.write(&mut out);
        let mut mac = self.mac.clone();
        mac.update(&out);
        out.extend(&mac.finalize().into_bytes()[..MAC_BYTES]);
        URL_SAFE_NO_PAD.encode(out)
    }
}

// === impl Keys ===

impl Keys {
    /// Accepts tokens that are signed with any of these.
    pub fn new(keys: Vec<SigningKey>) -> Self {
        Self(keys)
    }

    /// The key with that number.
    pub fn key(&self, number: u32) -> Option<&SigningKey> {
        self.0.iter().find(|key| key.number == number)
    }

    /// Reads a token, if a service with these keys made it.
    ///
    /// # Errors
    /// [`Forgery`] for everything else.
    pub fn read(&self, text: &str) -> Result<Token, Forgery> {
        if text.len() > LONGEST {
            return Err(Forgery::Broken);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Forgery::Broken)?;
        let signed = bytes.len().checked_sub(MAC_BYTES).ok_or(Forgery::Broken)?;
        let (body, mac) = bytes.split_at(signed);
        let number = number(body).ok_or(Forgery::Broken)?;
        let key = self.key(number).ok_or(Forgery::UnknownKey { number })?;
        let mut right = key.mac.clone();
        right.update(body);
        let is_right = right.verify_truncated_left(mac);
        is_right.map_err(|_| Forgery::Broken)?;
        read(body).ok_or(Forgery::Broken)
    }
}

/// The number of a query as text: 16 hexadecimal digits.
pub fn serial_text(serial: u64) -> String {
    format!("{serial:016x}")
}

/// The serial number in the name that [`Token::query`] gives to a query, as text; `None` for any other text.
pub fn serial_of(query: &str) -> Option<&str> {
    (query.len() == 28).then(|| query.get(12..)).flatten()
}

/// The number of the key with which a token says that it is signed.
fn number(body: &[u8]) -> Option<u32> {
    let mut reader = Reader(body);
    reader.byte().filter(|format| *format == FORMAT)?;
    reader.u32()
}

fn read(body: &[u8]) -> Option<Token> {
    let mut reader = Reader(body.get(5..)?);
    let mut at_ms = [0; 8];
    at_ms[..6].copy_from_slice(reader.take(6)?);
    let at_ms = u64::from_le_bytes(at_ms);
    let serial = reader.u64()?;
    let propensity = reader.f32()?;
    let (rows, version) = (reader.u32()?, reader.u32()?);
    let application = ApplicationId::new(reader.text()?).ok()?;
    let model = ModelId::new(reader.text()?).ok()?;
    let begins = reader.byte()? == 1;
    let rest = reader.text()?;
    let variant = match begins {
        true => VariantId::new(format!("{model}{rest}")),
        false => VariantId::new(rest),
    };
    Some(Token {
        at_ms,
        serial,
        application,
        model,
        version,
        variant: variant.ok()?,
        propensity,
        rows,
        prediction: Prediction::read(&mut reader, rows)?,
    })
}

/// Checks arbitrary bytes, as the text of a token and as signed contents. What is read must be the same when it is
/// signed and read again. For fuzzers.
pub fn check_bytes(bytes: &[u8]) {
    let key = SigningKey::new(1, &[7; KEY_BYTES]);
    let keys = Keys::new(vec![key.clone()]);
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(keys.read(text).is_err(), "nobody has signed it");
    }
    let Some(token) = read(bytes) else { return };
    let signed = |token: &Token| {
        let served = AnswerSource {
            application: &token.application,
            model: &token.model,
            version: token.version,
            variant: &token.variant,
            propensity: token.propensity,
            rows: token.rows,
        };
        key.sign(&served, (token.at_ms, token.serial), &token.prediction)
    };
    let text = signed(&token);
    match keys.read(&text) {
        Ok(again) => assert_eq!(signed(&again), text),
        Err(_) => assert!(text.len() > LONGEST, "what is signed is read"),
    }
}

// === impl Token ===

impl Token {
    /// The name of the query, which is the same in every token of the query: its time and its serial number, 28 digits.
    pub fn query(&self) -> String {
        format!("{:012x}{}", self.at_ms, serial_text(self.serial))
    }

    /// Whether feedback that comes at `now_ms` is late. With a clock that is behind, no feedback is late.
    pub fn is_late(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) > LATEST_MS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn served<T>(variant: &str, rows: u32, then: impl FnOnce(AnswerSource<'_>) -> T) -> T {
        then(AnswerSource {
            application: &ApplicationId::new("digits").unwrap(),
            model: &ModelId::new("mlp").unwrap(),
            version: 3,
            variant: &VariantId::new(variant).unwrap(),
            propensity: 0.25,
            rows,
        })
    }

    fn signed(key: &SigningKey, variant: &str, of: &Prediction) -> String {
        let rows = match of {
            Prediction::Unknown => 7,
            Prediction::Classes { best, classes } => classes.len() as u32 / u32::from(*best),
            Prediction::Numbers(numbers) => numbers.len() as u32,
            Prediction::Digests(digests) => digests.len() as u32,
        };
        let moment = (1_700_000_000_123, u64::MAX - 5);
        served(variant, rows, |served| key.sign(&served, moment, of))
    }

    fn key(number: u32) -> SigningKey {
        SigningKey::new(number, &[number as u8; KEY_BYTES])
    }

    #[test]
    fn a_token_says_what_was_put_into_it() {
        let keys = Keys::new(vec![key(1), key(2)]);
        for of in [
            Prediction::Unknown,
            Prediction::Classes {
                best: 1,
                classes: vec![3, 255, 0],
            },
            Prediction::Classes {
                best: 2,
                classes: vec![3, 1000],
            },
            Prediction::Numbers(vec![1.5, f32::MIN]),
            Prediction::Digests(vec![u64::MAX, 0]),
        ] {
            for variant in ["mlp-ort-fp32-all-t1-b8", "other"] {
                let token = keys.read(&signed(&key(2), variant, &of)).unwrap();
                assert_eq!((token.variant.as_str(), &token.prediction), (variant, &of));
                assert_eq!((token.version, token.propensity), (3, 0.25));
                assert_eq!(token.at_ms, 1_700_000_000_123);
                assert_eq!(token.query(), "018bcfe5687bfffffffffffffffa");
            }
        }
    }

    #[test]
    fn a_token_is_late_after_a_day() {
        let keys = Keys::new(vec![key(1)]);
        let token = keys
            .read(&signed(&key(1), "v", &Prediction::Unknown))
            .unwrap();
        assert!(!token.is_late(token.at_ms + LATEST_MS));
        assert!(token.is_late(token.at_ms + LATEST_MS + 1));
        assert!(!token.is_late(0));
    }

    #[test]
    fn another_key_signs_nothing() {
        let keys = Keys::new(vec![SigningKey::new(1, &[9; KEY_BYTES])]);
        let of = Prediction::Unknown;
        let forged = keys.read(&signed(&key(1), "v", &of));
        assert_eq!(forged, Err(Forgery::Broken));
        let unknown = keys.read(&signed(&key(4), "v", &of));
        assert_eq!(unknown, Err(Forgery::UnknownKey { number: 4 }));
    }

    proptest! {
        #[test]
        fn a_changed_token_is_none(at in 0usize..10_000, flip in 1u8..=255) {
            let keys = Keys::new(vec![key(1)]);
            let of = Prediction::Classes { best: 1, classes: vec![3, 4] };
            let text = signed(&key(1), "mlp-ort", &of);
            let mut bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(keys.read(&URL_SAFE_NO_PAD.encode(&bytes)).is_err());
            bytes.truncate(at);
            prop_assert!(keys.read(&URL_SAFE_NO_PAD.encode(&bytes)).is_err());
        }

        #[test]
        fn anything_else_is_refused(text in ".{0,300}") {
            prop_assert!(Keys::new(vec![key(1)]).read(&text).is_err());
        }
    }
}
