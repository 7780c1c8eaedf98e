//! How token losses become one number: every aggregation is a weight for each row,
//!
//! ```text
//! loss = Σ_i weight_i Σ_t l_it          n_i = loss tokens of row i, N_p = of prompt p, k_p = rows of prompt p
//!
//! token_mean    1 / Σ_i n_i             seq_mean      1 / (rows with loss tokens · n_i)
//! seq_sum_mean  1 / rows with loss tokens             prompt_mean  1 / (prompts with loss tokens · N_p)
//! fixed_length  1 / (rows · max_length) sum           1
//! group_mean    1 / (prompts with loss tokens · k_p)
//! ```
//!
//! Invariants: weights come from the *whole* batch (all micro-batches, all replicas) and count loss tokens *before*
//! any off-policy rule removes some, so that contributions of micro-batches add up and a removed token never
//! amplifies those that stay. A row without loss tokens weighs nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::objective::{Form, RowChoice};
use super::pairs::{self, Pair};
use super::{Shape, TokenLossConfig, TokenLossError};

/// How token losses l are summed over a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over all loss tokens: long sequences weigh more.
    TokenMean,
    /// Mean over sequences of the mean over their tokens: every sequence weighs the same.
    SeqMean,
    /// Mean over prompts of the mean over their tokens: every prompt weighs the same.
    PromptMean,
    /// Mean over sequences of the sum over their tokens.
    SeqSumMean,
    /// Sum divided by rows times `max_length`, a constant: no bias by length.
    FixedLength,
    /// The sum.
    Sum,
    /// Mean over prompts of the mean over their rows (empty ones counted) of the sum over tokens. Only for k15.
    GroupMean,
}

impl fmt::Display for Aggregation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TokenMean => "token_mean",
            Self::SeqMean => "seq_mean",
            Self::PromptMean => "prompt_mean",
            Self::SeqSumMean => "seq_sum_mean",
            Self::FixedLength => "fixed_length",
            Self::Sum => "sum",
            Self::GroupMean => "group_mean",
        })
    }
}

/// The counts that aggregations divide by. Those of replicas add up when each prompt is on one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Loss tokens.
    pub loss_tokens: usize,
    /// Rows, empty ones included.
    pub rows: usize,
    /// Rows with loss tokens.
    pub rows_with_loss: usize,
    /// Prompts with loss tokens.
    pub prompts_with_loss: usize,
    /// Pairs of a best and a worst row.
    pub pairs: usize,
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            loss_tokens: self.loss_tokens + other.loss_tokens,
            rows: self.rows + other.rows,
            rows_with_loss: self.rows_with_loss + other.rows_with_loss,
            prompts_with_loss: self.prompts_with_loss + other.prompts_with_loss,
            pairs: self.pairs + other.pairs,
        }
    }
}

/// What a micro-batch must know of its whole batch. Computed once a batch; [`Denominators::select`] gives each
/// micro-batch its part.
#[derive(Debug, Clone, PartialEq)]
pub struct Denominators {
    weights: Vec<f64>,
    pairs: Vec<Pair>,
    totals: Totals,
}

impl Denominators {
    /// The denominators of a whole batch.
    ///
    /// # Errors
    /// When the settings contradict each other, the shape does not hold together, or rewards are needed and absent.
    pub fn new(config: &TokenLossConfig, shape: &Shape<'_>) -> Result<Self, TokenLossError> {
        Self::build(config, shape, None)
    }

    /// The denominators of one replica's part of a batch, given the summed [`Denominators::totals`] of all replicas.
    ///
    /// # Errors
    /// As [`Denominators::new`].
    pub fn with_totals(
        config: &TokenLossConfig,
        shape: &Shape<'_>,
        totals: Totals,
    ) -> Result<Self, TokenLossError> {
        Self::build(config, shape, Some(totals))
    }

    /// The denominators of a loss that is not an objective's, such as the value function's.
    ///
    /// # Errors
    /// When the shape does not hold together, or `fixed_length` lacks its length.
    pub fn of_all_rows(
        aggregation: Aggregation,
        max_length: Option<usize>,
        shape: &Shape<'_>,
    ) -> Result<Self, TokenLossError> {
        shape.validate()?;
        let counts = Counts::of(shape, None);
        let weights = counts.weigh(aggregation, max_length, shape, counts.totals)?;
        Ok(Self { weights, pairs: Vec::new(), totals: counts.totals })
    }

    fn build(
        config: &TokenLossConfig,
        shape: &Shape<'_>,
        totals: Option<Totals>,
    ) -> Result<Self, TokenLossError> {
        config.validate()?;
        shape.validate()?;
        let rewards = || {
            let (what, array) = (config.objective.kind(), "rewards");
            shape.rewards.ok_or(TokenLossError::Missing { what, array })
        };
        let (mut pairs, mut chosen) = (Vec::new(), None);
        match config.objective.form() {
            Form::Pairs(_) => pairs = pairs::best_and_worst(shape.prompts, rewards()?),
            Form::Rows(objective) => {
                if objective.choice() == RowChoice::BestOfPrompt {
                    chosen = Some(pairs::best_rows(shape.prompts, rewards()?));
                }
            }
        }
        let mut counts = Counts::of(shape, chosen);
        counts.totals.pairs = pairs.len();
        let totals = totals.unwrap_or(counts.totals);
        let weights = counts.weigh(config.aggregation(), config.max_length, shape, totals)?;
        Ok(Self { weights, pairs, totals })
    }

    /// The part of a micro-batch that holds these rows of the whole batch, in this order.
    ///
    /// # Errors
    /// When a row does not exist, or one row of a pair is there without the other.
    pub fn select(&self, rows: &[usize]) -> Result<Self, TokenLossError> {
        let known = self.weights.len();
        let weights = rows.iter().map(|&row| {
            self.weights.get(row).copied().ok_or(TokenLossError::UnknownRow { row, rows: known })
        });
        let weights = weights.collect::<Result<_, _>>()?;
        let local = |wanted: usize| rows.iter().position(|&row| row == wanted);
        let mut pairs = Vec::new();
        for &Pair { chosen, rejected } in &self.pairs {
            match (local(chosen), local(rejected)) {
                (Some(chosen), Some(rejected)) => pairs.push(Pair { chosen, rejected }),
                (None, None) => {}
                _ => return Err(TokenLossError::SplitPair { chosen, rejected }),
            }
        }
        Ok(Self { weights, pairs, totals: self.totals })
    }

    /// The counts behind the weights, to be summed over replicas.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The weight of each row's summed token losses.
    #[must_use]
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The pairs of a pairwise objective, by row.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }
}

/// What is counted in one shape.
struct Counts {
    /// Loss tokens of each row, none in rows that were not chosen.
    of_row: Vec<usize>,
    /// Loss tokens and rows of each prompt.
    of_prompt: BTreeMap<usize, (usize, usize)>,
    totals: Totals,
}

impl Counts {
    /// Counts the rows that are `chosen` (all without a choice).
    fn of(shape: &Shape<'_>, chosen: Option<Vec<bool>>) -> Self {
        let chosen = chosen.unwrap_or_else(|| vec![true; shape.rows.len()]);
        let mut counts =
            Self { of_row: vec![0; shape.rows.len()], of_prompt: BTreeMap::new(), totals: Totals::default() };
        for (row, _) in chosen.iter().enumerate().filter(|&(_, &chosen)| chosen) {
            let tokens = shape.loss_tokens(row).count();
            counts.of_row[row] = tokens;
            let (prompt_tokens, prompt_rows) = counts.of_prompt.entry(shape.prompts[row]).or_default();
            *prompt_tokens += tokens;
            *prompt_rows += 1;
            counts.totals.loss_tokens += tokens;
            counts.totals.rows += 1;
            counts.totals.rows_with_loss += usize::from(tokens > 0);
        }
        counts.totals.prompts_with_loss = counts.of_prompt.values().filter(|(tokens, _)| *tokens > 0).count();
        counts
    }

    fn weigh(
        &self,
        aggregation: Aggregation,
        max_length: Option<usize>,
        shape: &Shape<'_>,
        totals: Totals,
    ) -> Result<Vec<f64>, TokenLossError> {
        let length = max_length.filter(|&length| length > 0);
        if aggregation == Aggregation::FixedLength && length.is_none() {
            return Err(TokenLossError::MaxLength);
        }
        let weight = |row: usize| {
            let tokens = self.of_row[row];
            if tokens == 0 {
                return 0.0;
            }
            let (prompt_tokens, prompt_rows) = self.of_prompt[&shape.prompts[row]];
            let divisor = match aggregation {
                Aggregation::TokenMean => totals.loss_tokens as f64,
                Aggregation::SeqMean => totals.rows_with_loss as f64 * tokens as f64,
                Aggregation::PromptMean => totals.prompts_with_loss as f64 * prompt_tokens as f64,
                Aggregation::SeqSumMean => totals.rows_with_loss as f64,
                Aggregation::FixedLength => totals.rows as f64 * length.unwrap_or(1) as f64,
                Aggregation::Sum => 1.0,
                Aggregation::GroupMean => totals.prompts_with_loss as f64 * prompt_rows as f64,
            };
            divisor.recip()
        };
        Ok((0..shape.rows.len()).map(weight).collect())
    }
}
