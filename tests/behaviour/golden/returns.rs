//! Discounted, n-step and upgoing returns; and the boundaries that other time-major families share.

use forebay::learner::Real;
use forebay::learner::advantage::{
    AdvantageError, Boundaries, discounted_returns, n_step_returns, upgo_returns,
};

use super::{Case, DOUBLE, Figures, SINGLE, check, defined, narrow};

/// The owned arrays behind a [`Boundaries`].
pub struct Ends<F> {
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    final_values: Vec<F>,
    bootstrap: Vec<F>,
}

impl<F: Real> Ends<F> {
    pub fn of(case: &Case) -> Self {
        Self {
            terminated: case.flags("terminated"),
            truncated: case.flags("truncated"),
            final_values: narrow(&case.numbers("final_values")),
            bootstrap: narrow(&case.numbers("bootstrap")),
        }
    }

    pub fn boundaries(&self) -> Boundaries<'_, F> {
        Boundaries {
            terminated: &self.terminated,
            truncated: &self.truncated,
            final_values: &self.final_values,
            bootstrap: &self.bootstrap,
        }
    }
}

fn compute<F: Real>(case: &Case) -> Result<Figures, AdvantageError> {
    let rewards: Vec<F> = narrow(&case.numbers("rewards"));
    let discounts: Vec<F> = narrow(&case.numbers("discounts"));
    let values: Vec<F> = narrow(&case.numbers("values"));
    let ends = Ends::of(case);
    let boundaries = ends.boundaries();
    let returns = match case.function() {
        "discounted" => discounted_returns(&rewards, &discounts, &boundaries)?,
        "n_step" => n_step_returns(case.param("n") as usize, &rewards, &discounts, &values, &boundaries)?,
        "upgo" => upgo_returns(&rewards, &discounts, &values, &boundaries)?,
        _ => case.unknown(),
    };
    Ok(vec![("returns", defined(&returns))])
}

#[test]
fn golden_returns() {
    check("returns", DOUBLE, compute::<f64>);
    check("returns", SINGLE, compute::<f32>);
}
