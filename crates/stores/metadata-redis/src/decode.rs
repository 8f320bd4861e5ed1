//! Decodes the server's answers into records.

use std::{collections::HashMap, sync::Arc};

use serde::de::DeserializeOwned;
use sextant_metadata::{
    Candidate, Cursor, Demand, DesiredState, Error, Event, Instance, InstanceKey, InstanceState,
    Leader, Snapshot, Worker,
};
use sextant_types::{ApplicationId, VariantId, WorkerId};

use crate::connection::unavailable;

/// The fields of an instance, in the order in which scripts read them; they are `None` if the
/// instance does not exist. The last one is the end of the worker's lease, or in a snapshot the
/// instance's name.
pub type Fields = (
    Option<String>,
    Option<String>,
    Option<u64>,
    Option<u64>,
    Option<f64>,
    Option<String>,
    Option<String>,
);
/// An entry of the feed: its id, then alternating names and values.
pub type Entry = (String, Vec<String>);
/// A worker: its name, its record, its lease and whether it is marked to leave (`1`).
pub type WorkerFields = (String, String, u64, Option<String>);
/// The answer of the script of snapshots.
pub type Content = (
    u64,
    u64,
    u64,
    Vec<String>,
    Vec<Fields>,
    Vec<WorkerFields>,
    Vec<(String, u64, u64)>,
    Vec<(Option<String>, Option<u64>)>,
);

/// `variant@worker`.
pub fn instance_name(key: &InstanceKey) -> String {
    format!("{}@{}", key.variant, key.worker)
}

/// A record's JSON text.
pub fn document<T: serde::Serialize>(record: &T) -> Result<String, Error> {
    serde_json::to_string(record).map_err(|error| unreadable(&error))
}

/// An instance from its fields; `None` if it does not exist.
pub fn instance(
    key: &InstanceKey,
    fields: &Fields,
    lease_until_ms: u64,
) -> Result<Option<Instance>, Error> {
    let (Some(application), Some(state), Some(version), Some(since_ms), Some(load), reason, _) =
        fields
    else {
        return Ok(None);
    };
    let reason = reason.as_deref().unwrap_or("null");
    Ok(Some(Instance {
        key: key.clone(),
        application: ApplicationId::new(application).map_err(|e| unreadable(&e))?,
        state: InstanceState::parse(state).ok_or_else(|| unreadable(state))?,
        version: *version,
        since_ms: *since_ms,
        lease_until_ms,
        load: *load,
        reason: parse(reason)?,
    }))
}

/// The snapshot that a script read at one moment, and the time of that moment.
pub fn snapshot(content: Content) -> Result<(Snapshot, u64), Error> {
    let (now_ms, cursor, life, variants, instances, workers, leaders, records) = content;
    let variants: Result<Vec<_>, _> = variants.iter().map(|text| parse(text)).collect();
    let workers: Result<Vec<_>, _> = workers.into_iter().map(worker).collect();
    let leaders: Result<Vec<_>, _> = leaders.iter().map(leader).collect();
    let mut snapshot = Snapshot {
        variants: variants?.into_iter().map(Arc::new).collect(),
        instances: Vec::new(),
        workers: workers?,
        leaders: leaders?,
        desired: recorded(&records, 0, desired)?,
        demand: recorded(&records, 1, demand)?,
        life,
        cursor: Cursor(cursor),
    };
    snapshot.instances = held(&instances, &snapshot.workers)?;
    snapshot.variants.sort_by(|a, b| a.id.cmp(&b.id));
    snapshot.instances.sort_by(|a, b| a.key.cmp(&b.key));
    snapshot.workers.sort_by(|a, b| a.id.cmp(&b.id));
    let role = |leader: &Leader| Arc::clone(&leader.candidate.role);
    snapshot.leaders.sort_by_key(role);
    Ok((snapshot, now_ms))
}

/// One change.
pub fn event(entry: &Entry) -> Result<Event, Error> {
    let (id, fields) = entry;
    let field = |index: usize| fields.get(index).map_or("", String::as_str);
    let (kind, name, text, lease) = (field(3), field(5), field(7), field(9));
    Ok(match kind {
        "variant_published" => Event::VariantPublished(Arc::new(parse(text)?)),
        "variant_retired" => Event::VariantRetired(variant_id(name)?),
        "instance_changed" => Event::InstanceChanged(parse(text)?),
        "instance_removed" => Event::InstanceRemoved(instance_key(name)?),
        "worker_changed" => {
            let (lease_until_ms, mark) = (number(lease)?, fields.get(11).cloned());
            let known = (name.to_owned(), text.to_owned(), lease_until_ms, mark);
            Event::WorkerChanged(worker(known)?)
        }
        "worker_removed" => Event::WorkerRemoved(worker_id(name)?),
        "leader_changed" => {
            // The event's position is the token.
            let token = position(id)?;
            Event::LeaderChanged(leader(&(text.to_owned(), token, number(lease)?))?)
        }
        "leader_gone" => Event::LeaderGone(name.into()),
        "wanted_changed" => Event::DesiredChanged(Arc::new(desired(text, number(lease)?)?)),
        // The reader of the feed gets the content from its own place.
        "demand_changed" => Event::DemandChanged(None),
        other => return Err(unreadable(other)),
    })
}

/// The position of an entry of the feed.
pub fn position(id: &str) -> Result<u64, Error> {
    number(id.split('-').next().unwrap_or(id))
}

/// The position before that of an entry of the feed.
pub fn previous((_, fields): &Entry) -> Result<u64, Error> {
    number(fields.get(1).map_or("", String::as_str))
}

/// A leader from its candidate's document, its token and its lease.
pub fn leader((text, token, lease_until_ms): &(String, u64, u64)) -> Result<Leader, Error> {
    Ok(Leader {
        candidate: parse::<Candidate>(text)?,
        token: *token,
        lease_until_ms: *lease_until_ms,
    })
}

/// The desired state from its content and its writer's token.
pub fn desired(content: &str, token: u64) -> Result<DesiredState, Error> {
    let desired: DesiredState = parse(content)?;
    Ok(DesiredState { token, ..desired })
}

/// The demand from its content and its writer's token.
pub fn demand(content: &str, token: u64) -> Result<Demand, Error> {
    let demand: Demand = parse(content)?;
    Ok(Demand { token, ..demand })
}

/// One of the records that a script read; `None` if nobody has written it.
fn recorded<T>(
    records: &[(Option<String>, Option<u64>)],
    index: usize,
    read: impl Fn(&str, u64) -> Result<T, Error>,
) -> Result<Option<Arc<T>>, Error> {
    match records.get(index) {
        Some((Some(content), Some(token))) => Ok(Some(Arc::new(read(content, *token)?))),
        _ => Ok(None),
    }
}

/// The inverse of [`instance_name`].
pub fn instance_key(name: &str) -> Result<InstanceKey, Error> {
    let (variant, worker) = name.split_once('@').ok_or_else(|| unreadable(name))?;
    Ok(InstanceKey::new(variant_id(variant)?, worker_id(worker)?))
}

/// A variant's name.
pub fn variant_id(name: &str) -> Result<VariantId, Error> {
    VariantId::new(name).map_err(|error| unreadable(&error))
}

/// A worker's name.
pub fn worker_id(name: &str) -> Result<WorkerId, Error> {
    WorkerId::new(name).map_err(|error| unreadable(&error))
}

/// A worker from its fields.
pub fn worker((name, record, lease_until_ms, mark): WorkerFields) -> Result<Worker, Error> {
    Ok(Worker {
        id: worker_id(&name)?,
        record: parse(&record)?,
        lease_until_ms,
        leaving: mark.as_deref() == Some("1"),
    })
}

/// The instances with the leases of their workers.
fn held(instances: &[Fields], workers: &[Worker]) -> Result<Vec<Instance>, Error> {
    let leases = workers.iter().map(|it| (&it.id, it.lease_until_ms));
    let leases: HashMap<_, _> = leases.collect();
    let found = instances.iter().map(|fields| {
        let key = instance_key(fields.6.as_deref().unwrap_or_default())?;
        let lease_until_ms = leases.get(&key.worker).copied().unwrap_or(0);
        instance(&key, fields, lease_until_ms)
    });
    found.filter_map(Result::transpose).collect()
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| unreadable(text))
}

fn unreadable(what: &(impl std::fmt::Display + ?Sized)) -> Error {
    unavailable(format!(
        "a record in Redis is not of this version of Sextant: {what}"
    ))
}
