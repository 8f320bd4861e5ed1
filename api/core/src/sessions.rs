//! The sessions of browsers. A browser keeps a random number in a cookie that scripts cannot read and other sites
//! cannot send. The key is not kept: a session has its caller, in memory alone.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use sextant_types::Code;
use sha2::{Digest, Sha256};

use crate::{auth::Caller, problem::Problem};

/// The cookie's name.
const COOKIE: &str = "sextant-session";
/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(8 * 60 * 60);
/// Most sessions at once; the oldest is ended first.
const MOST: usize = 4096;
/// Most sessions of one key at once, so that no key ends the sessions of others; its own oldest is ended first.
const MOST_OF_ONE: usize = 64;
/// Random bytes of a session's number.
const RANDOM_BYTES: usize = 32;

/// Marks requests that came over an encrypted connection.
#[derive(Clone, Copy)]
pub struct EncryptedConnection;

/// The sessions that have not ended, by the hash of their number.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

struct Session {
    caller: Caller,
    begun: Instant,
}

// === impl Sessions ===

impl Sessions {
    /// Begins a session, and returns the header that tells the browser.
    pub fn begin(&self, caller: Caller, is_encrypted: bool) -> Result<HeaderValue, Problem> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|error| Problem::internal("a session", &error))?;
        let number = hex::encode(random);
        let begun = Instant::now();
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| session.begun.elapsed() < LASTS);
        let name = caller.name();
        make_room(&mut sessions, MOST_OF_ONE, |it| it.caller.name() == name);
        make_room(&mut sessions, MOST, |_| true);
        sessions.insert(hash(&number), Session { caller, begun });
        cookie(&number, LASTS, is_encrypted)
    }

    /// The caller that has begun the request's session.
    pub fn find(&self, headers: &HeaderMap) -> Option<Caller> {
        let number = number(headers)?;
        let sessions = self.0.lock();
        let session = sessions.get(&hash(number))?;
        (session.begun.elapsed() < LASTS).then(|| session.caller.clone())
    }

    /// Ends the session of a request, and returns the header that tells the browser.
    pub fn end(&self, headers: &HeaderMap, is_encrypted: bool) -> Result<HeaderValue, Problem> {
        if let Some(number) = number(headers) {
            self.0.lock().remove(&hash(number));
        }
        cookie("", Duration::ZERO, is_encrypted)
    }
}

/// Ends the oldest of these sessions if their number has reached its limit.
fn make_room(
    sessions: &mut HashMap<[u8; 32], Session>,
    most: usize,
    counts: impl Fn(&Session) -> bool,
) {
    let counted = sessions.iter().filter(|(_, session)| counts(session));
    if counted.clone().count() < most {
        return;
    }
    let oldest = counted.min_by_key(|(_, session)| session.begun);
    if let Some(oldest) = oldest.map(|(hash, _)| *hash) {
        sessions.remove(&oldest);
    }
}

fn hash(number: &str) -> [u8; 32] {
    Sha256::digest(number).into()
}

/// The number of the request's session.
fn number(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn cookie(number: &str, lasts: Duration, is_encrypted: bool) -> Result<HeaderValue, Problem> {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let seconds = lasts.as_secs();
    let text =
        format!("{COOKIE}={number}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text)
        .map_err(|error| Problem::new(Code::Internal, format!("a cookie cannot be sent: {error}")))
}
