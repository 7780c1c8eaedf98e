//! The value loss, clipped and not.

use candle_core::{Device, Var, WithDType};
use forebay::learner::Real;
use forebay::learner::objective::{Reduction, ValueClip, value_loss};

use super::{Case, DOUBLE, Figures, SINGLE, check, defined, narrow};

fn compute<F: Real + WithDType>(case: &Case) -> anyhow::Result<Figures> {
    if case.function() != "value_loss" {
        case.unknown();
    }
    let values = Var::from_vec(narrow::<F>(&case.numbers("values")), case.shape("values"), &Device::Cpu)?;
    let (targets, mask) = (narrow::<F>(&case.numbers("targets")), case.flags("mask"));
    let old_values = narrow(&case.numbers("old_values"));
    let clip =
        case.option("clip").map(|range| ValueClip { old_values: &old_values, range: F::narrow(range) });
    let reduction = match case.word("agg") {
        "token_mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        other => panic!("unknown aggregation {other}"),
    };
    let result = value_loss(reduction, &values, &targets, clip, Some(&mask))?;
    let gradients = result.loss.backward()?;
    let gradient = gradients.get(&values).expect("a gradient reaches the values");
    Ok(vec![
        ("loss", vec![Some(result.loss.to_scalar::<F>()?.widen())]),
        ("grad_values", defined(&gradient.flatten_all()?.to_vec1::<F>()?)),
        ("clip_frac", vec![result.clipped]),
    ])
}

#[test]
fn golden_value_losses() {
    check("value_losses", DOUBLE, compute::<f64>);
    check("value_losses", SINGLE, compute::<f32>);
}
