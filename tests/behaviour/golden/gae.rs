//! Generalised advantage estimation, plain and over action tokens only.

use forebay::learner::Real;
use forebay::learner::advantage::{
    AdvantageError, SkipObservationGaeConfig, TokenRow, gae, skip_observation_gae,
};

use super::returns::Ends;
use super::{Case, DOUBLE, Figures, SINGLE, check, defined, narrow};

fn plain<F: Real>(case: &Case) -> Result<Figures, AdvantageError> {
    let ends = Ends::of(case);
    let targets = gae(
        F::narrow(case.param("gamma")),
        F::narrow(case.param("lambda")),
        &narrow(&case.numbers("rewards")),
        &narrow(&case.numbers("values")),
        &ends.boundaries(),
    )?;
    Ok(vec![("advantages", defined(&targets.advantages)), ("returns", defined(&targets.returns))])
}

fn skipping_observations<F: Real>(case: &Case) -> Result<Figures, AdvantageError> {
    let config = SkipObservationGaeConfig {
        gamma: case.param("gamma"),
        alpha: case.param("alpha"),
        lambda_policy: case.option("lambda_policy"),
    };
    let rewards: Vec<F> = narrow(&case.numbers("token_rewards"));
    let values: Vec<F> = narrow(&case.numbers("values"));
    let action_mask = case.flags("action_mask");
    let terminal_rewards: Vec<F> = narrow(&case.numbers("terminal_rewards"));
    let bootstrap: Vec<F> = narrow(&case.numbers("bootstrap"));
    let tokens = case.shape("values")[1];
    let mut lambdas = Vec::new();
    let (mut policy, mut critic, mut value_targets) = (Vec::new(), Vec::new(), Vec::new());
    for (row, (&terminal_reward, &bootstrap)) in terminal_rewards.iter().zip(&bootstrap).enumerate() {
        let range = row * tokens..(row + 1) * tokens;
        let row = TokenRow {
            token_rewards: &rewards[range.clone()],
            values: &values[range.clone()],
            action_mask: &action_mask[range],
            terminal_reward,
            bootstrap,
        };
        let targets = skip_observation_gae(&config, &row)?;
        lambdas.push(targets.lambda_policy.map(Real::widen));
        policy.extend(defined(&targets.advantages_policy));
        critic.extend(defined(&targets.advantages_critic));
        value_targets.extend(defined(&targets.value_targets));
    }
    Ok(vec![
        ("lambda_policy", lambdas),
        ("advantages_policy", policy),
        ("advantages_critic", critic),
        ("value_targets", value_targets),
    ])
}

fn compute<F: Real>(case: &Case) -> Result<Figures, AdvantageError> {
    match case.function() {
        "gae" => plain::<F>(case),
        "skip_observation_gae" => skipping_observations::<F>(case),
        _ => case.unknown(),
    }
}

#[test]
fn golden_gae() {
    check("gae", DOUBLE, compute::<f64>);
    check("gae", SINGLE, compute::<f32>);
}
