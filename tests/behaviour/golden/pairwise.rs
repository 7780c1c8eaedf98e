//! Preference pairs and best of n.

use forebay::learner::Real;
use forebay::learner::token::{
    Denominators, Figure, Pair, TokenLossConfig, TokenLossError, pair_margins, token_loss,
};
use serde_json::json;

use super::token_batch::Arrays;
use super::{Case, DOUBLE, Figures, SINGLE, check, defined};

fn configuration(case: &Case) -> TokenLossConfig {
    let config = match (case.function(), case.parameter("variant").as_str()) {
        ("online_dpo", Some("sigmoid")) => {
            json!({ "objective": { "kind": "online_dpo", "beta": case.param("beta") } })
        }
        ("online_dpo", Some("ipo")) => json!({ "objective": { "kind": "ipo", "beta": case.param("beta") } }),
        ("best_of_n", _) => {
            json!({ "objective": { "kind": "best_of_n" }, "aggregation": case.parameter("agg") })
        }
        _ => case.unknown(),
    };
    serde_json::from_value(config).unwrap()
}

fn indices(rows: impl Iterator<Item = usize>) -> Vec<Option<f64>> {
    rows.map(|row| Some(row as f64)).collect()
}

fn compute<F: Real>(case: &Case) -> Result<Figures, TokenLossError> {
    let config = configuration(case);
    let arrays = Arrays::<F>::of(case);
    let denominators = Denominators::new(&config, &arrays.shape())?;
    let result = token_loss(&config, &arrays.batch(), &denominators)?;
    let mut figures = vec![
        ("loss", vec![Some(result.loss)]),
        ("grad_logits", arrays.logits_gradient(&result.log_prob_gradient)),
    ];
    if case.function() == "best_of_n" {
        let weights = denominators.weights().iter().enumerate();
        let chosen = weights.filter(|(_, weight)| **weight > 0.0).map(|(row, _)| row);
        figures.push(("chosen", indices(chosen)));
    } else {
        let pairs: &[Pair] = denominators.pairs();
        figures.push(("chosen", indices(pairs.iter().map(|pair| pair.chosen))));
        figures.push(("rejected", indices(pairs.iter().map(|pair| pair.rejected))));
        figures.push(("margins", defined(&pair_margins(&arrays.batch(), &denominators)?)));
        figures.push(("accuracy", vec![result.diagnostics.get(Figure::Accuracy)]));
    }
    Ok(figures)
}

#[test]
fn golden_pairwise() {
    check("pairwise", DOUBLE, compute::<f64>);
    check("pairwise", SINGLE, compute::<f32>);
}
