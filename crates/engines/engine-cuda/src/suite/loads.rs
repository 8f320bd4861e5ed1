//! How long it takes to bring a model onto a device: into the pages that it had, into others, for the first time.
//!
//! In pages that it had, a model's captured graphs serve again and a load is nothing but a copy. So they do in others that
//! are mapped into the model's window; where pages cannot be mapped, graphs are captured again. The first time, the file
//! is also read, planned and packed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_engine::{Engine, Error, LoadRequest, LoadedModel};

use crate::{Config, CudaEngine};

/// A request for the model under a name of its own: what is loaded as another artefact was never seen before.
pub type RequestMaker<'a> = &'a dyn Fn(u32) -> LoadRequest;

/// Names that the functions here use; `first` goes up from the last.
const SUBJECT: u32 = 1;
const BLOCKERS: [u32; 2] = [2, 3];
const NEW: u32 = 16;

/// Loads that took a model into other pages.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    /// How long each took.
    pub loads: Vec<Duration>,
    /// How long the calls took, in each, that map its pages; the device copies meanwhile.
    pub mapping: Vec<Duration>,
}

/// Pages that the model takes.
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

/// Loads into pages that the model did not have the last time. `engine` must have [`room_to_move`]. `look` is shown the
/// model wherever it comes to lie.
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
        // The first turn only brings the model to where the second takes it away from.
        if turn > 0 {
            moves.loads.push(duration);
            moves.mapping.push(mapping);
        }
    }
    Ok(moves)
}

/// Loads into other pages and, by turns, into the same, until it is over, at least once; how many. `engine` must have no more than twice
/// the pages of the model free.
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

/// The memory in which [`other_pages`] can work: twice the pages that the model takes, and no more.
pub fn room_to_move(config: Config, pages: u64) -> Config {
    Config {
        pages: Some(2 * pages),
        ..config
    }
}

/// Two blockers share the pages; each comes back to its own. Whichever is there, the model gets the other's.
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
