//! Chooses one cover for each need so that all fit.

use super::cover::{Cover, Covers};

/// The number of times that the prices of memory are adjusted.
const MOVES: usize = 200;

/// The most covers of one need that are joined with those of others.
const MOST_COVERS: usize = 2048;

/// Shares of devices that rounding may add.
const NONE: f64 = 1e-9;

/// A cover for each need.
#[derive(Debug, Clone)]
pub(super) struct JointCover {
    covers: Vec<Cover>,
    cost: f64,
    /// Whether it is optimal.
    pub(super) optimal: bool,
}

/// The greatest bound found.
struct Bound {
    value: f64,
    prices: Vec<f64>,
    /// By need: the least cost of a cover, including the price of memory.
    least: Vec<f64>,
}

/// The cheapest covers that fit into these rooms; `None` if none were found.
pub(super) fn join(covers: &[Covers], rooms: &[f64], steps: u64) -> Option<JointCover> {
    let mut left = steps;
    let (bound, mut best) = price(covers, rooms, &mut left)?;
    if let Some(found) = &best
        && found.optimal
    {
        return best;
    }
    // Without a known answer the limit is a margin over the bound, which is widened until there is an answer.
    let mut limit = match &best {
        Some(found) => found.cost - bound.value,
        None => bound.value.abs() * 0.02 + NONE,
    };
    for _ in 0..8 {
        if left == 0 {
            break;
        }
        let mut search = Search::new(covers, rooms, &bound, limit, &mut left);
        search.repair();
        let complete = search.look(0, 0.0).is_some() && search.complete;
        if let Some(chosen) = search.best.take() {
            let covers = search.cover(&chosen);
            let cost = covers.iter().map(|cover| cover.cost).sum();
            best = Some(JointCover {
                covers,
                cost,
                optimal: complete,
            });
            break;
        }
        if let (true, Some(found)) = (complete, &mut best) {
            found.optimal = true;
            break;
        }
        if best.is_some() {
            break;
        }
        limit *= 4.0;
    }
    best
}

/// Moves the prices of memory to where the sum of the cheapest covers is the best bound, and keeps the cheapest covers
/// found on the way that fit.
fn price(covers: &[Covers], rooms: &[f64], steps: &mut u64) -> Option<(Bound, Option<JointCover>)> {
    let mut prices = vec![0.0; rooms.len()];
    let mut bound: Option<Bound> = None;
    let mut best: Option<JointCover> = None;
    let mut pace = 1.0;
    for moved in 0..MOVES {
        let found: Option<Vec<(f64, Cover)>> = covers
            .iter()
            .map(|covers| covers.cheapest(&prices, steps))
            .collect();
        let Some(found) = found else { break };
        let used = used(found.iter().map(|(_, cover)| cover), rooms.len());
        let priced: f64 = found.iter().map(|(priced, _)| priced).sum();
        let paid: f64 = prices
            .iter()
            .zip(rooms)
            .map(|(price, room)| price * room)
            .sum();
        let value = priced - paid;
        let cost: f64 = found.iter().map(|(_, cover)| cover.cost).sum();
        if fits(&used, rooms) && best.as_ref().is_none_or(|best| cost < best.cost) {
            best = Some(JointCover {
                covers: found.iter().map(|(_, cover)| cover.clone()).collect(),
                cost,
                // Prices of zero exclude nothing.
                optimal: moved == 0,
            });
        }
        if moved == 0 && best.is_some() {
            let least = found.iter().map(|(priced, _)| *priced).collect();
            return Some((
                Bound {
                    value,
                    prices,
                    least,
                },
                best,
            ));
        }
        if bound.as_ref().is_none_or(|bound| value > bound.value) {
            bound = Some(Bound {
                value,
                prices: prices.clone(),
                least: found.iter().map(|(priced, _)| *priced).collect(),
            });
        } else {
            pace *= 0.95;
        }
        let over: Vec<f64> = used
            .iter()
            .zip(rooms)
            .map(|(used, room)| used - room)
            .collect();
        let length: f64 = over.iter().map(|over| over * over).sum();
        if length <= NONE {
            break;
        }
        // Polyak's step towards a value slightly above the best known.
        let aim = best.as_ref().map_or(priced * 1.05, |best| best.cost);
        let step = pace * (aim - value).max(aim.abs() * 1e-4) / length;
        for (price, over) in prices.iter_mut().zip(over) {
            *price = (*price + step * over).max(0.0);
        }
    }
    bound.map(|bound| (bound, best))
}

fn used<'a>(covers: impl Iterator<Item = &'a Cover>, devices: usize) -> Vec<f64> {
    covers.fold(vec![0.0; devices], |mut sum, cover| {
        add(&mut sum, &cover.used, 1.0);
        sum
    })
}

fn add(sum: &mut [f64], own: &[f64], sign: f64) {
    for (sum, own) in sum.iter_mut().zip(own) {
        *sum += sign * own;
    }
}

fn fits(used: &[f64], rooms: &[f64]) -> bool {
    used.iter()
        .zip(rooms)
        .all(|(used, room)| *used <= room + NONE)
}

/// A search through the covers that may be part of a better answer.
struct Search<'a> {
    /// By need, those with few covers last: the cost of a cover above the cheapest, including the price of memory.
    covers: Vec<(usize, Vec<(f64, Cover)>)>,
    /// Whether these are all covers.
    complete: bool,
    /// For each position: the least that is occupied of each type from it on.
    least_used: Vec<Vec<f64>>,
    prices: &'a [f64],
    rooms: &'a [f64],
    used: Vec<f64>,
    chosen: Vec<usize>,
    /// The most that a better answer may cost above the bound.
    limit: f64,
    best: Option<Vec<usize>>,
    steps: &'a mut u64,
}

// === impl Search ===

impl<'a> Search<'a> {
    fn new(
        all: &[Covers],
        rooms: &'a [f64],
        bound: &'a Bound,
        limit: f64,
        steps: &'a mut u64,
    ) -> Self {
        let mut complete = true;
        let mut covers = Vec::with_capacity(all.len());
        for (need, of_need) in all.iter().enumerate() {
            let least = bound.least[need];
            let (within, all) = of_need.within(&bound.prices, least + limit, MOST_COVERS, steps);
            complete &= all;
            let beyond = within
                .into_iter()
                .map(|(priced, cover)| ((priced - least).max(0.0), cover));
            let mut beyond: Vec<(f64, Cover)> = beyond.collect();
            beyond.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            covers.push((need, beyond));
        }
        // A need with one cover leaves no choice. The need with the most covers comes last.
        covers.sort_by_key(|(need, covers)| (covers.len(), *need));
        let mut least_used = vec![vec![0.0; rooms.len()]];
        for (_, of_need) in covers.iter().rev() {
            let behind = least_used.last().cloned().unwrap_or_default();
            let least = |device: usize| {
                let used = of_need.iter().map(|(_, cover)| cover.used[device]);
                used.fold(f64::INFINITY, f64::min)
            };
            let sum = behind.iter().enumerate().map(|(at, used)| used + least(at));
            least_used.push(sum.collect());
        }
        least_used.reverse();
        Self {
            covers,
            complete,
            least_used,
            prices: &bound.prices,
            rooms,
            used: vec![0.0; rooms.len()],
            chosen: Vec::new(),
            limit,
            best: None,
            steps,
        }
    }

    /// Tries the covers of the need at `at` and of those after it. Returns `None` if the steps run out.
    fn look(&mut self, at: usize, beyond: f64) -> Option<()> {
        *self.steps = self.steps.checked_sub(1)?;
        if at == self.covers.len() {
            // Unused room that has a price must be paid for.
            let left = self.rooms.iter().zip(&self.used).zip(self.prices);
            let unused: f64 = left
                .map(|((room, used), price)| (room - used).max(0.0) * price)
                .sum();
            if beyond + unused < self.limit - NONE {
                self.limit = beyond + unused;
                self.best = Some(self.chosen.clone());
            }
            return Some(());
        }
        for choice in 0..self.covers[at].1.len() {
            let (more, cover) = &self.covers[at].1[choice];
            let beyond = beyond + more;
            if beyond >= self.limit - NONE {
                break;
            }
            let behind = &self.least_used[at + 1];
            let sum = self.used.iter().zip(&cover.used).zip(behind);
            let mut room = sum.zip(self.rooms);
            if !room.all(|(((used, own), behind), room)| used + own + behind <= room + NONE) {
                continue;
            }
            let own = cover.used.clone();
            self.occupy(&own, 1.0);
            self.chosen.push(choice);
            let done = self.look(at + 1, beyond);
            self.chosen.pop();
            self.occupy(&own, -1.0);
            done?;
        }
        Some(())
    }

    /// Looks for a first answer: starting from the cheapest covers, makes the change that relieves the overfull types
    /// at the least cost, until all fit.
    fn repair(&mut self) {
        let mut chosen = vec![0; self.covers.len()];
        let mut used = vec![0.0; self.rooms.len()];
        let mut beyond = 0.0;
        for (_, covers) in &self.covers {
            let Some((_, first)) = covers.first() else {
                return;
            };
            add(&mut used, &first.used, 1.0);
        }
        while !fits(&used, self.rooms) {
            let over = |used: &[f64]| {
                let each = used.iter().zip(self.rooms);
                each.map(|(used, room)| (used - room).max(0.0)).sum::<f64>()
            };
            let before = over(&used);
            let looked: usize = self.covers.iter().map(|(_, covers)| covers.len()).sum();
            let Some(left) = self.steps.checked_sub(looked as u64) else {
                *self.steps = 0;
                return;
            };
            *self.steps = left;
            let mut best: Option<(f64, usize, usize)> = None;
            for (at, (_, covers)) in self.covers.iter().enumerate() {
                let (now_beyond, now) = &covers[chosen[at]];
                for (choice, (then_beyond, then)) in covers.iter().enumerate() {
                    let changed = used.iter().zip(&then.used).zip(&now.used);
                    let changed: Vec<f64> = changed
                        .map(|((used, then), now)| used + then - now)
                        .collect();
                    let relief = before - over(&changed);
                    if relief > NONE {
                        let price = (then_beyond - now_beyond).max(0.0) / relief;
                        if best.is_none_or(|(least, ..)| price < least) {
                            best = Some((price, at, choice));
                        }
                    }
                }
            }
            let Some((_, at, choice)) = best else { return };
            let covers = &self.covers[at].1;
            let (now, then) = (&covers[chosen[at]], &covers[choice]);
            add(&mut used, &now.1.used, -1.0);
            add(&mut used, &then.1.used, 1.0);
            beyond += then.0 - now.0;
            chosen[at] = choice;
        }
        let rooms = self.rooms.iter().zip(&used).zip(self.prices);
        let unused = rooms.map(|((room, used), price)| (room - used).max(0.0) * price);
        let beyond = beyond + unused.sum::<f64>();
        if beyond < self.limit - NONE {
            self.limit = beyond;
            self.best = Some(chosen);
        }
    }

    fn occupy(&mut self, own: &[f64], sign: f64) {
        add(&mut self.used, own, sign);
    }

    fn cover(&self, chosen: &[usize]) -> Vec<Cover> {
        let mut covers: Vec<(usize, Cover)> = self
            .covers
            .iter()
            .zip(chosen)
            .map(|((need, covers), choice)| (*need, covers[*choice].1.clone()))
            .collect();
        covers.sort_by_key(|(need, _)| *need);
        covers.into_iter().map(|(_, cover)| cover).collect()
    }
}

// === impl JointCover ===

impl JointCover {
    pub(super) fn instances(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let all = self.covers.iter().flat_map(|cover| &cover.instances);
        all.copied()
    }
}
