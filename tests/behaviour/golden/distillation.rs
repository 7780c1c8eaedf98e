//! On-policy distillation from a teacher.

use forebay::learner::Real;
use forebay::learner::token::{Denominators, TokenLossError, TokenObjectiveConfig, token_loss};

use super::token_batch::Arrays;
use super::token_losses::{configuration, diagnostics};
use super::{Case, DOUBLE, Figures, SINGLE, check, defined};

fn compute<F: Real>(case: &Case) -> Result<Figures, TokenLossError> {
    if case.function() != "mopd" {
        case.unknown();
    }
    let config = configuration(case, "mopd");
    let TokenObjectiveConfig::Mopd(settings) = &config.objective else { case.unknown() };
    let arrays = Arrays::<F>::of(case);
    let result = token_loss(&config, &arrays.batch(), &Denominators::new(&config, &arrays.shape())?)?;
    let mut figures = diagnostics(&result.diagnostics);
    figures.push(("loss", vec![Some(result.loss)]));
    figures.push(("grad_logits", arrays.logits_gradient(&result.log_prob_gradient)));
    figures.push(("token_advantages", defined(&settings.token_advantages(&arrays.batch())?)));
    Ok(figures)
}

#[test]
fn golden_distillation() {
    check("distillation", DOUBLE, compute::<f64>);
    check("distillation", SINGLE, compute::<f32>);
}
