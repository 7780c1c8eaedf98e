//! A random batch that owns its arrays.

use std::ops::Range;

use crate::learner::token::{
    Aggregation, Denominators, Shape, TOKEN_OBJECTIVES, TokenBatch, TokenLoss, TokenLossConfig,
    TokenObjectiveConfig, token_loss,
};
use crate::random::CounterRng;
use crate::trajectory::Version;

/// The arrays behind a [`TokenBatch`]. Row 1 is empty, row 4 is masked throughout, and rows 0 to 2, 3 to 5 and 6 to 7
/// are the prompts.
#[derive(Debug, Clone)]
pub struct Fixture {
    pub rows: Vec<Range<usize>>,
    pub prompts: Vec<usize>,
    pub mask: Vec<bool>,
    pub rewards: Vec<Option<f64>>,
    pub log_probs: Vec<f64>,
    pub behaviour: Vec<f64>,
    pub advantages: Vec<f64>,
    pub proximal: Vec<f64>,
    pub reference: Vec<f64>,
    pub teacher: Vec<f64>,
    pub entropies: Vec<f64>,
    pub versions: Vec<Version>,
}

impl Fixture {
    pub fn new(seed: u64) -> Self {
        let mut random = CounterRng::new(seed);
        let lengths = [4, 0, 6, 3, 5, 7, 1, 4];
        let mut rows = Vec::new();
        let (mut mask, mut advantages) = (Vec::new(), Vec::new());
        for (row, length) in lengths.into_iter().enumerate() {
            let start = mask.len();
            let advantage = random.normal();
            for token in 0..length {
                mask.push(row != 4 && (token == 0 || random.uniform() < 0.7));
                advantages.push(advantage);
            }
            rows.push(start..mask.len());
        }
        let tokens = mask.len();
        let mut near = |centre: &[f64], distance: f64| -> Vec<f64> {
            centre.iter().map(|value| value + distance * random.normal()).collect()
        };
        let log_probs = near(&vec![-2.0; tokens], 0.5);
        Self {
            rows,
            prompts: vec![0, 0, 0, 1, 1, 1, 2, 2],
            rewards: [1.0, 3.0, -1.0, 0.5, 0.0, 2.0, 4.0, -2.0].map(Some).to_vec(),
            behaviour: near(&log_probs, 0.4),
            proximal: near(&log_probs, 0.3),
            reference: near(&log_probs, 0.3),
            teacher: near(&log_probs, 0.3),
            entropies: near(&vec![1.5; tokens], 0.2),
            versions: (0..tokens).map(|token| Version(token as u64 % 8)).collect(),
            mask,
            log_probs,
            advantages,
        }
    }

    pub fn shape(&self) -> Shape<'_> {
        Shape { rows: &self.rows, prompts: &self.prompts, mask: &self.mask, rewards: Some(&self.rewards) }
    }

    pub fn batch(&self) -> TokenBatch<'_, f64> {
        self.batch_of(self.shape())
    }

    pub fn batch_of<'a>(&'a self, shape: Shape<'a>) -> TokenBatch<'a, f64> {
        TokenBatch {
            advantages: Some(&self.advantages),
            proximal: Some(&self.proximal),
            reference: Some(&self.reference),
            teacher: Some(&self.teacher),
            entropies: Some(&self.entropies),
            versions: Some(&self.versions),
            version: Version(8),
            ..TokenBatch::new(shape, &self.log_probs, &self.behaviour)
        }
    }

    pub fn loss(&self, config: &TokenLossConfig) -> TokenLoss<f64> {
        let denominators = Denominators::new(config, &self.shape()).unwrap();
        token_loss(config, &self.batch(), &denominators).unwrap()
    }

    /// Writes `filler` wherever nothing may be read.
    pub fn fill(&mut self, filler: f64) {
        let arrays = [
            &mut self.log_probs,
            &mut self.behaviour,
            &mut self.advantages,
            &mut self.proximal,
            &mut self.reference,
            &mut self.teacher,
            &mut self.entropies,
        ];
        for array in arrays {
            for (value, _) in array.iter_mut().zip(&self.mask).filter(|(_, learned)| !**learned) {
                *value = filler;
            }
        }
    }

    /// The arrays of the policies that a ratio can be taken to all say what the current policy says.
    pub fn on_policy(mut self) -> Self {
        self.behaviour.clone_from(&self.log_probs);
        self.proximal.clone_from(&self.log_probs);
        self
    }
}

/// Settings that compute in another way than the defaults do.
const VARIANTS: [&str; 17] = [
    r#"{"kind": "ppo", "dual_clip": 1.5}"#,
    r#"{"kind": "decoupled_ppo", "cap_mode": "clamp", "weight_cap": 1.2}"#,
    r#"{"kind": "decoupled_ppo", "cap_mode": "mask", "weight_cap": 1.2}"#,
    r#"{"kind": "decoupled_ppo", "proximal": "log_linear", "weight_cap": 1.2}"#,
    r#"{"kind": "decoupled_ppo", "proximal": "linear", "weight_cap": 1.2}"#,
    r#"{"kind": "tis", "level": "sequence"}"#,
    r#"{"kind": "tis", "proximal": "linear"}"#,
    r#"{"kind": "icepop", "low": 0.9, "high": 1.1, "proximal": "log_linear"}"#,
    r#"{"kind": "rloo", "seq_ratio_cap": 1.5}"#,
    r#"{"kind": "topr", "level": "sequence"}"#,
    r#"{"kind": "k15", "level": "token"}"#,
    r#"{"kind": "k3", "alpha": 0.9, "beta": 1.1, "outside": "zero"}"#,
    r#"{"kind": "k25", "p_delta": 0.01}"#,
    r#"{"kind": "dis", "epsilon_low": 0.1, "epsilon_high": 0.1, "interval": "closed"}"#,
    r#"{"kind": "four_bound", "pos_low": 0.9, "pos_high": 1.2, "neg_low": 0.8, "neg_high": 1.1}"#,
    r#"{"kind": "mopd", "importance": false, "r_max": 0.2}"#,
    r#"{"kind": "mopd", "alpha": 0.5, "low": 0.9, "high": 1.1}"#,
];

/// Every objective with its defaults and in its variants.
pub fn objectives() -> Vec<TokenObjectiveConfig> {
    let variants = VARIANTS.iter().map(|text| serde_json::from_str(text).unwrap());
    TOKEN_OBJECTIVES.iter().map(|entry| (entry.default)()).chain(variants).collect()
}

/// Every objective in every aggregation that it accepts, with all terms of the loss where it takes them.
pub fn configurations() -> Vec<TokenLossConfig> {
    use Aggregation::{FixedLength, GroupMean, PromptMean, SeqMean, SeqSumMean, Sum, TokenMean};
    let mut configurations = Vec::new();
    for objective in objectives() {
        for aggregation in [TokenMean, SeqMean, PromptMean, SeqSumMean, FixedLength, Sum, GroupMean] {
            let mut config = TokenLossConfig {
                aggregation: Some(aggregation),
                max_length: Some(16),
                entropy_coef: 0.01,
                ..TokenLossConfig::of(objective.clone())
            };
            config.reference_kl =
                Some(serde_json::from_str(r#"{"coefficient": 0.1, "bias_corrected": true}"#).unwrap());
            if config.validate().is_err() {
                config.reference_kl = None;
            }
            if config.validate().is_ok() {
                configurations.push(config);
            }
        }
    }
    configurations
}

/// Whether two numbers are equal up to rounding.
pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 + 1e-10 * b.abs()
}
