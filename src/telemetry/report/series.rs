//! Long series made short enough to draw, without hiding that they scatter.

/// Most points that are drawn of one series.
const BINS: usize = 160;

/// Several neighbouring measurements as one point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Their mean position.
    pub x: f64,
    /// Their mean.
    pub y: f64,
    /// The least of them.
    pub low: f64,
    /// The greatest of them.
    pub high: f64,
}

/// Gathers measurements, given in ascending order of `x`, into bins of equal width. Non-finite ones are left out.
pub(super) fn binned(measurements: impl Iterator<Item = (f64, Option<f64>)>) -> Vec<Point> {
    let present: Vec<(f64, f64)> = measurements
        .filter_map(|(x, y)| Some((x, y?)))
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    let (Some(&(first, _)), Some(&(last, _))) = (present.first(), present.last()) else { return Vec::new() };
    let width = (last - first) / BINS as f64;
    let bin = |x: f64| if width > 0.0 { (((x - first) / width) as usize).min(BINS - 1) } else { 0 };
    present.chunk_by(|a, b| bin(a.0) == bin(b.0)).map(summarise).collect()
}

fn summarise(measurements: &[(f64, f64)]) -> Point {
    let count = measurements.len() as f64;
    let (mut x, mut y, mut low, mut high) = (0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
    for &(position, value) in measurements {
        x += position / count;
        y += value / count;
        low = low.min(value);
        high = high.max(value);
    }
    Point { x, y, low, high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_keeps_its_mean_and_its_extremes() {
        let points = binned((0..16_000).map(|i| (f64::from(i), Some(if i == 8_000 { 50.0 } else { 1.0 }))));
        assert_eq!(points.len(), BINS);
        assert_eq!(points.iter().map(|point| point.high).fold(0.0, f64::max), 50.0);
        assert!((points.iter().map(|point| point.y).sum::<f64>() / BINS as f64 - 1.0).abs() < 0.01);
    }

    #[test]
    fn absent_and_infinite_values_leave_no_point() {
        assert_eq!(binned([(0.0, None), (1.0, Some(f64::NAN))].into_iter()), []);
        let points = binned([(0.0, None), (1.0, Some(3.0)), (2.0, Some(f64::INFINITY))].into_iter());
        assert_eq!(points, [Point { x: 1.0, y: 3.0, low: 3.0, high: 3.0 }]);
    }
}
