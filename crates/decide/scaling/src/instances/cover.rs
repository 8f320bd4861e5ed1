//! The cheapest ways to answer all queries of one need.

use super::{super::Problem, Weights, price};

/// Smaller amounts count as zero.
const NONE: f64 = 1e-9;

/// The ways to answer one need, found on demand.
#[derive(Debug)]
pub(super) struct Covers {
    /// Queries a second that the instances must be able to answer.
    rps: f64,
    items: Vec<Item>,
}

/// Instances of a choice with the same cost: those that are running, or those that must be loaded.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// Position of the choice in the problem.
    choice: usize,
    device: usize,
    rps: f64,
    share: f64,
    cost: f64,
    /// The number of them.
    most: u32,
}

/// A way to answer a need.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cover {
    /// Positions of choices, and the number of instances of each.
    pub(super) instances: Vec<(usize, u32)>,
    /// Their cost, US dollars an hour.
    pub(super) cost: f64,
    /// By type of device: the shares of devices that they occupy.
    pub(super) used: Vec<f64>,
}

/// A search for covers that cost less than a limit, including the price of memory.
struct Search<'a> {
    items: Vec<(f64, Item)>,
    /// For each position: the least price of a query a second from it on.
    ratios: Vec<f64>,
    /// What is kept. The limit of `Cheapest` falls when a cover is found.
    keep: Keep,
    found: Vec<(f64, Vec<(usize, u32)>)>,
    steps: &'a mut u64,
}

/// The covers that a search keeps.
#[derive(Debug, Clone, Copy)]
enum Keep {
    /// The cheapest cover, if it costs less than this.
    Cheapest(f64),
    /// The covers that cost at most this much, up to this number.
    All(f64, usize),
}

// === impl Covers ===

impl Covers {
    /// Returns `None` if a need with demand has no choice.
    pub(super) fn new(problem: &Problem, need: usize, weights: Weights) -> Option<Self> {
        let rps = problem.needs[need].rps * weights.slack;
        let mut items = Vec::new();
        for (position, choice) in problem.choices_of(need) {
            let cost = price(problem, choice);
            let enough = (rps / choice.rps).ceil().min(1e6) as u32;
            let item = Item {
                choice: position,
                device: choice.kind(),
                rps: choice.rps,
                share: choice.memory_share,
                cost,
                most: choice.running.min(enough),
            };
            let loading = cost * weights.load_per_s * choice.load_s;
            items.push(item);
            items.push(Item {
                cost: cost + loading,
                most: enough - item.most,
                ..item
            });
        }
        items.retain(|item| item.most > 0);
        if rps <= NONE {
            items.clear();
        }
        let covers = Self {
            rps: if rps <= NONE { 0.0 } else { rps },
            items,
        };
        (covers.rps == 0.0 || !covers.items.is_empty()).then_some(covers)
    }

    /// The cheapest cover if the memory of a device has a price for each type; `None` if the steps have run out.
    pub(super) fn cheapest(&self, prices: &[f64], steps: &mut u64) -> Option<(f64, Cover)> {
        let mut search = self.search(prices, Keep::Cheapest(f64::INFINITY), steps);
        search.look(0, self.rps, 0.0, &mut Vec::new())?;
        let (priced, instances) = search.found.pop()?;
        Some((priced, self.cover(&instances, prices.len())))
    }

    /// The covers that cost at most `limit`, and whether these are all: there may be more than `most`, or the steps may
    /// have run out.
    pub(super) fn within(
        &self,
        prices: &[f64],
        limit: f64,
        most: usize,
        steps: &mut u64,
    ) -> (Vec<(f64, Cover)>, bool) {
        let mut search = self.search(prices, Keep::All(limit, most), steps);
        let all = search.look(0, self.rps, 0.0, &mut Vec::new()).is_some();
        let found = search.found.iter();
        let covers = found.map(|(priced, instances)| {
            let cover = self.cover(instances, prices.len());
            (*priced, cover)
        });
        (covers.collect(), all)
    }

    fn search<'a>(&self, prices: &[f64], keep: Keep, steps: &'a mut u64) -> Search<'a> {
        let priced = |item: &Item| (item.cost + prices[item.device] * item.share, *item);
        let mut items: Vec<(f64, Item)> = self.items.iter().map(priced).collect();
        items.sort_by(|(a, one), (b, other)| {
            let by_ratio = (a / one.rps).total_cmp(&(b / other.rps));
            by_ratio.then_with(|| one.choice.cmp(&other.choice))
        });
        let ratios = items.iter().map(|(price, item)| price / item.rps).collect();
        Search {
            items,
            ratios,
            keep,
            found: Vec::new(),
            steps,
        }
    }

    /// Makes a cover from positions of items and counts.
    fn cover(&self, instances: &[(usize, u32)], devices: usize) -> Cover {
        let mut cover = Cover {
            instances: Vec::new(),
            cost: 0.0,
            used: vec![0.0; devices],
        };
        for (position, count) in instances {
            let running = self.items.iter().filter(|item| item.choice == *position);
            let mut left = *count;
            // Running instances come first, because they cost least.
            for item in running {
                let taken = left.min(item.most);
                left -= taken;
                cover.cost += item.cost * f64::from(taken);
                cover.used[item.device] += item.share * f64::from(taken);
            }
            cover.instances.push((*position, *count));
        }
        cover
    }
}

// === impl Search ===

impl Search<'_> {
    /// Tries all counts of the item at `at` and of those after it. Returns `None` if the steps run out.
    fn look(
        &mut self,
        at: usize,
        missing: f64,
        price: f64,
        taken: &mut Vec<(usize, u32)>,
    ) -> Option<()> {
        *self.steps = self.steps.checked_sub(1)?;
        if missing <= NONE {
            return self.take(price, taken);
        }
        let (Some((each, item)), Some(ratio)) = (self.items.get(at).copied(), self.ratios.get(at))
        else {
            return Some(());
        };
        // No item after this one answers a query for less.
        if price + missing * ratio > self.limit() {
            return Some(());
        }
        let enough = (missing / item.rps - NONE).ceil().max(1.0);
        let most = (enough as u32).min(item.most);
        for count in (0..=most).rev() {
            let price = price + each * f64::from(count);
            let left = missing - item.rps * f64::from(count);
            let next = self.ratios.get(at + 1).copied();
            let bound = match left <= NONE {
                true => price,
                false => price + left * next.unwrap_or(f64::INFINITY),
            };
            if bound > self.limit() {
                // Fewer of this item only make the rest more expensive.
                if count < most {
                    break;
                }
                continue;
            }
            if count > 0 {
                taken.push((item.choice, count));
            }
            self.look(at + 1, left, price, taken)?;
            if count > 0 {
                taken.pop();
            }
        }
        Some(())
    }

    fn limit(&self) -> f64 {
        match self.keep {
            Keep::Cheapest(limit) | Keep::All(limit, _) => limit,
        }
    }

    /// Keeps a cover. Returns `None` if there is no room for more.
    fn take(&mut self, price: f64, taken: &[(usize, u32)]) -> Option<()> {
        let mut merged: Vec<(usize, u32)> = Vec::with_capacity(taken.len());
        for (choice, count) in taken {
            match merged.iter_mut().find(|(known, _)| known == choice) {
                Some((_, known)) => *known += count,
                None => merged.push((*choice, *count)),
            }
        }
        match &mut self.keep {
            Keep::Cheapest(limit) => {
                if price < *limit {
                    *limit = price;
                    self.found.clear();
                    self.found.push((price, merged));
                }
            }
            Keep::All(limit, most) => {
                if price <= *limit {
                    self.found.push((price, merged));
                }
                if self.found.len() >= *most {
                    return None;
                }
            }
        }
        Some(())
    }
}
