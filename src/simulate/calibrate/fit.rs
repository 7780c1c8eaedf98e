//! Least squares and moments.

use crate::schedule::trace::StepSums;

/// t₀ and t₁ of s = t₀ + t₁ n, neither negative; nothing without steps.
pub(super) fn steps(sums: &StepSums) -> Option<(f64, f64)> {
    let count = sums.steps as f64;
    (sums.steps > 0)
        .then(|| least_squares(count, sums.sequences as f64, sums.squares, sums.seconds, sums.products))
}

/// The same of points (x, y); (0, 0) without any.
pub(super) fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    if points.is_empty() {
        return (0.0, 0.0);
    }
    least_squares(
        points.len() as f64,
        sum(|(x, _)| *x),
        sum(|(x, _)| x * x),
        sum(|(_, y)| *y),
        sum(|(x, y)| x * y),
    )
}

/// Constant and slope that are least wrong, squared, of those that are not negative, from sums of 1, x, x², y and xy.
/// Where x hardly varies, which of both it is cannot be told, and all is slope: what goes with x elsewhere as well.
fn least_squares(count: f64, x: f64, xx: f64, y: f64, xy: f64) -> (f64, f64) {
    let spread = count * xx - x * x;
    let by_slope = if xx > 0.0 { (0.0, xy / xx) } else { (y / count, 0.0) };
    if spread <= 1e-9 * count * xx {
        return by_slope;
    }
    let slope = (count * xy - x * y) / spread;
    let constant = (y - slope * x) / count;
    if slope < 0.0 {
        (y / count, 0.0)
    } else if constant < 0.0 {
        by_slope
    } else {
        (constant, slope)
    }
}

/// Lengths as the simulator draws them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogNormal {
    pub median: f64,
    pub prompt_sigma: f64,
    pub within_sigma: f64,
    pub longest: u64,
}

/// The log-normal of lengths in groups: spreads between groups and within them by the analysis of variance of
/// logarithms. Where answers were cut at the longest length, the spread of both together is that of the lower half.
pub(super) fn log_normal(groups: &[Vec<u64>]) -> Option<LogNormal> {
    let logs: Vec<Vec<f64>> =
        groups.iter().map(|group| group.iter().map(|length| (*length as f64).ln()).collect()).collect();
    let mut all: Vec<f64> = logs.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let longest = groups.iter().flatten().copied().max()?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let squares = |values: &[f64]| {
        let middle = mean(values);
        values.iter().map(|value| (value - middle).powi(2)).sum::<f64>()
    };
    let freedom: usize = logs.iter().map(|group| group.len().saturating_sub(1)).sum();
    let within = logs.iter().map(|group| squares(group)).sum::<f64>() / freedom.max(1) as f64;
    let means: Vec<f64> = logs.iter().map(|group| mean(group)).collect();
    let of_means = squares(&means) / means.len().saturating_sub(1).max(1) as f64;
    let size = all.len() as f64 / groups.len() as f64;
    let between = (of_means - within / size).max(0.0);
    let cut = all.iter().filter(|log| **log >= (longest as f64).ln() - 1e-9).count();
    let (mut median, mut scale) = (mean(&all), 1.0);
    if cut > 1 && cut as f64 > 0.005 * all.len() as f64 && between + within > 0.0 {
        let quantile = |share: f64| all[((share * all.len() as f64) as usize).min(all.len() - 1)];
        median = quantile(0.5);
        // One standard deviation below the middle.
        scale = (median - quantile(0.1587)) / (between + within).sqrt();
    }
    Some(LogNormal {
        median: median.exp(),
        prompt_sigma: between.sqrt() * scale,
        within_sigma: within.sqrt() * scale,
        longest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again_and_never_has_a_negative_part() {
        let mut sums = StepSums::default();
        for n in [1_u64, 3, 8, 20] {
            sums.add(n, 0.02 + 0.003 * n as f64);
        }
        let (constant, slope) = steps(&sums).unwrap();
        assert!((constant - 0.02).abs() < 1e-9 && (slope - 0.003).abs() < 1e-9, "{constant} {slope}");
        assert_eq!(steps(&StepSums::default()), None);
        assert_eq!(line(&[(1.0, 5.0), (2.0, 3.0)]), (4.0, 0.0), "what falls is constant");
        let (constant, slope) = line(&[(1.0, 1.0), (2.0, 3.0)]);
        assert!(constant == 0.0 && (slope - 1.4).abs() < 1e-9, "what would be negative at 0 is not");
        assert_eq!(line(&[(4.0, 2.0), (4.0, 2.0)]), (0.0, 0.5), "where x does not vary");
        assert_eq!(line(&[]), (0.0, 0.0));
    }

    #[test]
    fn groups_of_one_have_all_their_spread_between_them() {
        let fitted = log_normal(&[vec![10], vec![1000]]).unwrap();
        assert_eq!(fitted.within_sigma, 0.0);
        assert!((fitted.median - 100.0).abs() < 1e-9 && fitted.prompt_sigma > 3.0);
        assert_eq!(log_normal(&[]), None);
        let flat = log_normal(&[vec![7, 7], vec![7, 7]]).unwrap();
        assert_eq!((flat.prompt_sigma, flat.within_sigma, flat.longest), (0.0, 0.0, 7));
    }
}
