//! From measured sizes to a complete table.

use sextant_schedule::{LatencyTable, Nanos};

use super::{BySize, InvalidProfile, Measurement, Method, by_size, fit, median};

/// The table up to `max_rows` (or the largest measured size). It uses the median of each size,
/// pooled with its neighbours if a larger batch seems faster, straight lines between sizes, and the
/// fitted line outside the measured range.
///
/// A single measured size does not determine a slope. Smaller batches are then assumed to cost as
/// much and larger ones in proportion, so that the table never promises too much.
///
/// # Errors
/// If there is no measurement, or one has no rows or no time.
pub fn table_of(points: &[Measurement], max_rows: u32) -> Result<LatencyTable, InvalidProfile> {
    let sizes = by_size(points)?;
    let (first, last) = (sizes[0].0, sizes[sizes.len() - 1].0);
    let slope = match fit(points, Method::TheilSen) {
        Ok(fit) => fit.line.alpha,
        Err(_) => median(sizes[0].1.clone()) / f64::from(first),
    };
    let below = if sizes.len() > 1 { slope } else { 0.0 };
    let steps = monotone(&sizes);
    let mut at = 0;
    let mut nanos = Vec::with_capacity(max_rows.max(last) as usize);
    for rows in 1..=max_rows.max(last) {
        while at + 1 < steps.len() && steps[at + 1].0 <= rows {
            at += 1;
        }
        let (from, time) = steps[at];
        let distance = f64::from(rows) - f64::from(from);
        let value = match steps.get(at + 1) {
            _ if rows < first => (time + below * distance).max(time * 0.01),
            Some((to, next)) => time + (next - time) * distance / f64::from(to - from),
            None => time + slope * distance,
        };
        let before = nanos.last().copied().unwrap_or(1);
        nanos.push((value.round() as Nanos).max(before));
    }
    Ok(LatencyTable::new(nanos)?)
}

/// The non-decreasing values that are nearest to the medians (pool adjacent violators, weighted by
/// the number of runs). With a running maximum one slow size would raise all larger ones.
fn monotone(sizes: &BySize) -> Vec<(u32, f64)> {
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for (_, times) in sizes {
        let mut block = (median(times.clone()), times.len() as f64, 1);
        while let Some(&(value, weight, count)) = blocks.last()
            && value > block.0
        {
            let together = weight + block.1;
            let mean = (value * weight + block.0 * block.1) / together;
            block = (mean, together, count + block.2);
            blocks.pop();
        }
        blocks.push(block);
    }
    let values = blocks
        .iter()
        .flat_map(|(value, _, count)| std::iter::repeat_n(*value, *count));
    sizes.iter().map(|(rows, _)| *rows).zip(values).collect()
}
