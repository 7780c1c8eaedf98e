//! The value loss, clipped and not: on tensors for control, on rows of tokens for language models.

use candle_core::{Device, Var, WithDType};
use forebay::learner::Real;
use forebay::learner::objective::{Reduction, ValueClip, value_loss};
use forebay::learner::token::{Denominators, Shape, TokenLossError, TokenValueClip, token_value_loss};

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

fn compute_on_tokens<F: Real>(case: &Case) -> Result<Figures, TokenLossError> {
    let [rows, columns] = case.shape("values")[..] else { panic!("values are [B, T]") };
    let ranges: Vec<_> = (0..rows).map(|row| row * columns..(row + 1) * columns).collect();
    let (mask, prompts) = (case.flags("mask"), vec![0; rows]);
    let shape = Shape { rows: &ranges, prompts: &prompts, mask: &mask, rewards: None };
    let aggregation = serde_json::from_value(case.parameter("agg").clone()).unwrap();
    let denominators = Denominators::of_all_rows(aggregation, None, &shape)?;
    let input = |key| narrow::<F>(&case.numbers(key));
    let old_values = input("old_values");
    let clip = case.option("clip").map(|range| TokenValueClip { old_values: &old_values, range });
    let result = token_value_loss(&shape, &denominators, &input("values"), &input("targets"), clip)?;
    Ok(vec![
        ("loss", vec![Some(result.loss)]),
        ("clip_frac", vec![result.clip_frac()]),
        ("grad_values", defined(&result.gradient)),
    ])
}

#[test]
fn golden_value_losses_on_tokens() {
    check("value_losses", DOUBLE, compute_on_tokens::<f64>);
    check("value_losses", SINGLE, compute_on_tokens::<f32>);
}

#[test]
fn golden_value_losses() {
    check("value_losses", DOUBLE, compute::<f64>);
    check("value_losses", SINGLE, compute::<f32>);
}
