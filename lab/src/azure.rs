//! Invocations per minute of many functions, in the format of the Azure Functions 2019 data set (Shahrad et al., ATC
//! 2020; CC-BY), and similar generated counts for use without the data.
//!
//! A file holds a day: four columns that name the function, then a count for each of its 1,440 minutes. As in Clockwork
//! (section 6.5), functions are sorted by their invocations and assigned to models, each a Poisson process whose rate
//! changes every minute. The rates of a model's functions are added: the sum of Poisson processes is a Poisson process.

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use sextant_simulator::{
    Error,
    table::Table,
    workload::{Piece, Rate},
};

/// For each function: invocations in each minute.
pub type Counts = Vec<Vec<u32>>;

/// How functions are assigned to models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// Function `i` of `F` to model `i * M / F`: busy functions share a model.
    Block,
    /// Function `i` to model `i mod M`: every model has busy and quiet ones.
    #[default]
    Stripe,
}

/// With this many functions, the busiest is neither bursty nor fired by a timer.
const STEADY: usize = 50;

/// Columns before the first minute.
const NAMES: usize = 4;

/// Reads a day's file; `file` names it in errors. Functions are returned busiest first.
///
/// # Errors
/// When a line has not as many values as the header, or a count is not a whole number.
pub fn read(text: &str, file: &str) -> Result<Counts, Error> {
    let table = Table::read(text, file)?;
    let columns = table.names().count();
    if columns <= NAMES
        || !table
            .names()
            .skip(NAMES)
            .all(|name| name.parse::<u32>().is_ok())
    {
        let problem = "is not a header of four names and minutes from 1 on";
        return Err(Error::line(file, 1, table.header(), problem));
    }
    let mut counts = Vec::new();
    for row in table.rows() {
        let mut minutes = Vec::with_capacity(columns - NAMES);
        for column in NAMES..columns {
            let count = row.text(column).parse::<u32>();
            minutes.push(count.map_err(|_| row.error(column, "is not a count"))?);
        }
        counts.push(minutes);
    }
    sort(&mut counts);
    Ok(counts)
}

/// The day in a file.
///
/// # Errors
/// When it cannot be read, or as for [`read`].
pub fn load(path: &str) -> Result<Counts, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        file: path.to_owned(),
        source,
    })?;
    read(&text, path)
}

/// Rates of `models` models, each the sum of its functions' counts. After the last minute, the first one follows again.
pub fn rates(counts: &Counts, models: usize, mapping: Mapping) -> Vec<Rate> {
    let minutes = counts.iter().map(Vec::len).max().unwrap_or(0);
    let mut sums = vec![vec![0_u64; minutes]; models];
    for (at, function) in counts.iter().enumerate() {
        let model = match mapping {
            Mapping::Block => at * models / counts.len(),
            Mapping::Stripe => at % models,
        };
        for (sum, count) in sums[model].iter_mut().zip(function) {
            *sum += u64::from(*count);
        }
    }
    let piece = |sum: &u64| Piece::flat(60.0, *sum as f64 / 60.0);
    sums.iter()
        .map(|sums| Rate::Pieces {
            pieces: sums.iter().map(piece).collect(),
            repeats: true,
        })
        .collect()
}

/// Generates counts like those of the data set: few functions have most invocations and have them steadily, many are
/// rarely called, some burst, and timers fire every 5, 15 or 60 minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Synthetic {
    /// Number of minutes.
    pub minutes: usize,
    /// Invocations per minute of the busiest function.
    pub busiest: f64,
    /// The invocations of the i-th busiest function are proportional to `1 / (i + offset)^exponent`. By default a fifth
    /// of the functions has more than 99 % of the invocations, as in the data set (section 3.3 there).
    pub exponent: f64,
    /// The offset in this formula.
    pub offset: f64,
    /// Share of functions that are active only now and then.
    pub bursty_share: f64,
    /// Share of functions that a timer fires.
    pub periodic_share: f64,
    /// Whether all timers of a period fire in the same minutes, as timers set to the full hour do, so that the sum of
    /// all functions has spikes.
    pub aligned: bool,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            minutes: 60,
            busiest: 60_000.0,
            exponent: 2.0,
            offset: 50.0,
            bursty_share: 0.3,
            periodic_share: 0.2,
            aligned: false,
        }
    }
}

impl Synthetic {
    /// Counts of `functions` functions, busiest first; the same for the same seed.
    pub fn counts(&self, functions: usize, seed: u64) -> Counts {
        let mut counts: Counts = (0..functions)
            .map(|at| {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                random.set_stream(at as u64 + 1);
                let rank = (at as f64 + 1.0 + self.offset) / (1.0 + self.offset);
                let mean = self.busiest / rank.powf(self.exponent);
                self.function(mean, at < functions / STEADY, &mut random)
            })
            .collect();
        sort(&mut counts);
        counts
    }

    fn function(&self, mean: f64, steady: bool, random: &mut ChaCha8Rng) -> Vec<u32> {
        let kind = if steady { 1.0 } else { random.random() };
        let phase = random.random_range(0..60_usize);
        let mut on = random.random::<f64>() < 0.2;
        (0..self.minutes)
            .map(|minute| {
                let level = if kind < self.bursty_share {
                    // On average, active for 5 minutes and inactive for 20.
                    let leaves = if on { 0.2 } else { 0.05 };
                    on ^= random.random::<f64>() < leaves;
                    if on { 5.0 } else { 0.0 }
                } else if kind < self.bursty_share + self.periodic_share {
                    let period = [5, 15, 60][phase % 3];
                    let shift = if self.aligned { 0 } else { phase };
                    if (minute + shift) % period == 0 {
                        period as f64
                    } else {
                        0.0
                    }
                } else {
                    let turn = (minute + phase) as f64 / 60.0 * std::f64::consts::TAU;
                    1.0 + 0.3 * turn.sin()
                };
                let expected = mean * level;
                let whole = expected.floor();
                let more = random.random::<f64>() < expected - whole;
                whole as u32 + u32::from(more)
            })
            .collect()
    }
}

/// Busiest first; equals stay in order.
fn sort(counts: &mut Counts) {
    let total = |minutes: &Vec<u32>| minutes.iter().map(|count| u64::from(*count)).sum::<u64>();
    counts.sort_by_key(|minutes| std::cmp::Reverse(total(minutes)));
}
