//! Transitions: read, decide, write if nothing has changed in between.

use std::collections::HashSet;

use redis::ScriptInvocation;
use sextant_metadata::{Error, Instance, Transition, carry_out};

use crate::{
    connection::{Connection, unavailable},
    decode::{self, Fields, document, instance_name},
    scripts,
};

/// Instances in one script: it blocks the server for about a millisecond.
const AT_ONCE: usize = 128;

/// Applies one command. Starts again as long as others write in between.
pub async fn one(
    connection: &Connection,
    transition: &Transition,
    now_ms: u64,
) -> Result<Instance, Error> {
    let attempts = async || {
        loop {
            let mut answers = attempt(connection, &[transition], now_ms).await?;
            if let Some(Outcome::Done(answer)) = answers.pop() {
                return *answer;
            }
        }
    };
    let within = tokio::time::timeout(connection.limit(), attempts());
    within.await.unwrap_or_else(|_| {
        Err(unavailable(format!(
            "instance `{}` could not be written: others write it all the time or Redis is slow",
            transition.key
        )))
    })
}

/// Applies many commands, many in one round trip.
pub async fn many(
    connection: &Connection,
    transitions: &[Transition],
    now_ms: u64,
) -> Vec<Result<Instance, Error>> {
    let mut answers = Vec::with_capacity(transitions.len());
    for chunk in transitions.chunks(AT_ONCE) {
        if let Some(Err(Error::Unavailable { reason })) = answers.last() {
            // A caller that has waited for one chunk in vain need not wait for each.
            let reason = reason.clone();
            answers.extend(chunk.iter().map(|_| Err(unavailable(&reason))));
        } else {
            answers.extend(together(connection, chunk, now_ms).await);
        }
    }
    answers
}

/// Applies the first command of each instance in one round trip, and the rest one by one.
async fn together(
    connection: &Connection,
    chunk: &[Transition],
    now_ms: u64,
) -> Vec<Result<Instance, Error>> {
    let mut seen = HashSet::new();
    let is_first = |transition: &Transition| seen.insert(transition.key.clone());
    let first: Vec<bool> = chunk.iter().map(is_first).collect();
    let firsts = chunk.iter().zip(&first).filter(|(_, first)| **first);
    let firsts: Vec<&Transition> = firsts.map(|(transition, _)| transition).collect();
    let mut outcomes = match attempt(connection, &firsts, now_ms).await {
        Ok(outcomes) => outcomes.into_iter(),
        Err(error) => {
            let reason = error.to_string();
            return chunk.iter().map(|_| Err(unavailable(&reason))).collect();
        }
    };
    let mut answers = Vec::with_capacity(chunk.len());
    for (transition, first) in chunk.iter().zip(first) {
        let outcome = if first { outcomes.next() } else { None };
        answers.push(match outcome {
            Some(Outcome::Done(answer)) => *answer,
            _ => one(connection, transition, now_ms).await,
        });
    }
    answers
}

enum Outcome {
    Done(Box<Result<Instance, Error>>),
    /// Something on which the decision rests had changed: nothing was written.
    Raced,
}

/// A decision, and the values on which it rests.
struct Decision {
    name: String,
    version: u64,
    lease_until_ms: u64,
    /// If the key is free: the version that the first version of the key must exceed.
    floor: Option<u64>,
    /// Whether only the version and the load are new.
    is_report: bool,
    next: Instance,
    document: String,
}

/// One round of reading and writing. Fails if the server did not answer.
async fn attempt(
    connection: &Connection,
    transitions: &[&Transition],
    now_ms: u64,
) -> Result<Vec<Outcome>, Error> {
    let names = transitions.iter().map(|it| instance_name(&it.key));
    let names: Vec<String> = names.collect();
    let (clock_ms, floor, found) = read(connection, &names, now_ms).await?;
    let mut decisions = Vec::with_capacity(transitions.len());
    let mut outcomes = Vec::with_capacity(transitions.len());
    for ((transition, name), fields) in transitions.iter().zip(names).zip(&found) {
        match decide(transition, name, fields, (floor, clock_ms)) {
            Ok(decision) => {
                outcomes.push(Outcome::Raced);
                decisions.push((outcomes.len() - 1, decision));
            }
            Err(error) => outcomes.push(Outcome::Done(Box::new(Err(error)))),
        }
    }
    if decisions.is_empty() {
        return Ok(outcomes);
    }
    let write = connection.script(&scripts::WRITE, now_ms, |call| {
        decisions.iter().for_each(|(_, it)| add(call, it));
    });
    let written: Vec<u8> = write.await?;
    for ((index, decision), written) in decisions.into_iter().zip(written) {
        if written == 1 {
            outcomes[index] = Outcome::Done(Box::new(Ok(decision.next)));
        }
    }
    Ok(outcomes)
}

/// The present instances of these names, with the time and the floor.
async fn read(
    connection: &Connection,
    names: &[String],
    now_ms: u64,
) -> Result<(u64, u64, Vec<Fields>), Error> {
    let read = connection.script(&scripts::READ, now_ms, |call| {
        call.arg(names);
    });
    let answer: Vec<redis::Value> = read.await?;
    let mut answer = answer.into_iter();
    let mut next = || answer.next().unwrap_or(redis::Value::Nil);
    let (clock_ms, floor) = (value(next())?, value(next())?);
    let found: Result<Vec<Fields>, Error> = answer.map(value).collect();
    Ok((clock_ms, floor, found?))
}

/// One instance in its present state.
pub async fn look(
    connection: &Connection,
    key: &sextant_metadata::InstanceKey,
) -> Result<Option<Instance>, Error> {
    let (_, _, found) = read(connection, &[instance_name(key)], 0).await?;
    match found.first() {
        Some(fields) => decode::instance(key, fields, lease(fields)?.unwrap_or(0)),
        None => Ok(None),
    }
}

fn decide(
    transition: &Transition,
    name: String,
    fields: &Fields,
    (floor, clock_ms): (u64, u64),
) -> Result<Decision, Error> {
    let key = &transition.key;
    let Some(lease_until_ms) = lease(fields)? else {
        return Err(Error::UnknownWorker(key.worker.clone()));
    };
    let current = decode::instance(key, fields, lease_until_ms)?;
    let version = current.as_ref().map_or(0, |current| current.version);
    if let Some(expected) = transition.expected_version
        && expected != version
    {
        return Err(Error::Conflict {
            key: key.clone(),
            expected,
            current: current.map(Box::new),
        });
    }
    let is_free = current.is_none();
    let before = current.unwrap_or_else(|| Instance {
        lease_until_ms,
        ..Instance::absent(key.clone(), transition.application.clone(), floor)
    });
    let next = carry_out(&before, transition, clock_ms)?;
    let same = (before.state, before.since_ms, &before.reason);
    Ok(Decision {
        is_report: !is_free && same == (next.state, next.since_ms, &next.reason),
        name,
        version,
        lease_until_ms,
        floor: is_free.then_some(floor),
        document: document(&next)?,
        next,
    })
}

/// Adds the arguments of one instance for the script that writes.
fn add(call: &mut ScriptInvocation<'_>, decision: &Decision) {
    let floor = decision.floor.map(|floor| floor.to_string());
    let next = &decision.next;
    // The conversion of a text into JSON cannot fail.
    let reason = document(&next.reason).unwrap_or_else(|_| "null".to_owned());
    call.arg(&decision.name)
        .arg(decision.version)
        .arg(decision.lease_until_ms)
        .arg(floor.unwrap_or_default())
        .arg(next.version)
        .arg(next.load)
        .arg(u8::from(decision.is_report))
        .arg(next.application.as_str())
        .arg(next.state.as_str())
        .arg(next.since_ms)
        .arg(reason)
        .arg(&decision.document);
}

/// The end of the lease of the instance's worker; `None` if the worker does not exist.
fn lease(fields: &Fields) -> Result<Option<u64>, Error> {
    let Some(text) = &fields.6 else {
        return Ok(None);
    };
    let lease = text.parse().map_err(|_| {
        unavailable(
            "the end of a lease in Redis is not a number: was it written by another program?",
        )
    });
    lease.map(Some)
}

fn value<T: redis::FromRedisValue>(value: redis::Value) -> Result<T, Error> {
    redis::from_redis_value(value)
        .map_err(|error| unavailable(format!("an answer of Redis is not as expected: {error}")))
}
