//! Exact fractions.
//!
//! Kept in lowest terms with a positive denominator, so that equal numbers have equal fields. Numerator and
//! denominator have 127 bits (38 digits); an operation whose result would not fit gives `None`.

/// A fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    /// Zero.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };

    /// `numerator / denominator`; `None` when the denominator is 0 or the result does not fit.
    #[must_use]
    pub fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let divisor = greatest_common_divisor(numerator.unsigned_abs(), denominator.unsigned_abs());
        let numerator_size = i128::try_from(numerator.unsigned_abs() / divisor).ok()?;
        let denominator_size = i128::try_from(denominator.unsigned_abs() / divisor).ok()?;
        let sign = if (numerator < 0) == (denominator < 0) { 1 } else { -1 };
        Some(Self { numerator: sign * numerator_size, denominator: denominator_size })
    }

    /// A whole number.
    #[must_use]
    pub fn integer(value: i64) -> Self {
        Self { numerator: i128::from(value), denominator: 1 }
    }

    /// Ten to the power of `exponent`.
    #[must_use]
    pub fn power_of_ten(exponent: i32) -> Option<Self> {
        let size = 10_i128.checked_pow(exponent.unsigned_abs())?;
        if exponent < 0 { Self::new(1, size) } else { Self::new(size, 1) }
    }

    /// Whether it is negative.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.numerator < 0
    }

    /// With the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        // `new` keeps the numerator above the smallest integer.
        Self { numerator: -self.numerator, denominator: self.denominator }
    }

    /// Without its sign.
    #[must_use]
    pub fn abs(self) -> Self {
        if self.is_negative() { self.negated() } else { self }
    }

    /// The sum.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    /// The difference.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(other.negated())
    }

    /// The product.
    #[must_use]
    pub fn checked_mul(self, other: Self) -> Option<Self> {
        // Reducing crosswise first keeps products of large numbers that cancel.
        let left = Self::new(self.numerator, other.denominator)?;
        let right = Self::new(other.numerator, self.denominator)?;
        Self::new(
            left.numerator.checked_mul(right.numerator)?,
            left.denominator.checked_mul(right.denominator)?,
        )
    }

    /// The quotient; `None` also when `other` is 0.
    #[must_use]
    pub fn checked_div(self, other: Self) -> Option<Self> {
        self.checked_mul(Self::new(other.denominator, other.numerator)?)
    }

    /// The nearest double.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

fn greatest_common_divisor(mut left: u128, mut right: u128) -> u128 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(numerator: i128, denominator: i128) -> Rational {
        Rational::new(numerator, denominator).unwrap()
    }

    #[test]
    fn equal_fractions_are_equal_however_written() {
        assert_eq!(fraction(2, -4), fraction(-1, 2));
        assert_eq!(fraction(0, -5), Rational::ZERO);
        assert_eq!(fraction(6, 3), Rational::integer(2));
        assert_ne!(fraction(1, 3), fraction(333_333_333, 1_000_000_000));
    }

    #[test]
    fn arithmetic_is_exact() {
        let (half, third) = (fraction(1, 2), fraction(1, 3));
        assert_eq!(half.checked_add(third), Some(fraction(5, 6)));
        assert_eq!(half.checked_sub(third), Some(fraction(1, 6)));
        assert_eq!(half.checked_mul(third), Some(fraction(1, 6)));
        assert_eq!(half.checked_div(third), Some(fraction(3, 2)));
        assert_eq!(third.negated().abs(), third);
    }

    #[test]
    fn what_has_no_value_or_does_not_fit_is_none() {
        assert_eq!(Rational::new(1, 0), None);
        assert_eq!(Rational::integer(1).checked_div(Rational::ZERO), None);
        let large = fraction(i128::MAX, 1);
        assert_eq!(large.checked_add(large), None);
        assert_eq!(large.checked_mul(fraction(1, i128::MAX)), Some(Rational::integer(1)));
        assert_eq!(Rational::new(i128::MIN, 1), None);
        assert_eq!(Rational::new(i128::MIN, 2).map(Rational::is_negative), Some(true));
        assert_eq!(Rational::power_of_ten(39), None);
        assert_eq!(Rational::power_of_ten(-2), Some(fraction(1, 100)));
    }
}
