//! The inputs that families of token losses share, and the way from d loss / d log π to d loss / d logits.

use std::ops::Range;

use forebay::learner::Real;
use forebay::learner::token::{Shape, TokenBatch};
use forebay::trajectory::Version;

use super::{Case, defined, narrow};

/// The owned arrays behind a [`TokenBatch`], from a case in the axis order `[B, T]`.
pub struct Arrays<F> {
    rows: Vec<Range<usize>>,
    prompts: Vec<usize>,
    mask: Vec<bool>,
    rewards: Option<Vec<Option<f64>>>,
    softmax: Vec<f64>,
    tokens: Vec<usize>,
    log_probs: Vec<F>,
    behaviour: Vec<F>,
    advantages: Option<Vec<F>>,
    proximal: Option<Vec<F>>,
    reference: Option<Vec<F>>,
    teacher: Option<Vec<F>>,
    versions: Option<Vec<Version>>,
    version: Version,
}

impl<F: Real> Arrays<F> {
    pub fn of(case: &Case) -> Self {
        let [rows, columns, vocabulary] = case.shape("logits")[..] else { panic!("logits are [B, T, V]") };
        let tokens: Vec<usize> = case.numbers("tokens").into_iter().map(|token| token as usize).collect();
        let mut softmax = Vec::new();
        let mut log_probs = Vec::new();
        for (logits, &token) in case.numbers("logits").chunks(vocabulary).zip(&tokens) {
            let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log_sum = logits.iter().map(|logit| (logit - largest).exp()).sum::<f64>().ln() + largest;
            softmax.extend(logits.iter().map(|logit| (logit - log_sum).exp()));
            log_probs.push(F::narrow(logits[token] - log_sum));
        }
        let optional = |key: &str| case.has(key).then(|| narrow::<F>(&case.numbers(key)));
        // Where no behaviour policy is given, the current one sampled.
        let behaviour = optional("lp_mu").unwrap_or_else(|| log_probs.clone());
        let by_token = case.parameter("advantage") == "token";
        let advantages = if by_token {
            optional("advantages_token")
        } else {
            optional("advantages_seq").map(|of_row| {
                of_row.iter().flat_map(|&advantage| std::iter::repeat_n(advantage, columns)).collect()
            })
        };
        let versions = case
            .has("versions")
            .then(|| case.numbers("versions").into_iter().map(|version| Version(version as u64)).collect());
        let version = case.parameter("version").as_u64().unwrap_or(0);
        Self {
            rows: (0..rows).map(|row| row * columns..(row + 1) * columns).collect(),
            prompts: case.numbers("prompt_ids").into_iter().map(|prompt| prompt as usize).collect(),
            mask: case.flags("mask"),
            rewards: case.has("rewards").then(|| case.numbers("rewards").into_iter().map(Some).collect()),
            softmax,
            tokens,
            log_probs,
            behaviour,
            advantages,
            proximal: optional("lp_prox"),
            reference: optional("lp_ref"),
            teacher: optional("lp_teacher"),
            versions,
            version: Version(version),
        }
    }

    pub fn shape(&self) -> Shape<'_> {
        self.shape_of(&self.rows, &self.prompts)
    }

    fn shape_of<'a>(&'a self, rows: &'a [Range<usize>], prompts: &'a [usize]) -> Shape<'a> {
        Shape { rows, prompts, mask: &self.mask, rewards: self.rewards.as_deref() }
    }

    pub fn batch(&self) -> TokenBatch<'_, F> {
        self.batch_of(&self.rows, &self.prompts)
    }

    /// The batch with only some of its rows.
    pub fn batch_of<'a>(&'a self, rows: &'a [Range<usize>], prompts: &'a [usize]) -> TokenBatch<'a, F> {
        TokenBatch {
            advantages: self.advantages.as_deref(),
            proximal: self.proximal.as_deref(),
            reference: self.reference.as_deref(),
            teacher: self.teacher.as_deref(),
            versions: self.versions.as_deref(),
            version: self.version,
            ..TokenBatch::new(self.shape_of(rows, prompts), &self.log_probs, &self.behaviour)
        }
    }

    pub fn row(&self, row: usize) -> (Range<usize>, usize) {
        (self.rows[row].clone(), self.prompts[row])
    }

    /// d loss / d logits = d loss / d log π (onehot − softmax).
    pub fn logits_gradient(&self, log_prob_gradient: &[F]) -> Vec<Option<f64>> {
        let vocabulary = self.softmax.len() / self.tokens.len();
        let rows = self.softmax.chunks(vocabulary).zip(&self.tokens).zip(log_prob_gradient);
        let gradient = rows.flat_map(|((probabilities, &token), slope)| {
            probabilities.iter().enumerate().map(move |(entry, probability)| {
                slope.widen() * (f64::from(u8::from(entry == token)) - probability)
            })
        });
        defined(&gradient.collect::<Vec<f64>>())
    }
}
