//! What an objective sees of a batch: plain slices, flat over rows, with checked lengths.
//!
//! A *row* is one sequence, a range of the flat arrays; a *prompt* is the set of rows that share a label; a *loss
//! token* is an entry of a row whose mask is set. Invariant: no array is read anywhere but at loss tokens, so that
//! masked positions may hold anything, NaN too.

use std::ops::Range;

use super::TokenLossError;
use crate::learner::Real;
use crate::trajectory::Version;

/// Which tokens of a batch count and how they belong together: all that denominators depend on.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// One range of the flat token arrays for each sequence, in order; they do not overlap.
    pub rows: &'a [Range<usize>],
    /// Label of the prompt of each row; rows with equal labels form a group.
    pub prompts: &'a [usize],
    /// Which tokens are learned from, one entry a token.
    pub mask: &'a [bool],
    /// Reward of each row, `None` where grading failed; read only by objectives that choose rows by it.
    pub rewards: Option<&'a [Option<f64>]>,
}

impl Shape<'_> {
    /// Number of tokens, masked ones included.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.mask.len()
    }

    /// Indices of the loss tokens of a row.
    pub fn loss_tokens(&self, row: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        self.rows[row].clone().filter(|&token| self.mask[token])
    }

    /// Refuses rows that are no ranges of the tokens, and arrays of other lengths.
    pub fn validate(&self) -> Result<(), TokenLossError> {
        TokenLossError::check_length("prompts", self.prompts.len(), self.rows.len())?;
        let tokens = self.tokens();
        let mut free = 0;
        for (row, &Range { start, end }) in self.rows.iter().enumerate() {
            if start < free || end < start || end > tokens {
                return Err(TokenLossError::Row { row, start, end, tokens });
            }
            free = end;
        }
        let Some(rewards) = self.rewards else { return Ok(()) };
        TokenLossError::check_length("rewards", rewards.len(), self.rows.len())?;
        let broken = rewards.iter().enumerate().find_map(|(row, reward)| {
            reward.filter(|value| !value.is_finite()).map(|value| TokenLossError::Reward { row, value })
        });
        broken.map_or(Ok(()), Err)
    }
}

/// A batch or micro-batch as an objective sees it. Every array has one entry a token; log-probabilities and entropies
/// are in nats. What an objective needs of the optional ones is told by
/// [`TokenObjectiveConfig::needs`](super::TokenObjectiveConfig::needs).
#[derive(Debug, Clone, Copy)]
pub struct TokenBatch<'a, F> {
    /// Rows, prompts and mask.
    pub shape: Shape<'a>,
    /// log π(token) of the policy that is optimised: what gradients are taken with respect to.
    pub log_probs: &'a [F],
    /// log μ(token) recorded while sampling.
    pub behaviour: &'a [F],
    /// Advantages; one of a whole sequence stands at each of its tokens.
    pub advantages: Option<&'a [F]>,
    /// Log-probability under the policy at the start of the step, which anchors the trust region.
    pub proximal: Option<&'a [F]>,
    /// Log-probability under the reference policy.
    pub reference: Option<&'a [F]>,
    /// Log-probability under the teacher.
    pub teacher: Option<&'a [F]>,
    /// Entropy of the current policy's distribution at each token.
    pub entropies: Option<&'a [F]>,
    /// Version that sampled each token.
    pub versions: Option<&'a [Version]>,
    /// Version that consumes the batch.
    pub version: Version,
}

impl<'a, F: Real> TokenBatch<'a, F> {
    /// A batch without any of the optional arrays, for version 0.
    #[must_use]
    pub fn new(shape: Shape<'a>, log_probs: &'a [F], behaviour: &'a [F]) -> Self {
        Self {
            shape,
            log_probs,
            behaviour,
            advantages: None,
            proximal: None,
            reference: None,
            teacher: None,
            entropies: None,
            versions: None,
            version: Version(0),
        }
    }

    /// Refuses arrays of the wrong length.
    pub fn validate(&self) -> Result<(), TokenLossError> {
        self.shape.validate()?;
        let lengths = [
            ("log_probs", Some(self.log_probs.len())),
            ("behaviour", Some(self.behaviour.len())),
            ("advantages", self.advantages.map(<[F]>::len)),
            ("proximal", self.proximal.map(<[F]>::len)),
            ("reference", self.reference.map(<[F]>::len)),
            ("teacher", self.teacher.map(<[F]>::len)),
            ("entropies", self.entropies.map(<[F]>::len)),
            ("versions", self.versions.map(<[Version]>::len)),
        ];
        lengths.into_iter().try_for_each(|(name, length)| {
            let tokens = self.shape.tokens();
            TokenLossError::check_length(name, length.unwrap_or(tokens), tokens)
        })
    }

    /// Refuses a batch that lacks an array that `what` needs.
    pub(super) fn provide(&self, what: &'static str, needs: Needs) -> Result<(), TokenLossError> {
        let wanted = [
            (needs.advantages, self.advantages.is_none(), "advantages"),
            (needs.proximal, self.proximal.is_none(), "proximal log-probabilities"),
            (needs.reference, self.reference.is_none(), "reference log-probabilities"),
            (needs.teacher, self.teacher.is_none(), "teacher log-probabilities"),
            (needs.versions, self.versions.is_none(), "versions"),
        ];
        match wanted.into_iter().find(|&(needed, absent, _)| needed && absent) {
            Some((_, _, array)) => Err(TokenLossError::Missing { what, array }),
            None => Ok(()),
        }
    }

    /// What stands at one token. Absent arrays read as NaN: [`Self::provide`] keeps them from being used.
    pub(super) fn token(&self, index: usize) -> Token {
        let optional = |array: Option<&[F]>| array.map_or(f64::NAN, |values| values[index].widen());
        Token {
            log_prob: self.log_probs[index].widen(),
            behaviour: self.behaviour[index].widen(),
            advantage: optional(self.advantages),
            proximal: optional(self.proximal),
            reference: optional(self.reference),
            teacher: optional(self.teacher),
            lag: self.versions.map_or(0, |versions| self.version.lag_of(versions[index])),
        }
    }
}

/// Which optional arrays something reads, so that whoever prepares a batch computes no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Advantages.
    pub advantages: bool,
    /// Log-probabilities of the policy at the start of the step: one more forward pass, unless it is the current one.
    pub proximal: bool,
    /// Log-probabilities of the reference policy.
    pub reference: bool,
    /// Log-probabilities of the teacher.
    pub teacher: bool,
    /// Versions of the tokens.
    pub versions: bool,
    /// Rewards of the rows ([`Shape::rewards`]).
    pub rewards: bool,
}

impl Needs {
    /// Advantages and nothing else.
    pub(super) const ADVANTAGES: Self = Self {
        advantages: true,
        proximal: false,
        reference: false,
        teacher: false,
        versions: false,
        rewards: false,
    };

    /// What either needs.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            advantages: self.advantages || other.advantages,
            proximal: self.proximal || other.proximal,
            reference: self.reference || other.reference,
            teacher: self.teacher || other.teacher,
            versions: self.versions || other.versions,
            rewards: self.rewards || other.rewards,
        }
    }
}

/// One loss token in double precision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub log_prob: f64,
    pub behaviour: f64,
    pub advantage: f64,
    pub proximal: f64,
    pub reference: f64,
    pub teacher: f64,
    pub lag: u64,
}

impl Token {
    /// log π/μ.
    pub fn log_ratio(&self) -> f64 {
        self.log_prob - self.behaviour
    }

    /// r = π/μ.
    pub fn ratio(&self) -> f64 {
        self.log_ratio().exp()
    }

    /// u = π/π_prox.
    pub fn proximal_ratio(&self) -> f64 {
        (self.log_prob - self.proximal).exp()
    }

    /// log w = log π_prox/μ.
    pub fn log_weight(&self) -> f64 {
        self.proximal - self.behaviour
    }
}
