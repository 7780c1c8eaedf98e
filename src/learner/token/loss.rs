//! The loss of a batch or micro-batch: objective + reference KL − entropy bonus, aggregated, with its gradient.
//!
//! ```text
//! loss = Σ_i weight_i Σ_t [ l_it + reference_kl.coefficient · k_it − entropy_coef · H_it ]
//! ```
//!
//! Gradients are in closed form, with respect to log π and to the entropy H of each token; whoever holds the network
//! hands them to automatic differentiation. Inputs may be `f32` or `f64`; all arithmetic is in `f64`.
//!
//! Invariants: what stands at tokens that are no loss tokens is never read, and their gradient is exactly 0. A row
//! without loss tokens contributes exactly 0. With no loss token at all, loss and gradient are 0 and every figure is
//! undefined. The contributions of micro-batches add up to the loss of the whole batch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch::Token;
use super::objective::{Form, PairObjective, Row, RowObjective, Terms};
use super::{
    Aggregation, Denominators, Diagnostics, Figure, Needs, ReferenceKlConfig, TokenBatch, TokenLossError,
    TokenObjectiveConfig,
};
use crate::learner::Real;
use crate::trajectory::TokenFate;

/// What is minimised on a batch of tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenLossConfig {
    /// The objective.
    pub objective: TokenObjectiveConfig,
    /// How token losses are summed over the batch; absent: as the objective is published.
    pub aggregation: Option<Aggregation>,
    /// What `fixed_length` divides by: the most new tokens that a sequence may have.
    pub max_length: Option<usize>,
    /// Divergence from a reference policy; absent: as the objective is published (none but for grpo).
    pub reference_kl: Option<ReferenceKlConfig>,
    /// Weight of the entropy bonus, per nat.
    pub entropy_coef: f64,
}

impl TokenLossConfig {
    /// An objective as it is published.
    #[must_use]
    pub fn of(objective: TokenObjectiveConfig) -> Self {
        Self { objective, ..Self::default() }
    }

    /// The aggregation that is in effect.
    #[must_use]
    pub fn aggregation(&self) -> Aggregation {
        self.aggregation.unwrap_or_else(|| self.objective.aggregation())
    }

    /// The reference KL that is in effect.
    #[must_use]
    pub fn reference_kl(&self) -> ReferenceKlConfig {
        self.reference_kl.unwrap_or_else(|| self.objective.reference_kl())
    }

    /// Which optional arrays of a batch are read.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let needs = self.objective.needs();
        Needs { reference: needs.reference || self.reference_kl().is_on(), ..needs }
    }

    /// Refuses settings that are out of range or contradict each other.
    pub fn validate(&self) -> Result<(), TokenLossError> {
        self.objective.validate()?;
        self.reference_kl().validate()?;
        TokenLossError::check_not_negative("entropy_coef", self.entropy_coef)?;
        let aggregation = self.aggregation();
        self.objective.accept(aggregation)?;
        if aggregation == Aggregation::FixedLength && self.max_length.is_none_or(|length| length == 0) {
            return Err(TokenLossError::MaxLength);
        }
        if matches!(self.objective.form(), Form::Pairs(_)) && self.reference_kl().is_on() {
            return Err(TokenLossError::ReferenceKl { objective: self.objective.kind() });
        }
        Ok(())
    }
}

/// A loss, its parts, its gradients, and the figures that belong to it.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLoss<F> {
    /// What is minimised: objective + reference KL − entropy bonus; a micro-batch's share of its batch.
    pub loss: f64,
    /// The objective's part.
    pub objective: f64,
    /// The reference KL's part, with its coefficient.
    pub reference_kl: f64,
    /// Aggregated entropy before its coefficient; 0 when the batch has none.
    pub entropy: f64,
    /// d loss / d log π, one entry a token; 0 at tokens that are not learned from.
    pub log_prob_gradient: Vec<F>,
    /// d loss / d entropy, one entry a token; absent without an entropy bonus.
    pub entropy_gradient: Option<Vec<F>>,
    /// How the batch looked.
    pub diagnostics: Diagnostics,
}

/// Computes the loss of `batch`, whose rows have the weights in `denominators`: those of the whole batch, or what
/// [`Denominators::select`] gives for a micro-batch.
///
/// # Errors
/// When a setting is out of range, lengths do not fit together, or an array that is needed is absent.
pub fn token_loss<F: Real>(
    config: &TokenLossConfig,
    batch: &TokenBatch<'_, F>,
    denominators: &Denominators,
) -> Result<TokenLoss<F>, TokenLossError> {
    config.validate()?;
    batch.validate()?;
    batch.provide(config.objective.kind(), config.objective.needs())?;
    let weights = denominators.weights();
    TokenLossError::check_length("weights of the denominators", weights.len(), batch.shape.rows.len())?;
    let mut sum = Sum {
        batch,
        loss: TokenLoss {
            loss: 0.0,
            objective: 0.0,
            reference_kl: 0.0,
            entropy: 0.0,
            log_prob_gradient: vec![F::zero(); batch.shape.tokens()],
            entropy_gradient: None,
            diagnostics: Diagnostics::default(),
        },
    };
    match config.objective.form() {
        Form::Rows(objective) => sum.rows(objective, config.reference_kl(), weights)?,
        Form::Pairs(objective) => sum.pairs(objective, denominators),
    }
    sum.entropy(config.entropy_coef, weights)?;
    let mut loss = sum.loss;
    loss.loss = loss.objective + loss.reference_kl;
    if config.entropy_coef > 0.0 {
        loss.loss -= config.entropy_coef * loss.entropy;
    }
    Ok(loss)
}

/// Margins h = [S(chosen) − S(rejected)] − [S_ref(chosen) − S_ref(rejected)] of the pairs, S being sums over loss
/// tokens, nats.
///
/// # Errors
/// When lengths do not fit together, or the batch has no reference log-probabilities.
pub fn pair_margins<F: Real>(
    batch: &TokenBatch<'_, F>,
    denominators: &Denominators,
) -> Result<Vec<f64>, TokenLossError> {
    batch.validate()?;
    batch.provide("the margin of pairs", Needs { reference: true, ..Needs::default() })?;
    let rows = batch.shape.rows.len();
    TokenLossError::check_length("weights of the denominators", denominators.weights().len(), rows)?;
    Ok(margins(batch, denominators))
}

fn margins<F: Real>(batch: &TokenBatch<'_, F>, denominators: &Denominators) -> Vec<f64> {
    let gain = |row: usize| -> f64 {
        let tokens = batch.shape.loss_tokens(row).map(|index| batch.token(index));
        tokens.map(|token| token.log_prob - token.reference).sum()
    };
    denominators.pairs().iter().map(|pair| gain(pair.chosen) - gain(pair.rejected)).collect()
}

/// A loss while it is summed.
struct Sum<'a, 'b, F> {
    batch: &'b TokenBatch<'a, F>,
    loss: TokenLoss<F>,
}

impl<F: Real> Sum<'_, '_, F> {
    fn rows(
        &mut self,
        objective: &dyn RowObjective,
        reference_kl: ReferenceKlConfig,
        weights: &[f64],
    ) -> Result<(), TokenLossError> {
        let needs = Needs { reference: reference_kl.is_on(), ..Needs::default() };
        self.batch.provide("the reference KL", needs)?;
        let (mut places, mut tokens, mut slopes) = (Vec::new(), Vec::<Token>::new(), Vec::new());
        for (index, &weight) in weights.iter().enumerate() {
            places.clear();
            places.extend(self.batch.shape.loss_tokens(index));
            if weight == 0.0 {
                self.loss.diagnostics.fate(TokenFate::NotChosen, places.len());
                continue;
            }
            tokens.clear();
            tokens.extend(places.iter().map(|&place| self.batch.token(place)));
            slopes.clear();
            slopes.resize(places.len(), 0.0);
            for token in &tokens {
                self.loss.diagnostics.token(token.log_ratio());
            }
            let row = Row { index, tokens: &tokens };
            let before = self.loss.diagnostics.with_fate();
            let mut terms = Terms::new(&mut slopes, &mut self.loss.diagnostics);
            objective.row(&row, &mut terms)?;
            self.loss.objective += weight * terms.value();
            self.loss.diagnostics.rest_is_learned(tokens.len(), before);
            if reference_kl.is_on() {
                let mut sum = 0.0;
                for (token, slope) in tokens.iter().zip(&mut slopes) {
                    let term = reference_kl.term(token);
                    self.loss.diagnostics.record(Figure::ReferenceKl, term.value);
                    sum += term.value;
                    *slope += reference_kl.coefficient * term.slope;
                }
                self.loss.reference_kl += weight * reference_kl.coefficient * sum;
            }
            for (&place, &slope) in places.iter().zip(&slopes) {
                self.loss.log_prob_gradient[place] = F::narrow(weight * slope);
            }
        }
        Ok(())
    }

    fn pairs(&mut self, objective: &dyn PairObjective, denominators: &Denominators) {
        let shape = &self.batch.shape;
        let weight = (denominators.totals().pairs.max(1) as f64).recip();
        let before = self.loss.diagnostics.with_fate();
        for (pair, margin) in denominators.pairs().iter().zip(margins(self.batch, denominators)) {
            let term = objective.pair(margin);
            self.loss.objective += weight * term.value;
            self.loss.diagnostics.record(Figure::MarginMean, margin);
            self.loss.diagnostics.flag(Figure::Accuracy, margin > 0.0);
            for (row, sign) in [(pair.chosen, 1.0), (pair.rejected, -1.0)] {
                for place in shape.loss_tokens(row) {
                    let token = self.batch.token(place);
                    self.loss.diagnostics.token(token.log_ratio());
                    self.loss.diagnostics.record(Figure::RatioMean, token.ratio());
                    self.loss.diagnostics.fate(TokenFate::Learned, 1);
                    self.loss.log_prob_gradient[place] = F::narrow(sign * weight * term.slope);
                }
            }
        }
        let all: usize = (0..shape.rows.len()).map(|row| shape.loss_tokens(row).count()).sum();
        let paired = (self.loss.diagnostics.with_fate() - before) as usize;
        self.loss.diagnostics.fate(TokenFate::NotChosen, all - paired);
    }

    fn entropy(&mut self, coefficient: f64, weights: &[f64]) -> Result<(), TokenLossError> {
        let Some(entropies) = self.batch.entropies else {
            return if coefficient > 0.0 {
                Err(TokenLossError::Missing { what: "the entropy bonus", array: "entropies" })
            } else {
                Ok(())
            };
        };
        let mut gradient = vec![F::zero(); self.batch.shape.tokens()];
        for (row, &weight) in weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
            for place in self.batch.shape.loss_tokens(row) {
                let entropy = entropies[place].widen();
                self.loss.diagnostics.record(Figure::Entropy, entropy);
                self.loss.entropy += weight * entropy;
                gradient[place] = F::narrow(-coefficient * weight);
            }
        }
        self.loss.entropy_gradient = (coefficient > 0.0).then_some(gradient);
        Ok(())
    }
}
