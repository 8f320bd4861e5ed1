//! Follows the feed: reads what came after a position, and waits for more. One reader of a store
//! watches the feed and wakes all waiting callers.

use std::time::Duration;

use redis::{
    aio::MultiplexedConnection,
    streams::{StreamReadOptions, StreamReadReply},
};
use sextant_metadata::{Changes, Cursor, Error, Event};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    connection::{Connection, failed, unavailable},
    decode::{self, Entry},
    record, scripts,
};

/// Delay before followers read after a change; they read everything that comes within it at once.
const GATHER: Duration = Duration::from_millis(3);
/// Events in one answer: a follower that is far behind must not block the server.
const PAGE: usize = 1024;
/// Shortest time between two attempts to reach the server; doubled each time up to the longest.
const LEAST_BACK_OFF: Duration = Duration::from_millis(20);
const GREATEST_BACK_OFF: Duration = Duration::from_millis(500);

/// The events after `cursor`.
pub async fn changes(connection: &Connection, cursor: Cursor) -> Result<Changes, Error> {
    let mut changes = Changes {
        events: Vec::new(),
        cursor,
    };
    loop {
        let (head, entries) = match page(connection, changes.cursor).await {
            Ok(page) => page,
            // The events read so far still count; the next call returns the error.
            Err(_) if !changes.events.is_empty() => return Ok(changes),
            Err(error) => return Err(error),
        };
        match events(connection, &entries).await {
            Ok(events) => changes.events.extend(events),
            Err(Error::Unavailable { .. }) if !changes.events.is_empty() => return Ok(changes),
            Err(error) => return Err(error),
        }
        match entries.last() {
            Some((id, _)) if entries.len() == PAGE => {
                changes.cursor = Cursor(decode::position(id)?);
            }
            _ => {
                changes.cursor = head;
                return Ok(changes);
            }
        }
    }
}

/// Decodes the entries.
async fn events(connection: &Connection, entries: &[Entry]) -> Result<Vec<Event>, Error> {
    let events: Result<Vec<Event>, Error> = entries.iter().map(decode::event).collect();
    let mut events = events?;
    let is_demand = |event: &Event| matches!(event, Event::DemandChanged(_));
    // The demands before the last one have been replaced.
    if let Some(last) = events.iter().rposition(is_demand) {
        let position = decode::position(&entries[last].0)?;
        events[last] = record::demand_at(connection, position).await?;
    }
    Ok(events)
}

/// Some of the events after `cursor`, and the end of the feed.
///
/// A cursor is valid if it is the feed's end, one of its events, or just before the first of them.
/// A cursor between two events belongs to writes that the server has lost. This is not a script: a
/// script would convert each event into its own values and back.
async fn page(connection: &Connection, cursor: Cursor) -> Result<(Cursor, Vec<Entry>), Error> {
    let feed = connection.key("feed");
    let id = format!("{cursor}-0");
    let mut read = redis::pipe();
    read.atomic()
        .hget(connection.key("state"), "cursor")
        .xrange_count(&feed, "-", "+", 1)
        .xrange_count(&feed, &id, &id, 1)
        .xrange_count(&feed, format!("({id}"), "+", PAGE);
    type Answer = (Option<u64>, Vec<Entry>, Vec<Entry>, Vec<Entry>);
    let (head, first, asked, entries): Answer = connection.together(&read).await?;
    let head = match head {
        Some(head) => Cursor(head),
        None => Cursor(read_head(connection).await?),
    };
    let oldest = match first.first() {
        Some(entry) => Cursor(decode::previous(entry)?),
        None => head,
    };
    if cursor != head && cursor != oldest && asked.is_empty() {
        return Err(Error::Trimmed { cursor, oldest });
    }
    Ok((head, entries))
}

/// What the reader knows about the feed's end.
#[derive(Debug, Clone, PartialEq)]
enum Head {
    /// The reader has just started.
    Unknown,
    /// The last event that it saw; later ones wake it.
    At(u64),
    /// The server is away; the reason.
    Lost(String),
}

/// The task that watches the feed. It ends with its owner.
pub struct Reader {
    head: watch::Receiver<Head>,
    task: JoinHandle<()>,
}

impl Reader {
    /// Starts to watch.
    pub fn start(connection: &Connection) -> Self {
        let (sender, head) = watch::channel(Head::Unknown);
        let task = tokio::spawn(watch_feed(connection.clone(), sender));
        Self { head, task }
    }

    /// Waits until the feed's end is not `cursor`. Fails if the server goes away meanwhile.
    pub async fn changed(&self, connection: &Connection, cursor: Cursor) -> Result<(), Error> {
        let mut head = self.head.clone();
        let mut asked = false;
        loop {
            let known = head.borrow_and_update().clone();
            match known {
                Head::At(at) if at > cursor.0 => return Ok(()),
                Head::At(at) if at == cursor.0 => {}
                Head::Lost(reason) if asked => return Err(unavailable(reason)),
                // The reader is behind, or the cursor is not of this feed.
                _ => {
                    if read_head(connection).await? != cursor.0 {
                        return Ok(());
                    }
                }
            }
            // A loss from now on happened during the wait.
            asked = true;
            let gone = |_| unavailable("the store was closed");
            head.changed().await.map_err(gone)?;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The position of the last event. In an empty store it begins a life.
async fn read_head(connection: &Connection) -> Result<u64, Error> {
    connection.script(&scripts::HEAD, 0, |_| {}).await
}

async fn watch_feed(connection: Connection, sender: watch::Sender<Head>) {
    let mut back_off = LEAST_BACK_OFF;
    loop {
        let mut waiting = None;
        let error = loop {
            match follow(&connection, &mut waiting, &sender).await {
                Ok(()) => back_off = LEAST_BACK_OFF,
                Err(error) => break error,
            }
        };
        tracing::warn!(%error, "the feed of changes cannot be read");
        let reason = match error {
            Error::Unavailable { reason } => reason,
            other => other.to_string(),
        };
        sender.send_replace(Head::Lost(reason));
        tokio::time::sleep(back_off).await;
        back_off = (2 * back_off).min(GREATEST_BACK_OFF);
    }
}

/// Reads the feed's end, publishes it, and waits for more with a time limit: a store that was
/// emptied wakes nobody.
async fn follow(
    connection: &Connection,
    waiting: &mut Option<MultiplexedConnection>,
    sender: &watch::Sender<Head>,
) -> Result<(), Error> {
    let waiting = match waiting {
        Some(waiting) => waiting,
        None => waiting.insert(connection.another().await?),
    };
    let head = read_head(connection).await?;
    sender.send_if_modified(|known| {
        let next = Head::At(head);
        let differs = *known != next;
        *known = next;
        differs
    });
    // The answer must come within the longest time of a call.
    let block = connection.limit() / 4;
    let options = StreamReadOptions::default()
        .block(usize::try_from(block.as_millis()).unwrap_or(1).max(1))
        .count(1);
    let mut command = redis::cmd("XREAD");
    command
        .arg(&options)
        .arg("STREAMS")
        .arg(connection.key("feed"))
        .arg(format!("{head}-0"));
    let answer: Option<StreamReadReply> =
        command.query_async(waiting).await.map_err(|e| failed(&e))?;
    if answer.is_some_and(|answer| !answer.keys.is_empty()) {
        tokio::time::sleep(GATHER).await;
    }
    Ok(())
}
