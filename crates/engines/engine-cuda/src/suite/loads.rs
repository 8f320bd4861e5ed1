//! How long it takes to bring a model onto a device: into the pages that it had, into others, for the first time.
//!
//! In pages that it had, a model's captured graphs serve again and a load is nothing but a copy. In others they are
//! captured again. The first time, the file is also read, planned and packed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_engine::{Engine, Error, LoadRequest, LoadedModel};

use crate::{Config, CudaEngine};

/// A request for the model under a name of its own: what is loaded as another artefact was never seen before.
pub type Named<'a> = &'a dyn Fn(u32) -> LoadRequest;

/// Names that the functions here use; `first` goes up from the last.
const SUBJECT: u32 = 1;
const BLOCKERS: [u32; 2] = [2, 3];
const NEW: u32 = 16;

/// Pages that the model takes.
///
/// # Errors
/// Those of [`Engine::load`].
pub fn pages(engine: &CudaEngine, named: Named<'_>) -> Result<u64, Error> {
    let before = engine.free_pages();
    let model = engine.load(&named(SUBJECT))?;
    let after = engine.free_pages();
    drop(model);
    Ok(before - after)
}

/// Loads of artefacts that the engine does not know.
///
/// # Errors
/// Those of [`Engine::load`].
pub fn first_time(
    engine: &CudaEngine,
    named: Named<'_>,
    times: u32,
) -> Result<Vec<Duration>, Error> {
    (NEW..NEW + times)
        .map(|it| Ok(timed(engine, named, it)?.0))
        .collect()
}

/// Loads into the pages that the model left.
///
/// # Errors
/// Those of [`Engine::load`].
pub fn same_pages(
    engine: &CudaEngine,
    named: Named<'_>,
    times: u32,
) -> Result<Vec<Duration>, Error> {
    drop(engine.load(&named(SUBJECT))?);
    (0..times)
        .map(|_| Ok(timed(engine, named, SUBJECT)?.0))
        .collect()
}

/// Loads into pages that the model did not have the last time. `engine` must have [`room_to_move`]. `look` is shown the
/// model wherever it comes to lie.
///
/// # Errors
/// Those of [`Engine::load`] and of `look`.
pub fn other_pages(
    engine: &CudaEngine,
    named: Named<'_>,
    times: u32,
    look: &mut dyn FnMut(&dyn LoadedModel) -> Result<(), Error>,
) -> Result<Vec<Duration>, Error> {
    // Two blockers share the pages; each comes back to its own. Whichever is there, the model gets the other's.
    let blockers = BLOCKERS.map(|it| engine.load(&named(it)));
    for blocker in blockers {
        drop(blocker?);
    }
    let turns = (0..=times).map(|turn| {
        let blocker = engine.load(&named(BLOCKERS[turn as usize % 2]))?;
        let (duration, model) = timed(engine, named, SUBJECT)?;
        look(&*model)?;
        drop((blocker, model));
        Ok(duration)
    });
    let durations: Result<Vec<Duration>, Error> = turns.collect();
    // The first turn only brought the model to where the second takes it away from.
    durations.map(|all| all[1..].to_vec())
}

/// The memory in which [`other_pages`] can work: twice the pages that the model takes, and no more.
pub fn room_to_move(config: Config, pages: u64) -> Config {
    Config {
        pages: Some(2 * pages),
        ..config
    }
}

fn timed(
    engine: &CudaEngine,
    named: Named<'_>,
    name: u32,
) -> Result<(Duration, Arc<dyn LoadedModel>), Error> {
    let request = named(name);
    let started = Instant::now();
    let model = engine.load(&request)?;
    Ok((started.elapsed(), model))
}
