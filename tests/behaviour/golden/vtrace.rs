//! V-trace targets, and its loss with gradients with respect to logits and values.

use candle_core::{D, Device, Tensor, Var, WithDType};
use forebay::learner::Real;
use forebay::learner::advantage::{
    TokenRow, TokenVtraceConfig, VtraceConfig, VtraceInput, VtraceTargets, token_vtrace, vtrace,
};
use forebay::learner::objective::{Evaluation, LossConfig, Reduction, vtrace_loss};

use super::returns::Ends;
use super::{Case, DOUBLE, Figures, SINGLE, check, defined, narrow};

fn clips(case: &Case) -> VtraceConfig {
    VtraceConfig {
        rho_bar: case.bound("rho_bar"),
        c_bar: case.bound("c_bar"),
        pg_rho_bar: case.bound("pg_rho_bar"),
        lambda: case.param("lambda"),
    }
}

fn targets<F: Real>(case: &Case, log_rhos: &[F]) -> anyhow::Result<VtraceTargets<F>> {
    let ends = Ends::of(case);
    let (rewards, values) = (narrow(&case.numbers("rewards")), narrow(&case.numbers("values")));
    let discounts = narrow(&case.numbers("discounts"));
    let input = VtraceInput { log_rhos, rewards: &rewards, values: &values, discounts: &discounts };
    Ok(vtrace(&clips(case), &input, &ends.boundaries())?)
}

/// The same targets, found episode by episode as rows of tokens: an observation stands behind each step, and what is
/// carried over from outside is the bootstrap. `None` where an episode's discounts differ, which rows do not have.
fn targets_of_rows(case: &Case) -> anyhow::Result<Option<VtraceTargets<f64>>> {
    let VtraceConfig { rho_bar, c_bar, pg_rho_bar, lambda } = clips(case);
    let [steps, columns] = case.shape("rewards")[..] else { panic!("time-major") };
    let [log_rhos, rewards, values, discounts, final_values, bootstrap] =
        ["log_rhos", "rewards", "values", "discounts", "final_values", "bootstrap"]
            .map(|key| case.numbers(key));
    let (terminated, truncated) = (case.flags("terminated"), case.flags("truncated"));
    let mut found = VtraceTargets { vs: vec![0.0; rewards.len()], pg_advantages: vec![0.0; rewards.len()] };
    for (column, &carried) in bootstrap.iter().enumerate() {
        let places: Vec<usize> = (0..steps).map(|step| step * columns + column).collect();
        for episode in places.split_inclusive(|&place| terminated[place] || truncated[place]) {
            let last = episode[episode.len() - 1];
            let gamma = discounts[episode[0]];
            if episode.iter().any(|&place| discounts[place] != gamma) {
                return Ok(None);
            }
            let interleaved = |numbers: &[f64]| -> Vec<f64> {
                episode.iter().flat_map(|&place| [numbers[place], f64::NAN]).collect()
            };
            let row = TokenRow {
                token_rewards: &interleaved(&rewards),
                values: &interleaved(&values),
                action_mask: &[true, false].repeat(episode.len()),
                terminal_reward: 0.0,
                bootstrap: match (terminated[last], truncated[last]) {
                    (true, _) => 0.0,
                    (false, true) => final_values[last],
                    (false, false) => carried,
                },
            };
            let config = TokenVtraceConfig { gamma, rho_bar, c_bar, pg_rho_bar, lambda, weighted: true };
            let targets = token_vtrace(&config, &row, &interleaved(&log_rhos))?;
            for (index, &place) in episode.iter().enumerate() {
                found.vs[place] = targets.value_targets[2 * index];
                found.pg_advantages[place] = targets.advantages[2 * index];
            }
        }
    }
    Ok(Some(found))
}

fn figures<F: Real>(targets: &VtraceTargets<F>) -> Figures {
    vec![("vs", defined(&targets.vs)), ("pg_advantages", defined(&targets.pg_advantages))]
}

fn log_softmax(logits: &Tensor) -> candle_core::Result<Tensor> {
    let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
    shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

fn loss<F: Real + WithDType>(case: &Case) -> anyhow::Result<Figures> {
    let variable = |key: &str| Var::from_vec(narrow::<F>(&case.numbers(key)), case.shape(key), &Device::Cpu);
    let (logits, values) = (variable("logits")?, variable("values")?);
    let actions: Vec<u32> = case.numbers("actions").into_iter().map(|action| action as u32).collect();
    let actions = Tensor::from_vec(actions, case.shape("actions"), &Device::Cpu)?.unsqueeze(2)?;
    let log_probs = log_softmax(&logits)?;
    let log_prob = log_probs.gather(&actions, 2)?.squeeze(2)?;
    let entropy = (log_probs.exp()? * &log_probs)?.sum(2)?.neg()?;

    let policy = Evaluation::<F>::new(&log_prob, &entropy, &values)?;
    let log_rhos = policy.log_ratios(&narrow(&case.numbers("behaviour_log_probs")))?;
    let targets = targets(case, &log_rhos)?;
    let config = LossConfig {
        value_coef: case.param("value_coef"),
        entropy_coef: case.param("entropy_coef"),
        reduction: match case.word("reduction") {
            "sum" => Reduction::Sum,
            "mean" => Reduction::Mean,
            other => panic!("unknown reduction {other}"),
        },
    };
    let mask = case.flags("mask");
    let loss = vtrace_loss(&config, &clips(case), &policy, &targets, &log_rhos, Some(&mask))?;
    let gradients = loss.total.backward()?;
    let gradient = |variable: &Var| -> anyhow::Result<Vec<Option<f64>>> {
        let gradient = gradients.get(variable).expect("a gradient reaches every variable");
        Ok(defined(&gradient.flatten_all()?.to_vec1::<F>()?))
    };
    let mut figures = figures(&targets);
    figures.extend([
        ("log_rhos", defined(&log_rhos)),
        ("policy_loss", vec![Some(loss.diagnostics.policy_loss)]),
        ("baseline_loss", vec![Some(loss.diagnostics.baseline_loss)]),
        ("entropy", vec![Some(loss.diagnostics.entropy)]),
        ("total_loss", vec![Some(loss.total.to_scalar::<F>()?.widen())]),
        ("grad_logits", gradient(&logits)?),
        ("grad_values", gradient(&values)?),
    ]);
    Ok(figures)
}

fn compute<F: Real + WithDType>(case: &Case) -> anyhow::Result<Figures> {
    match case.function() {
        "vtrace" => Ok(figures(&targets::<F>(case, &narrow(&case.numbers("log_rhos")))?)),
        "vtrace_loss" => loss::<F>(case),
        _ => case.unknown(),
    }
}

#[test]
fn golden_vtrace() {
    check("vtrace", DOUBLE, compute::<f64>);
    check("vtrace", SINGLE, compute::<f32>);
}

#[test]
fn golden_vtrace_over_rows_of_tokens() {
    let compared = std::cell::Cell::new(0);
    check("vtrace", DOUBLE, |case| {
        if case.function() != "vtrace" {
            return compute::<f64>(case);
        }
        let Some(targets) = targets_of_rows(case)? else { return compute::<f64>(case) };
        compared.set(compared.get() + 1);
        Ok(figures(&targets))
    });
    println!("{} cases as rows", compared.get());
}
