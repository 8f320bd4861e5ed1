//! The value of a division, and the best division, computed by code that shares nothing with the code under test.

use sextant_partition::{Limits, Model, Partition};

/// Objective and cost of a division, as the paper writes them; `None` where it breaks a limit.
pub fn judged(models: &[Model], limits: &Limits, clusters: &[usize]) -> Option<(f64, f64)> {
    let count = limits.clusters as f64;
    let of = |cluster: usize| {
        let pairs = models.iter().zip(clusters);
        pairs
            .filter(move |(_, at)| **at == cluster)
            .map(|(of, _)| of)
    };
    let (mut rate_apart, mut memory_apart) = (0.0_f64, 0.0_f64);
    let rate_mean = models.iter().map(|of| of.rate_rps).sum::<f64>() / count;
    let memory_mean = models.iter().map(|of| of.static_bytes).sum::<u64>() as f64 / count;
    for cluster in 0..limits.clusters {
        let rate: f64 = of(cluster).map(|of| of.rate_rps).sum();
        let memory: u64 = of(cluster).map(|of| of.static_bytes).sum();
        let dynamic = of(cluster).map(|of| of.dynamic_bytes).max().unwrap_or(0);
        if rate > limits.rate_rps + 1e-6 || memory + dynamic > limits.memory_bytes {
            return None;
        }
        rate_apart = rate_apart.max((rate - rate_mean).abs());
        memory_apart = memory_apart.max((memory as f64 - memory_mean).abs());
    }
    // y = |x - x'| over all sub-clusters counts one load, and one unload if the model was somewhere before.
    let paid = models.iter().zip(clusters).map(|(of, at)| {
        let changes = (0..limits.clusters).filter(|j| (of.now == Some(*j)) != (at == j));
        changes.count() as f64 * of.move_cost
    });
    let cost = paid.sum::<f64>();
    let share = |apart: f64, mean: f64| if mean > 0.0 { apart / mean } else { 0.0 };
    let memory = limits.memory_weight * share(memory_apart, memory_mean);
    (cost <= limits.move_cost + 1e-6).then(|| (share(rate_apart, rate_mean) + memory, cost))
}

/// The least objective of all divisions that keep to the limits.
pub fn brute_force(models: &[Model], limits: &Limits) -> Option<f64> {
    let divisions = limits.clusters.pow(models.len() as u32);
    let all = (0..divisions).filter_map(|mut number| {
        let mut digit = || {
            let digit = number % limits.clusters;
            number /= limits.clusters;
            digit
        };
        let clusters: Vec<usize> = models.iter().map(|_| digit()).collect();
        judged(models, limits, &clusters).map(|(objective, _)| objective)
    });
    all.min_by(f64::total_cmp)
}

pub fn assert_sound(models: &[Model], limits: &Limits, found: &Partition) {
    assert_eq!(found.clusters.len(), models.len());
    assert_eq!(found.loads.len(), limits.clusters);
    let (objective, cost) = judged(models, limits, &found.clusters).expect("all limits are kept");
    assert!((objective - found.objective).abs() < 1e-9, "{found:?}");
    assert!((cost - found.move_cost).abs() < 1e-9, "{found:?}");
    for (cluster, load) in found.loads.iter().enumerate() {
        let of = models.iter().zip(&found.clusters);
        let of = of.filter(|(_, at)| **at == cluster).map(|(of, _)| of);
        assert_eq!(load.static_bytes, of.map(|of| of.static_bytes).sum::<u64>());
    }
}
