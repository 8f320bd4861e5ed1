//! The linear latency model l(b) = alpha * b + beta (Nexus, section 4) and the throughput at
//! saturation.

use crate::BatchLatency;

/// A least-squares line through the medians of the measured batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Slope, ms per row.
    pub alpha_ms: f64,
    /// Intercept, ms.
    pub beta_ms: f64,
    /// Root mean square of the residuals, ms.
    pub residual_ms: f64,
}

/// Fits the line. A single point says nothing about batching, so every row then costs a whole run.
pub fn line(points: &[BatchLatency]) -> Line {
    let n = points.len() as f64;
    let xs = || points.iter().map(|point| f64::from(point.batch));
    let ys = || points.iter().map(|point| point.p50_ms);
    if points.is_empty() {
        return Line {
            alpha_ms: 0.0,
            beta_ms: 0.0,
            residual_ms: 0.0,
        };
    }
    let (mean_x, mean_y) = (xs().sum::<f64>() / n, ys().sum::<f64>() / n);
    let sxx: f64 = xs().map(|x| (x - mean_x).powi(2)).sum();
    let sxy: f64 = xs()
        .zip(ys())
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let alpha_ms = if sxx > 0.0 {
        sxy / sxx
    } else {
        mean_y / mean_x
    };
    let beta_ms = mean_y - alpha_ms * mean_x;
    let squares: f64 = xs()
        .zip(ys())
        .map(|(x, y)| (y - alpha_ms * x - beta_ms).powi(2))
        .sum();
    Line {
        alpha_ms,
        beta_ms,
        residual_ms: (squares / n).sqrt(),
    }
}

/// The greatest rows per second over the measured batches, by their medians. A mean would include
/// what other processes did in the meantime.
pub fn saturation_rps(points: &[BatchLatency]) -> f64 {
    points
        .iter()
        .filter(|point| point.p50_ms > 0.0)
        .map(|point| f64::from(point.batch) / point.p50_ms * 1000.0)
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(u32, f64)]) -> Vec<BatchLatency> {
        let point = |(batch, p50_ms): &(u32, f64)| BatchLatency {
            batch: *batch,
            p50_ms: *p50_ms,
            p99_ms: *p50_ms,
            mean_ms: *p50_ms,
            samples: 1,
        };
        values.iter().map(point).collect()
    }

    #[test]
    fn an_exact_line_has_no_residual() {
        let fitted = line(&points(&[(1, 5.0), (2, 7.0), (4, 11.0), (8, 19.0)]));
        assert!((fitted.alpha_ms - 2.0).abs() < 1e-12);
        assert!((fitted.beta_ms - 3.0).abs() < 1e-12);
        assert!(fitted.residual_ms < 1e-12);
    }

    #[test]
    fn residuals_are_the_root_mean_square() {
        // Hand-computed: (1, 1), (2, 3), (3, 2) has slope 0.5, intercept 1, residuals -.5, 1, -.5.
        let fitted = line(&points(&[(1, 1.0), (2, 3.0), (3, 2.0)]));
        assert!((fitted.alpha_ms - 0.5).abs() < 1e-12);
        assert!((fitted.beta_ms - 1.0).abs() < 1e-12);
        assert!((fitted.residual_ms - 0.5f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn one_point_costs_a_run_per_row() {
        let fitted = line(&points(&[(1, 4.0)]));
        assert_eq!((fitted.alpha_ms, fitted.beta_ms), (4.0, 0.0));
        assert_eq!(line(&[]).alpha_ms, 0.0);
    }

    #[test]
    fn saturation_is_the_best_batch() {
        assert_eq!(
            saturation_rps(&points(&[(1, 1.0), (2, 1.6), (4, 4.0)])),
            1250.0
        );
        assert_eq!(saturation_rps(&[]), 0.0);
    }
}
