//! The two shapes of an objective: a sum over rows, or a function of pairs of rows.

use crate::learner::token::batch::Token;
use crate::learner::token::{Aggregation, Diagnostics, Figure, Needs, ReferenceKlConfig, TokenLossError};

/// A token's loss and its derivative with respect to log π.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Term {
    /// The loss.
    pub value: f64,
    /// Its derivative.
    pub slope: f64,
}

impl Term {
    /// −sg[weight] A log π: the policy gradient. Nothing at all for a weight or an advantage of 0, whatever the
    /// log-probability is.
    pub fn policy_gradient(weight: f64, token: &Token) -> Self {
        if weight == 0.0 || token.advantage == 0.0 {
            return Self::default();
        }
        let slope = -weight * token.advantage;
        Self { value: slope * token.log_prob, slope }
    }

    /// The same times a weight that carries no gradient; nothing at all for a weight of 0.
    pub fn weighted(self, weight: f64) -> Self {
        if weight == 0.0 {
            return Self::default();
        }
        Self { value: weight * self.value, slope: weight * self.slope }
    }

    /// This and a square that pulls x to 0: + tau x², with x = log π minus a constant.
    pub fn plus_square(self, tau: f64, x: f64) -> Self {
        Self { value: self.value + tau * x * x, slope: self.slope + 2.0 * tau * x }
    }
}

/// The loss tokens of one sequence; never empty.
pub(in crate::learner::token) struct Row<'a> {
    /// Which row of the batch, for messages.
    pub index: usize,
    /// Its loss tokens.
    pub tokens: &'a [Token],
}

impl Row<'_> {
    /// Σ_t of a figure of its tokens.
    pub fn sum(&self, figure: impl Fn(&Token) -> f64) -> f64 {
        self.tokens.iter().map(figure).sum()
    }

    /// The mean of a figure of its tokens.
    pub fn mean(&self, figure: impl Fn(&Token) -> f64) -> f64 {
        self.sum(figure) / self.tokens.len() as f64
    }

    /// The one advantage that stands at all of its tokens.
    ///
    /// # Errors
    /// When they differ.
    pub fn advantage(&self) -> Result<f64, TokenLossError> {
        let first = self.tokens[0].advantage;
        let same = self.tokens.iter().all(|token| token.advantage.to_bits() == first.to_bits());
        if same { Ok(first) } else { Err(TokenLossError::MixedAdvantages { row: self.index }) }
    }
}

/// Where an objective puts the loss of a row.
pub(in crate::learner::token) struct Terms<'a> {
    value: f64,
    slopes: &'a mut [f64],
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Terms<'a> {
    /// Terms of a row with as many loss tokens as `slopes` has entries, all 0.
    pub fn new(slopes: &'a mut [f64], diagnostics: &'a mut Diagnostics) -> Self {
        Self { value: 0.0, slopes, diagnostics }
    }

    /// Σ_t of the losses.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The figures.
    pub fn diagnostics(&mut self) -> &mut Diagnostics {
        self.diagnostics
    }

    /// Adds the term of each token.
    pub fn each(&mut self, row: &Row<'_>, mut term: impl FnMut(&Token, &mut Diagnostics) -> Term) {
        for (token, slope) in row.tokens.iter().zip(&mut *self.slopes) {
            let term = term(token, self.diagnostics);
            self.value += term.value;
            *slope += term.slope;
        }
    }

    /// Adds the term of each token of an objective that weighs by r = π/μ, which is handed over beside the token.
    pub fn each_ratio(&mut self, row: &Row<'_>, mut term: impl FnMut(&Token, f64, &mut Diagnostics) -> Term) {
        self.each(row, |token, diagnostics| {
            let ratio = token.ratio();
            diagnostics.record(Figure::RatioMean, ratio);
            term(token, ratio, diagnostics)
        });
    }

    /// Adds a loss of the whole row, whose derivative is the same for every token.
    pub fn whole(&mut self, term: Term) {
        self.value += term.value;
        for slope in &mut *self.slopes {
            *slope += term.slope;
        }
    }
}

/// Which rows a loss is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::learner::token) enum RowChoice {
    /// All.
    All,
    /// The row of the largest reward of each prompt.
    BestOfPrompt,
}

/// What every objective's settings say about it.
pub(in crate::learner::token) trait Objective {
    /// Refuses settings that are out of range.
    fn validate(&self) -> Result<(), TokenLossError>;

    /// Which optional arrays it reads.
    fn needs(&self) -> Needs {
        Needs::ADVANTAGES
    }

    /// The aggregation that it is published with.
    fn aggregation(&self) -> Aggregation {
        Aggregation::TokenMean
    }

    /// The aggregations that it accepts, in words, when it refuses this one.
    fn refuses(&self, aggregation: Aggregation) -> Option<&'static str> {
        (aggregation == Aggregation::GroupMean).then_some("any other but group_mean, which belongs to k15")
    }

    /// The reference KL that it is published with.
    fn reference_kl(&self) -> ReferenceKlConfig {
        ReferenceKlConfig::default()
    }
}

/// An objective that is a weighted sum over rows.
pub(in crate::learner::token) trait RowObjective: Objective {
    /// Adds the loss of a row, before aggregation.
    fn row(&self, row: &Row<'_>, terms: &mut Terms<'_>) -> Result<(), TokenLossError>;

    /// Which rows it is taken over.
    fn choice(&self) -> RowChoice {
        RowChoice::All
    }
}

/// An objective that is a mean over pairs of rows.
pub(in crate::learner::token) trait PairObjective: Objective {
    /// The loss of a pair and its derivative with respect to the margin.
    fn pair(&self, margin: f64) -> Term;
}

/// An objective in one of the two shapes.
pub(in crate::learner::token) enum Form<'a> {
    /// A sum over rows.
    Rows(&'a dyn RowObjective),
    /// A mean over pairs.
    Pairs(&'a dyn PairObjective),
}
