//! How often each of several models is requested.

/// Equal shares of `count` models; they sum to 1.
pub fn equal(count: usize) -> Vec<f64> {
    vec![1.0 / count as f64; count]
}

/// Shares in proportion to `1 / rank^exponent`; they sum to 1.
pub fn zipf(count: usize, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=count)
        .map(|rank| (rank as f64).powf(-exponent))
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
