//! Counts requests against their keys, and names what a handler has changed.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use sextant_types::Code;
use tokio::sync::OwnedSemaphorePermit;

use super::{Caller, keyring::Key};
use crate::{
    allowance::{Refusal, Usage},
    problem::Problem,
};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Headers that the guard sets, also on refusals.
pub const HEADERS: [HeaderName; 4] = [LIMIT, REMAINING, RESET, header::WWW_AUTHENTICATE];

/// The subject of an audited request, if its path does not name it: an extension of the response.
#[derive(Clone)]
pub struct Subject(pub String);

/// Counts a request against its key, and takes a place for it.
pub async fn charge(
    key: &Key,
    headers: &mut HeaderMap,
) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let place = take_place(key)?;
    let Some(allowance) = &key.allowance else {
        return Ok(place);
    };
    match allowance.take().await {
        Ok(usage) => tell(&usage, headers),
        Err(Refusal { usage, why }) => {
            tell(&usage, headers);
            let problem = Problem::new(Code::RateLimited, why);
            return Err(problem.retry_after_ms(usage.reset_ms.max(1)));
        }
    }
    Ok(place)
}

/// Takes a place among a key's requests in flight.
pub(super) fn take_place(key: &Key) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let place = key.places.as_ref().map(|places| {
        let taken = Arc::clone(places).try_acquire_owned();
        taken.map_err(|_| {
            let detail = "too many requests of this key are in flight";
            Problem::new(Code::RateLimited, detail).retry_after_ms(100)
        })
    });
    place.transpose()
}

/// Counts one more query of a request that has several against its key.
pub(crate) async fn charge_further(caller: &Caller) -> Result<(), Problem> {
    let Caller::Key(key) = caller else {
        return Ok(());
    };
    let Some(allowance) = &key.allowance else {
        return Ok(());
    };
    let taken = allowance.take().await;
    taken.map(drop).map_err(|Refusal { usage, why }| {
        Problem::new(Code::RateLimited, why).retry_after_ms(usage.reset_ms.max(1))
    })
}

fn tell(usage: &Usage, headers: &mut HeaderMap) {
    headers.insert(LIMIT, HeaderValue::from(usage.limit));
    headers.insert(REMAINING, HeaderValue::from(usage.remaining));
    headers.insert(RESET, HeaderValue::from(usage.reset_ms.div_ceil(1000)));
}
