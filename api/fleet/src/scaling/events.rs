//! A stream of decisions to one client.

use std::time::Duration;

use axum::{Error, http::HeaderMap, response::sse::Event};
use futures::{Stream, StreamExt, stream};
use sextant_types::Code;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::decision::DecisionBody;
use crate::{
    ApiState,
    auth::Caller,
    codec::short,
    extract::digits,
    feed::{News, newest},
    problem::Problem,
};

/// How often a comment is sent while there is no event.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a client has received, and the next events.
pub struct Events {
    state: ApiState,
    caller: Caller,
    news: watch::Receiver<News>,
    turn: u64,
    /// Number of the last decision that the client has.
    known: u64,
    _place: OwnedSemaphorePermit,
}

/// The number of the last decision that a client has already.
pub fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(digits);
    number.map(Some).ok_or_else(|| {
        let given = String::from_utf8_lossy(value.as_bytes());
        let detail = format!(
            "`Last-Event-ID` is `{}`: it must be the number of a decision",
            short(&given)
        );
        Problem::new(Code::InvalidRequest, detail).field("last-event-id")
    })
}

// === impl Events ===

impl Events {
    /// Takes a place among the streams. The stream begins after the decision `known`, or else after the latest
    /// decision.
    pub async fn open(
        state: ApiState,
        caller: Caller,
        known: Option<u64>,
    ) -> Result<Self, Problem> {
        let place = state.decisions().admit()?;
        let news = state.decisions().subscribe();
        let turn = news.borrow().turn;
        let newest = newest(state.metadata().snapshot().await?.desired.as_ref());
        let known = match known {
            None => newest,
            Some(number) if number <= newest => number,
            // The client's number comes from a store that has been lost since: it is unrelated to the present numbers.
            Some(_) => 0,
        };
        Ok(Self {
            state,
            caller,
            news,
            turn,
            known,
            _place: place,
        })
    }

    /// One event for each decision, until the service stops.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, Error>> {
        let draining = self.state.draining();
        let events = stream::unfold(self, |mut events| async move {
            let event = events.next().await?;
            Some((event, events))
        });
        events.take_until(draining.cancelled_owned())
    }

    /// The next event; `None` if the caller may no longer see decisions.
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            let news = self.news.borrow_and_update().clone();
            if let Some(event) = self.take(&news) {
                return Some(event).filter(|_| self.state.still_knows(&self.caller));
            }
            self.news.changed().await.ok()?;
        }
    }

    fn take(&mut self, news: &News) -> Option<Result<Event, Error>> {
        if news.turn != self.turn {
            (self.turn, self.known) = (news.turn, 0);
        }
        let decision = news.after(self.known)?;
        self.known = decision.number;
        let event = Event::default().event("decision");
        let event = event.id(decision.number.to_string());
        Some(event.json_data(DecisionBody::new(&self.state, decision)))
    }
}
