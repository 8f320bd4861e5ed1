//! Measures how long it takes to load a model onto a device: into the pages that it had, into others, and for the first
//! time.
//!
//! In the pages that it had, a model uses its captured graphs again, and a load is only a copy. The same holds in other
//! pages that are mapped into the model's window. If pages cannot be mapped, the graphs are captured again. The first
//! time, the file is also read, planned and packed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_engine::{Engine, Error, LoadRequest, LoadedModel};

use crate::{Config, CudaEngine};

/// Makes a request for the model under a name of its own. The engine does not know a model that it gets under a new
/// name.
pub type RequestMaker<'a> = &'a dyn Fn(u32) -> LoadRequest;

/// Names that the functions here use; `first` counts upwards from the last one.
const SUBJECT: u32 = 1;
const BLOCKERS: [u32; 2] = [2, 3];
const NEW: u32 = 16;

/// Loads that brought a model into other pages.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    /// The time of each load.
    pub loads: Vec<Duration>,
    /// For each load, the time of the calls that map its pages; the device copies meanwhile.
    pub mapping: Vec<Duration>,
}

/// The number of pages that the model takes.
///
/// # Errors
/// Those of [`Engine::load`].
pub fn pages(engine: &CudaEngine, named: RequestMaker<'_>) -> Result<u64, Error> {
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
    named: RequestMaker<'_>,
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
    named: RequestMaker<'_>,
    times: u32,
) -> Result<Vec<Duration>, Error> {
    drop(engine.load(&named(SUBJECT))?);
    (0..times)
        .map(|_| Ok(timed(engine, named, SUBJECT)?.0))
        .collect()
}

/// Loads into pages that the model did not have the last time. `engine` must have [`room_to_move`]. `look` is called
/// with the model in each new place.
///
/// # Errors
/// Those of [`Engine::load`] and of `look`.
pub fn other_pages(
    engine: &CudaEngine,
    named: RequestMaker<'_>,
    times: u32,
    look: &mut dyn FnMut(&dyn LoadedModel) -> Result<(), Error>,
) -> Result<Moves, Error> {
    load_blockers(engine, named)?;
    let mut moves = Moves::default();
    for turn in 0..=times {
        let blocker = engine.load(&blocker(named, turn))?;
        let before = engine.mapping_time();
        let (duration, model) = timed(engine, named, SUBJECT)?;
        let mapping = engine.mapping_time() - before;
        look(&*model)?;
        drop((blocker, model));
        // The first turn only brings the model to the place from which the second turn moves it.
        if turn > 0 {
            moves.loads.push(duration);
            moves.mapping.push(mapping);
        }
    }
    Ok(moves)
}

/// Loads by turns into other pages and into the same pages until `until` is over, at least once. Returns the number of
/// loads. `engine` must have at most twice the pages of the model free.
///
/// # Errors
/// Those of [`Engine::load`].
pub fn keep_moving(
    engine: &CudaEngine,
    named: RequestMaker<'_>,
    over: &AtomicBool,
) -> Result<u32, Error> {
    load_blockers(engine, named)?;
    let mut turn = 0;
    loop {
        let blocker = engine.load(&blocker(named, turn))?;
        let model = engine.load(&named(SUBJECT))?;
        drop((blocker, model));
        turn += 1;
        if over.load(Ordering::Relaxed) {
            return Ok(2 * turn);
        }
    }
}

/// The configuration with which [`other_pages`] can work: twice the pages that the model takes, and no more.
pub fn room_to_move(config: Config, pages: u64) -> Config {
    Config {
        pages: Some(2 * pages),
        ..config
    }
}

/// Loads two blockers that share the pages. Each comes back to its own pages. While one is loaded, the model gets the
/// pages of the other.
fn load_blockers(engine: &CudaEngine, named: RequestMaker<'_>) -> Result<(), Error> {
    let blockers = [0, 1].map(|turn| engine.load(&blocker(named, turn)));
    blockers.into_iter().try_for_each(|it| it.map(drop))
}

fn blocker(named: RequestMaker<'_>, turn: u32) -> LoadRequest {
    named(BLOCKERS[turn as usize % 2])
}

fn timed(
    engine: &CudaEngine,
    named: RequestMaker<'_>,
    name: u32,
) -> Result<(Duration, Arc<dyn LoadedModel>), Error> {
    let request = named(name);
    let started = Instant::now();
    let model = engine.load(&request)?;
    Ok((started.elapsed(), model))
}
