//! The objectives as a table: what there is, in one line each.

use super::{
    BestOfNConfig, CispoConfig, DapoConfig, DecoupledPpoConfig, DisConfig, DrGrpoConfig, FourBoundConfig,
    GrpoConfig, GspoConfig, IcepopConfig, IpoConfig, K3Config, K15Config, K25Config, LagMaskConfig,
    MopdConfig, OnlineDpoConfig, OpsmConfig, ReinforceConfig, RlooConfig, SapoConfig, TisConfig,
    TokenObjectiveConfig, TokenPpoConfig, ToprConfig,
};

/// One line of [`TOKEN_OBJECTIVES`].
#[derive(Debug, Clone, Copy)]
pub struct TokenObjectiveEntry {
    /// The loss of a token (or pair) in one line; letters as in the documentation of the objectives.
    pub formula: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What it alone refuses beyond settings out of range.
    refuses: &'static str,
    /// Its settings with all defaults.
    pub default: fn() -> TokenObjectiveConfig,
}

impl TokenObjectiveEntry {
    /// Its name in configurations.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        (self.default)().kind()
    }

    /// What it refuses beyond settings out of range, under its default settings.
    #[must_use]
    pub fn refuses(&self) -> String {
        let config = (self.default)();
        let needs = config.needs();
        let common = [
            (config.compares_answers(), "learner.group_size = 1"),
            (!needs.advantages, "advantages from values, learner.reward_kl"),
            (config.corrects_lag(), "weighted V-trace advantages"),
            (config.takes_whole_sequences(), "learner.max_token_age"),
            (config.takes_one_advantage_a_sequence(), "advantages from values"),
        ];
        let common = common.into_iter().filter(|(refused, _)| *refused).map(|(_, what)| what);
        std::iter::once(self.refuses).chain(common).collect::<Vec<_>>().join("; ")
    }

    /// Its default aggregation and settings, as `name = value` separated by commas.
    #[must_use]
    pub fn defaults(&self) -> String {
        let config = (self.default)();
        let mut parts = vec![config.aggregation().to_string()];
        let kl = config.reference_kl();
        if kl.is_on() {
            parts.push(format!("reference_kl = {}", kl.coefficient));
        }
        if let Ok(serde_json::Value::Object(settings)) = serde_json::to_value(&config) {
            let settings = settings.into_iter().filter(|(name, _)| name != "kind");
            parts.extend(settings.map(|(name, value)| match value {
                serde_json::Value::Null => format!("{name} absent"),
                serde_json::Value::String(word) => format!("{name} = {word}"),
                value => format!("{name} = {value}"),
            }));
        }
        parts.join(", ")
    }
}

/// Rows of the table.
macro_rules! table {
    ($($kind:ident($settings:ident): $formula:literal, $source:literal, $refuses:literal;)*) => {
        &[$(TokenObjectiveEntry {
            formula: $formula,
            source: $source,
            refuses: $refuses,
            default: || TokenObjectiveConfig::$kind($settings::default()),
        }),*]
    };
}

/// Every objective of the token workload, in the order in which they are listed.
pub const TOKEN_OBJECTIVES: &[TokenObjectiveEntry] = table! {
    Reinforce(ReinforceConfig): "-A lp", "Williams 1992", "group_mean";
    Ppo(TokenPpoConfig): "-min(r A, clip(r) A); dual clip of A < 0", "arXiv 1707.06347", "group_mean";
    DecoupledPpo(DecoupledPpoConfig): "-w' min(u A, clip(u) A), u = pi/prox, w = prox/mu capped; prox recomputed or approximated",
        "arXiv 2110.00641, 2505.24298", "group_mean; batches without proximal log-probs";
    Grpo(GrpoConfig): "-min(r A, clip(r) A) + reference KL", "arXiv 2402.03300",
        "group_mean; batches without reference log-probs while the KL is on";
    Dapo(DapoConfig): "-min(r A, clip(r) A), more room upwards", "arXiv 2503.14476", "group_mean";
    DrGrpo(DrGrpoConfig): "-min(r A, clip(r) A) over a constant", "arXiv 2503.20783",
        "group_mean; fixed_length without max_length";
    Gspo(GspoConfig): "-min(s A, clip(s) A), s = exp(mean log r of the sequence)", "arXiv 2507.18071",
        "group_mean; advantages that differ within a sequence";
    Cispo(CispoConfig): "-sg[clip(r)] A lp", "arXiv 2506.13585", "group_mean";
    Rloo(RlooConfig): "-sg[W] A lp, W = 1 or the capped ratio of the sequence", "arXiv 2402.14740", "group_mean";
    Tis(TisConfig): "-min(w, cap) min(u A, clip(u) A), u = pi/prox, w = prox/mu", "Ionides 2008; Yao et al. 2025",
        "group_mean; batches without proximal log-probs";
    Icepop(IcepopConfig): "-w 1[low <= w <= high] min(u A, clip(u) A), u = pi/prox, w = prox/mu",
        "arXiv 2510.18855", "group_mean; bounds without 1; batches without proximal log-probs";
    Dis(DisConfig): "-sg[r 1(1 - epsilon_low < r < 1 + epsilon_high)] A lp", "arXiv 2607.07508", "group_mean";
    FourBound(FourBoundConfig): "-sg[r M] A lp, M = r within bounds chosen by the sign of A, fixed or moved by the entropy", "Xiaomi 2026 (MiMo-V2.6)",
        "group_mean; bounds without 1";
    K15(K15Config): "-A L + tau/2 (L - Lref)^2, L = sum of lp over the sequence", "arXiv 2501.12599",
        "token-normalised aggregations at level sequence, and advantages that differ within one; batches without reference log-probs";
    K3(K3Config): "-clip(r, alpha, beta) A + tau (log r)^2, no gradient of the first outside", "arXiv 2607.24653",
        "group_mean; bounds without 1";
    K25(K25Config): "-keep r A + tau (log r)^2, keep: p not yet moved by p_delta", "arXiv 2602.02276", "group_mean";
    Topr(ToprConfig): "-sg[W] A lp, W = 1 if A > 0 else min(r, 1)", "arXiv 2503.14286", "group_mean";
    Sapo(SapoConfig): "-(4/t) sigmoid(t (r - 1)) A", "arXiv 2511.20347", "group_mean";
    Opsm(OpsmConfig): "-min(r A, clip(r) A), 0 for rows with A < 0 and mean(log mu - lp) > delta",
        "arXiv 2512.02556", "group_mean; advantages that differ within a sequence";
    LagMask(LagMaskConfig): "-min(r A, clip(r) A), 0 for tokens older than max_lag", "DeepSeek-AI 2026 (DeepSeek-V4.1-Flash)",
        "group_mean; batches without versions";
    OnlineDpo(OnlineDpoConfig): "-log sigmoid(beta h), h = margin of the pair over the reference",
        "arXiv 2402.04792", "group_mean; a reference KL of its own; pairs split over micro-batches; batches without rewards or reference log-probs";
    Ipo(IpoConfig): "(h - 1/(2 beta))^2, h as in online_dpo", "arXiv 2310.12036",
        "group_mean; a reference KL of its own; batches without rewards or reference log-probs";
    BestOfN(BestOfNConfig): "-lp of the best row of each prompt", "arXiv 2410.18252",
        "group_mean; batches without rewards";
    Mopd(MopdConfig): "-w a lp, a = clip(teacher - lp, r_max) + alpha A, w = sg[r] within bounds",
        "arXiv 2601.02780", "group_mean; bounds without 1; learner.teachers absent; learner.drop_zero_variance";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_named_as_it_is_configured() {
        let mut kinds = Vec::new();
        for entry in TOKEN_OBJECTIVES {
            let config = (entry.default)();
            config.validate().unwrap();
            config.accept(config.aggregation()).unwrap();
            let parsed: TokenObjectiveConfig =
                serde_json::from_value(serde_json::json!({ "kind": entry.kind() })).unwrap();
            assert_eq!(parsed, config, "absent settings are the defaults");
            kinds.push(entry.kind());
        }
        assert_eq!(kinds.len(), 24);
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), TOKEN_OBJECTIVES.len(), "each once");
    }

    #[test]
    fn defaults_are_told_from_the_code() {
        let line = |kind| TOKEN_OBJECTIVES.iter().find(|entry| entry.kind() == kind).unwrap().defaults();
        assert_eq!(line("grpo"), "seq_mean, reference_kl = 0.001, clip_low = 0.2, clip_high = 0.2");
        assert_eq!(line("k15"), "group_mean, tau = 0.1, level = sequence");
        assert_eq!(line("reinforce"), "token_mean");
    }

    #[test]
    fn unknown_settings_are_refused() {
        let parse = |text: &str| serde_json::from_str::<TokenObjectiveConfig>(text);
        assert!(parse(r#"{"kind": "ppo", "clip_lo": 0.1}"#).is_err());
        assert!(parse(r#"{"kind": "reinforce", "clip_low": 0.1}"#).is_err());
        assert!(parse(r#"{"kind": "pppo"}"#).is_err());
    }
}
