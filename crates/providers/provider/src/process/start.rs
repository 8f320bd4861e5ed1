//! Starts one child.

use std::{
    io,
    os::fd::AsFd,
    process::{Command, Stdio},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sextant_types::{DeviceTypeName, WorkerId};
use uuid::Uuid;

use super::{
    NAME, POOL, Place, Template, away,
    folder::Folder,
    life::{MARK, MARK_POOL},
    record::Record,
    refused,
};
use crate::Error;

/// A unique name, with the least number that none of these machines has.
pub(super) fn name(pool: &DeviceTypeName, machines: &[Record]) -> Result<WorkerId, Error> {
    let own = machines.iter().filter(|machine| machine.pool == *pool);
    let taken: Vec<_> = own.filter_map(Record::number).collect();
    let number = (1..).find(|number| !taken.contains(number)).unwrap_or(1);
    let (random, ..) = Uuid::new_v4().as_fields();
    WorkerId::new(format!("{pool}-{number}-{random:08x}")).map_err(|_| Error::Settings {
        pool: pool.clone(),
        reason: "its name is too long to begin the names of workers: shorten it".to_owned(),
    })
}

/// Starts the process and returns its id. A task waits for its end, so that it is reaped.
pub(super) fn start(
    template: &Template,
    record: &Record,
    folder: &Folder<'_>,
) -> Result<i32, Error> {
    let log = folder.log(&record.id)?;
    let copy = log.as_fd().try_clone_to_owned();
    let copy = copy.map_err(|error| away("a log's second handle", error))?;
    let mut command = command(template, record);
    command.stdin(Stdio::null()).stdout(log).stderr(copy);
    let place = place(template, record);
    let mut child = held_to(place.map_or(&[], |place| &place.cores), || {
        tokio::process::Command::from(command).spawn()
    })
    .map_err(|error| not_started(template, record, &error))?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let id = record.id.clone();
    tokio::spawn(async move {
        match child.wait().await {
            Ok(status) => tracing::info!(machine = id, "its process ended: {status}"),
            Err(error) => tracing::warn!(machine = id, "its process is not waited for: {error}"),
        }
    });
    pid.ok_or_else(|| refused(&record.id, "it ended before it had a process id"))
}

/// The place of the machine, if the template has places.
fn place<'a>(template: &'a Template, record: &Record) -> Option<&'a Place> {
    let number = usize::try_from(record.number()?.checked_sub(1)?).ok()?;
    template
        .places
        .get(number.checked_rem(template.places.len())?)
}

/// Calls `start` with the thread restricted to these cores: a child inherits the cores of the
/// thread that starts it.
fn held_to<T>(cores: &[usize], start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if cores.is_empty() {
        return start();
    }
    let own = sched_getaffinity(None)?;
    let mut held = CpuSet::new();
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        held.set(*core);
    }
    sched_setaffinity(None, &held)?;
    let started = start();
    // The thread has other work to do. The started child runs even if this fails, so its result
    // must not be lost.
    if let Err(error) = sched_setaffinity(None, &own) {
        tracing::warn!(%error, "a thread keeps to the cores of the machine that it has started");
    }
    started
}

fn command(template: &Template, record: &Record) -> Command {
    use std::os::unix::process::CommandExt;
    let filled = |text: &String| {
        text.replace(NAME, &record.id)
            .replace(POOL, record.pool.as_str())
    };
    let mut command = Command::new(filled(&template.program));
    let place = place(template, record).map_or(&[][..], |place| &place.arguments);
    command.args(template.arguments.iter().chain(place).map(filled));
    for name in &template.without {
        command.env_remove(name);
    }
    for (name, value) in &template.environment {
        command.env(name, filled(value));
    }
    command
        .env(MARK, &record.id)
        .env(MARK_POOL, record.pool.as_str());
    command.process_group(0);
    command
}

fn not_started(template: &Template, record: &Record, error: &io::Error) -> Error {
    let program = &template.program;
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Error::Settings {
            pool: record.pool.clone(),
            reason: format!("`{program}` cannot be started, name a program that can: {error}"),
        },
        _ => refused(&format!("`{program}` was not started"), error),
    }
}
