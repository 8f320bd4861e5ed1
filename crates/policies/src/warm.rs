//! Which variants stay loaded: the part of scaling that needs no load forecast.
//!
//! A query whose variant is not loaded pays the load time. Loading everything would waste memory,
//! so the frontier (variants that nothing dominates) is kept warm inside a share of each worker's
//! memory, smallest first, because that keeps the largest number of different answers ready. What
//! has not been used for a while and is not on the frontier is unloaded. A variant that failed to
//! load is left alone until it is registered anew.

/// One variant as the policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The caller's number for the variant.
    pub ordinal: u32,
    /// Whether it may still be asked for; what is not is unloaded at once.
    pub published: bool,
    /// Whether another variant is at least as good in everything.
    pub dominated: bool,
    /// Memory it needs when loaded, bytes.
    pub memory_bytes: u64,
    /// What there is of it on the worker.
    pub presence: Presence,
    /// How long it has answered no query, ms.
    pub idle_ms: u64,
}

/// What there is of a variant on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Not loaded.
    Absent,
    /// Loading or draining: left alone, counted as present.
    Moving,
    /// Loaded.
    Loaded,
    /// The last load failed.
    Failed,
}

/// Budget and patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that warm variants may occupy on the worker.
    pub warm_bytes: u64,
    /// Loaded variants outside the frontier are unloaded after this long without a query, ms.
    pub idle_unload_ms: u64,
}

/// What to do, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Load it: it is on the frontier and there is room.
    Load(u32),
    /// Unload it: retired, or unused and dominated or beyond the budget.
    Unload(u32),
}

/// Plans loads and unloads for one worker. The result does not depend on the order of `items`;
/// applying it and planning again yields nothing, unless something changed.
pub fn plan(items: &[Item], budget: &Budget) -> Vec<Action> {
    let (published, retired): (Vec<&Item>, Vec<&Item>) =
        items.iter().partition(|item| item.published);
    let (mut dominated, mut frontier): (Vec<&Item>, Vec<&Item>) =
        published.into_iter().partition(|item| item.dominated);
    frontier.sort_by_key(|item| (item.memory_bytes, item.ordinal));
    let mut actions = Vec::new();
    let mut kept: u64 = 0;
    for item in &frontier {
        let fits = kept.saturating_add(item.memory_bytes) <= budget.warm_bytes;
        match item.presence {
            _ if !fits => actions.extend(unload_when_idle(item, budget)),
            Presence::Failed => {}
            Presence::Absent => {
                kept += item.memory_bytes;
                actions.push(Action::Load(item.ordinal));
            }
            Presence::Loaded | Presence::Moving => kept += item.memory_bytes,
        }
    }
    dominated.sort_by_key(|item| item.ordinal);
    actions.extend(
        dominated
            .into_iter()
            .filter_map(|item| unload_when_idle(item, budget)),
    );
    let mut gone: Vec<u32> = retired
        .into_iter()
        .filter(|item| item.presence == Presence::Loaded)
        .map(|item| item.ordinal)
        .collect();
    gone.sort_unstable();
    actions.extend(gone.into_iter().map(Action::Unload));
    actions
}

fn unload_when_idle(item: &Item, budget: &Budget) -> Option<Action> {
    let idle = item.presence == Presence::Loaded && item.idle_ms >= budget.idle_unload_ms;
    idle.then_some(Action::Unload(item.ordinal))
}
