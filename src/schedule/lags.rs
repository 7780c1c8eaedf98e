//! How old a trajectory's tokens are for the update that learns from them.

/// Figures of one trajectory. Those over actions are `None` without actions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lags {
    /// Updates between each token, observations included, and the version that learns.
    pub tokens: Vec<u64>,
    /// Lag of the oldest action.
    pub head: Option<u64>,
    /// Mean lag of the actions.
    pub mean: Option<f64>,
    /// Actions with a lag above 0.
    pub old: u64,
    /// Their share of all actions.
    pub old_fraction: Option<f64>,
    /// Updates between the oldest and the newest action.
    pub span: Option<u64>,
}

impl Lags {
    /// The lags at `version` of tokens that `versions` sampled; `is_action` says which the model wrote. Both have one
    /// entry a token.
    #[must_use]
    pub fn of(version: u64, versions: &[u64], is_action: &[bool]) -> Self {
        let tokens: Vec<u64> = versions.iter().map(|sampled| version.saturating_sub(*sampled)).collect();
        let actions: Vec<u64> =
            tokens.iter().zip(is_action).filter(|(_, action)| **action).map(|(lag, _)| *lag).collect();
        let count = actions.len() as f64;
        let old = actions.iter().filter(|lag| **lag > 0).count() as u64;
        let head = actions.iter().max().copied();
        Self {
            head,
            mean: head.map(|_| actions.iter().sum::<u64>() as f64 / count),
            old,
            old_fraction: head.map(|_| old as f64 / count),
            span: head.zip(actions.iter().min()).map(|(most, least)| most - least),
            tokens,
        }
    }
}
