//! The controller that moves the four bounds by the policy's entropy: a pure function of the bounds, its settings and the
//! entropy of the update.
//!
//! ```text
//! entropy < entropy_low    pos_high · step, pos_low / step;  neg_high / step, neg_low · step
//! entropy > entropy_high   the reverse;  between them nothing moves
//! ```
//!
//! A policy that has grown too sure gets more room to raise what went well and less to push down what went badly. The
//! bounds are the state: they belong in a checkpoint. Invariants: after a move every upper bound lies in
//! [narrowest, widest] and every lower one in [1/widest, 1/narrowest], so that 1 stays between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TokenLossError;

/// Smallest and largest ratio for each sign of the advantage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FourBounds {
    /// Smallest ratio with advantages of at least 0.
    pub pos_low: f64,
    /// Largest ratio with advantages of at least 0.
    pub pos_high: f64,
    /// Smallest ratio with negative advantages.
    pub neg_low: f64,
    /// Largest ratio with negative advantages.
    pub neg_high: f64,
}

/// How the bounds follow the entropy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundControlConfig {
    /// Mean entropy of an update, nats a token, below which positive bounds widen and negative ones narrow.
    pub entropy_low: f64,
    /// The entropy above which it is the other way round.
    pub entropy_high: f64,
    /// Factor by which a bound moves in an update.
    #[serde(default = "step")]
    pub step: f64,
    /// Upper bounds come no nearer to 1 than this, lower ones no nearer than its inverse.
    #[serde(default = "narrowest")]
    pub narrowest: f64,
    /// Upper bounds go no further than this, lower ones no further than its inverse.
    #[serde(default = "widest")]
    pub widest: f64,
}

fn step() -> f64 {
    1.02
}

fn narrowest() -> f64 {
    1.5
}

fn widest() -> f64 {
    10.0
}

impl BoundControlConfig {
    /// Refuses settings out of range, and bounds to begin with that lie outside the controller's limits.
    pub(super) fn validate(&self, bounds: &FourBounds) -> Result<(), TokenLossError> {
        let above = |name, value: f64, least: f64, expected| {
            TokenLossError::check(name, value, value >= least && value.is_finite(), expected)
        };
        TokenLossError::check_not_negative("control.entropy_low", self.entropy_low)?;
        let expected = "finite and at least control.entropy_low";
        above("control.entropy_high", self.entropy_high, self.entropy_low, expected)?;
        TokenLossError::check(
            "control.step",
            self.step,
            self.step > 1.0 && self.step.is_finite(),
            "above 1",
        )?;
        above("control.narrowest", self.narrowest, 1.0, "finite and at least 1")?;
        above("control.widest", self.widest, self.narrowest, "finite and at least control.narrowest")?;
        for (name, high) in [("pos_high", bounds.pos_high), ("neg_high", bounds.neg_high)] {
            let inside = (self.narrowest..=self.widest).contains(&high);
            TokenLossError::check(name, high, inside, "from control.narrowest to control.widest")?;
        }
        for (name, low) in [("pos_low", bounds.pos_low), ("neg_low", bounds.neg_low)] {
            let inside = (self.widest.recip()..=self.narrowest.recip()).contains(&low);
            TokenLossError::check(name, low, inside, "from 1/control.widest to 1/control.narrowest")?;
        }
        Ok(())
    }

    /// The bounds of the next update after one whose mean entropy this was.
    #[must_use]
    pub fn next(&self, bounds: FourBounds, entropy: f64) -> FourBounds {
        let step = if entropy < self.entropy_low {
            self.step
        } else if entropy > self.entropy_high {
            self.step.recip()
        } else {
            return bounds;
        };
        self.limited(FourBounds {
            pos_low: bounds.pos_low / step,
            pos_high: bounds.pos_high * step,
            neg_low: bounds.neg_low * step,
            neg_high: bounds.neg_high / step,
        })
    }

    /// The bounds as far as the limits let them go.
    #[must_use]
    pub fn limited(&self, bounds: FourBounds) -> FourBounds {
        let high = |bound: f64| bound.clamp(self.narrowest, self.widest);
        let low = |bound: f64| bound.clamp(self.widest.recip(), self.narrowest.recip());
        FourBounds {
            pos_low: low(bounds.pos_low),
            pos_high: high(bounds.pos_high),
            neg_low: low(bounds.neg_low),
            neg_high: high(bounds.neg_high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: FourBounds = FourBounds { pos_low: 0.2, pos_high: 5.0, neg_low: 0.2, neg_high: 5.0 };

    fn control() -> BoundControlConfig {
        toml::from_str("entropy_low = 0.5\nentropy_high = 1.0\nstep = 1.25").unwrap()
    }

    #[test]
    fn a_sure_policy_gets_room_upwards_and_loses_it_downwards_and_an_unsure_one_the_reverse() {
        let narrowed = |bounds: FourBounds| {
            [bounds.pos_low, bounds.pos_high, bounds.neg_low, bounds.neg_high]
                .map(|b| (b * 1e6).round() / 1e6)
        };
        assert_eq!(narrowed(control().next(BEGIN, 0.4)), [0.16, 6.25, 0.25, 4.0]);
        assert_eq!(narrowed(control().next(BEGIN, 1.1)), [0.25, 4.0, 0.16, 6.25]);
        for inside in [0.5, 0.75, 1.0, f64::NAN] {
            assert_eq!(control().next(BEGIN, inside), BEGIN);
        }
    }

    #[test]
    fn bounds_stop_at_their_limits_and_come_back_from_them() {
        let control = control();
        let low = (0..100).fold(BEGIN, |bounds, _| control.next(bounds, 0.0));
        let expected = FourBounds { pos_low: 0.1, pos_high: 10.0, neg_low: 1.5_f64.recip(), neg_high: 1.5 };
        assert_eq!(low, expected);
        let back = control.next(low, 2.0);
        assert!(back.pos_high < 10.0 && back.pos_low > 0.1 && back.neg_high > 1.5, "{back:?}");
        let reversed = (0..100).fold(low, |bounds, _| control.next(bounds, 2.0));
        assert_eq!((reversed.pos_high, reversed.neg_high), (1.5, 10.0));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |change: &str, bounds: &FourBounds| {
            let text = format!("entropy_low = 0.5\n{change}");
            let control: BoundControlConfig = toml::from_str(&text).unwrap();
            control.validate(bounds).unwrap_err().to_string()
        };
        for (change, name) in [
            ("entropy_high = 0.4", "control.entropy_high"),
            ("entropy_high = inf", "control.entropy_high"),
            ("entropy_high = 1.0\nstep = 1.0", "control.step"),
            ("entropy_high = 1.0\nnarrowest = 0.9", "control.narrowest"),
            ("entropy_high = 1.0\nwidest = 1.2", "control.widest"),
        ] {
            assert!(refused(change, &BEGIN).contains(name), "{change}");
        }
        let fine = "entropy_high = 1.0";
        for (bounds, name) in [
            (FourBounds { pos_high: 20.0, ..BEGIN }, "pos_high"),
            (FourBounds { neg_high: 1.2, ..BEGIN }, "neg_high"),
            (FourBounds { pos_low: 0.9, ..BEGIN }, "pos_low"),
            (FourBounds { neg_low: 0.0, ..BEGIN }, "neg_low"),
        ] {
            assert!(refused(fine, &bounds).contains(name), "{bounds:?}");
        }
        assert!(toml::from_str::<BoundControlConfig>("entropy_low = 0.5").is_err());
        let control: BoundControlConfig = toml::from_str("entropy_low = 0.5\nentropy_high = 1.0").unwrap();
        control.validate(&BEGIN).unwrap();
        assert_eq!((control.step, control.narrowest, control.widest), (1.02, 1.5, 10.0));
    }
}
