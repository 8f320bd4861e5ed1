//! The records that leaders write as a whole. The content is stored without the token, so that a script can compare
//! contents. A demand's event in the feed has no content; readers get it from the one place where it is stored.
//! Otherwise a demand in every second would fill the history.

use std::sync::Arc;

use sextant_metadata::{Demand, DesiredState, Error, Event};

use crate::{
    connection::Connection,
    decode::{self, document},
    scripts,
};

/// A record: its name, and the name of the hash that has it.
struct Record {
    name: &'static str,
    stored: &'static str,
}

/// The name of its hash is the one that processes of the previous version know.
const DESIRED: Record = Record {
    name: "desired",
    stored: "wanted",
};

const DEMAND: Record = Record {
    name: "demand",
    stored: "demand",
};

/// Replaces the desired state.
pub async fn set_desired(connection: &Connection, desired: DesiredState) -> Result<(), Error> {
    let token = desired.token;
    let content = document(&DesiredState {
        token: 0,
        ..desired
    })?;
    let event = content.clone();
    set(connection, DESIRED, token, [content, event]).await
}

/// Replaces the demand.
pub async fn set_demand(connection: &Connection, demand: Demand) -> Result<(), Error> {
    let token = demand.token;
    let content = document(&Demand { token: 0, ..demand })?;
    set(connection, DEMAND, token, [content, String::new()]).await
}

async fn set(
    connection: &Connection,
    record: Record,
    token: u64,
    [content, event]: [String; 2],
) -> Result<(), Error> {
    let set = connection.script(&scripts::RECORD, 0, |call| {
        call.arg(record.stored).arg(token).arg(content).arg(event);
    });
    let seen: u64 = set.await?;
    if seen > token {
        return Err(Error::Fenced {
            record: record.name,
            token,
            seen,
        });
    }
    Ok(())
}

/// The event at `position`, which is of a demand: with its content, unless another demand has replaced it.
pub async fn demand_at(connection: &Connection, position: u64) -> Result<Event, Error> {
    let mut read = redis::cmd("HMGET");
    read.arg(connection.key("demand"))
        .arg(&["content", "token", "position"]);
    let held: (Option<String>, Option<u64>, Option<u64>) = connection.command(&read).await?;
    let demand = match held {
        (Some(content), Some(token), Some(at)) if at == position => {
            Some(Arc::new(decode::demand(&content, token)?))
        }
        _ => None,
    };
    Ok(Event::DemandChanged(demand))
}
