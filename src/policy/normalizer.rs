//! Running mean and variance of observations, part of every published version.
//!
//! Observations travel raw; the policy normalises them with the statistics of the version it runs, so that an actor
//! and the learner see the same input for the same version.

use serde::{Deserialize, Serialize};

/// Count, mean and sum of squared deviations, one of each per feature; merged by Chan's parallel update in f64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    count: f64,
    mean: Vec<f64>,
    deviation: Vec<f64>,
}

impl Moments {
    /// No observations yet.
    #[must_use]
    pub fn new(features: usize) -> Self {
        Self { count: 0.0, mean: vec![0.0; features], deviation: vec![0.0; features] }
    }

    /// Adds rows, `[n, features]`.
    pub fn add(&mut self, rows: &[f32]) {
        let features = self.mean.len();
        for row in rows.chunks_exact(features) {
            self.count += 1.0;
            for ((mean, deviation), &x) in self.mean.iter_mut().zip(&mut self.deviation).zip(row) {
                let delta = f64::from(x) - *mean;
                *mean += delta / self.count;
                *deviation += delta * (f64::from(x) - *mean);
            }
        }
    }

    /// Number of rows seen.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Mean of feature `i`.
    #[must_use]
    pub fn mean(&self, i: usize) -> f64 {
        self.mean[i]
    }

    /// Population variance of feature `i`; 1 before two rows were seen.
    #[must_use]
    pub fn variance(&self, i: usize) -> f64 {
        if self.count < 2.0 { 1.0 } else { self.deviation[i] / self.count }
    }

    /// The affine map that these statistics stand for.
    #[must_use]
    pub fn normalizer(&self) -> Normalizer {
        let scale = |i| (1.0 / (self.variance(i) + 1e-8).sqrt()) as f32;
        Normalizer {
            mean: self.mean.iter().map(|&m| m as f32).collect(),
            scale: (0..self.mean.len()).map(scale).collect(),
        }
    }
}

/// x -> clamp((x - mean) · scale, -10, 10), feature by feature.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalizer {
    mean: Vec<f32>,
    scale: Vec<f32>,
}

impl Normalizer {
    /// Normalises rows in place, `[n, features]`.
    pub fn apply(&self, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(self.mean.len()) {
            for ((x, mean), scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
                *x = ((*x - mean) * scale).clamp(-10.0, 10.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_equal_those_of_all_rows_however_they_were_split() {
        let rows: Vec<f32> = (0..40).map(|i| (i * i % 17) as f32).collect();
        let mut whole = Moments::new(2);
        whole.add(&rows);
        let mut parts = Moments::new(2);
        parts.add(&rows[..6]);
        parts.add(&rows[6..]);
        assert_eq!(whole, parts);
        for feature in 0..2 {
            let column: Vec<f64> = rows.iter().skip(feature).step_by(2).map(|&x| f64::from(x)).collect();
            let mean = column.iter().sum::<f64>() / 20.0;
            let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20.0;
            assert!((whole.mean(feature) - mean).abs() < 1e-9);
            assert!((whole.variance(feature) - variance).abs() < 1e-9);
        }
    }

    #[test]
    fn normalised_values_are_centred_and_bounded() {
        let mut moments = Moments::new(1);
        moments.add(&[1.0, 3.0]);
        let mut rows = [2.0, 3.0, 1e9];
        moments.normalizer().apply(&mut rows);
        assert!((rows[0]).abs() < 1e-6 && (rows[1] - 1.0).abs() < 1e-6 && rows[2] == 10.0);
    }
}
