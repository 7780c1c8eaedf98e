//! Objectives on tokens: losses, gradients and diagnostics; contributions of micro-batches; weights of ratios.

use forebay::learner::Real;
use forebay::learner::token::{
    CapMode, CispoConfig, DecoupledPpoConfig, Denominators, Diagnostics, DisConfig, Figure, FourBoundConfig,
    IcepopConfig, K3Config, TokenLossConfig, TokenLossError, TokenObjectiveConfig, ToprConfig, token_loss,
};
use serde_json::{Map, Value, json};

use super::token_batch::Arrays;
use super::{Case, DOUBLE, Figures, SINGLE, check, narrow};

/// The names that configurations use for a parameter of the file, where they differ.
fn configured_name<'a>(kind: &str, parameter: &'a str) -> &'a str {
    match (kind, parameter) {
        ("dis", "eps_low") => "epsilon_low",
        ("dis", "eps_high") => "epsilon_high",
        (_, "eps_low") => "clip_low",
        (_, "eps_high") => "clip_high",
        (_, parameter) => parameter,
    }
}

/// The configuration that a case describes.
pub fn configuration(case: &Case, kind: &str) -> TokenLossConfig {
    const ELSEWHERE: [&str; 9] = [
        "agg",
        "advantage",
        "max_length",
        "version",
        "splits",
        "rule",
        "kl_coef",
        "kl_type",
        "kl_bias_corrected",
    ];
    let mut objective = Map::new();
    for (name, value) in case.parameters() {
        if !ELSEWHERE.contains(&name.as_str()) {
            objective.insert(configured_name(kind, name).to_owned(), value.clone());
        }
    }
    objective.insert("kind".to_owned(), json!(kind));
    let mut config = json!({ "objective": objective, "aggregation": case.parameter("agg") });
    if !case.parameter("max_length").is_null() {
        config["max_length"] = case.parameter("max_length").clone();
    }
    if !case.parameter("kl_coef").is_null() {
        config["reference_kl"] = json!({
            "coefficient": case.parameter("kl_coef"),
            "estimator": case.parameter("kl_type"),
            "bias_corrected": case.parameter("kl_bias_corrected").as_bool().unwrap_or(false),
        });
    }
    serde_json::from_value(config).unwrap()
}

/// Every figure of a batch, as part of the expected `diagnostics`.
pub fn diagnostics(diagnostics: &Diagnostics) -> Figures {
    let figures = Figure::ALL.into_iter().map(|figure| (figure.name(), vec![diagnostics.get(figure)]));
    figures.chain([("loss_tokens", vec![Some(diagnostics.loss_tokens() as f64)])]).collect()
}

fn objective<F: Real>(case: &Case, kind: &str) -> Result<Figures, TokenLossError> {
    let config = configuration(case, kind);
    let arrays = Arrays::<F>::of(case);
    let result = token_loss(&config, &arrays.batch(), &Denominators::new(&config, &arrays.shape())?)?;
    let mut figures = diagnostics(&result.diagnostics);
    figures.push(("loss", vec![Some(result.loss)]));
    figures.push(("grad_logits", arrays.logits_gradient(&result.log_prob_gradient)));
    Ok(figures)
}

fn micro_batches<F: Real>(case: &Case) -> Result<Figures, TokenLossError> {
    let config = configuration(case, "ppo");
    let arrays = Arrays::<F>::of(case);
    let whole = Denominators::new(&config, &arrays.shape())?;
    let mut contributions = Vec::new();
    let mut gradient = vec![F::zero(); arrays.shape().tokens()];
    for split in case.parameter("splits").as_array().unwrap() {
        let rows: Vec<usize> =
            split.as_array().unwrap().iter().map(|row| row.as_u64().unwrap() as usize).collect();
        let (ranges, prompts): (Vec<_>, Vec<_>) = rows.iter().map(|&row| arrays.row(row)).unzip();
        let part = token_loss(&config, &arrays.batch_of(&ranges, &prompts), &whole.select(&rows)?)?;
        contributions.push(Some(part.loss));
        for (sum, slope) in gradient.iter_mut().zip(&part.log_prob_gradient) {
            *sum = *sum + *slope;
        }
    }
    let loss = contributions.iter().flatten().sum();
    Ok(vec![
        ("loss", vec![Some(loss)]),
        ("contributions", contributions),
        ("grad_logits", arrays.logits_gradient(&gradient)),
    ])
}

fn ratio_weight<F: Real>(case: &Case) -> Figures {
    let rule = case.word("rule");
    let kind = if rule.starts_with("cap_") { "decoupled_ppo" } else { rule };
    let mut settings = Map::from_iter([("kind".to_owned(), json!(kind))]);
    for (name, value) in case.parameters().iter().filter(|(name, _)| *name != "rule") {
        settings.insert(configured_name(kind, name).to_owned(), value.clone());
    }
    let settings: TokenObjectiveConfig = serde_json::from_value(Value::Object(settings)).unwrap();
    let weight = |ratio: f64, advantage: f64| match settings {
        TokenObjectiveConfig::Dis(settings) => DisConfig::weight(&settings, ratio),
        TokenObjectiveConfig::FourBound(settings) => FourBoundConfig::weight(&settings, ratio, advantage),
        TokenObjectiveConfig::Icepop(settings) => IcepopConfig::weight(&settings, ratio),
        TokenObjectiveConfig::Cispo(settings) => CispoConfig::weight(&settings, ratio),
        TokenObjectiveConfig::Topr(settings) => ToprConfig::weight(&settings, ratio, advantage),
        TokenObjectiveConfig::K3(settings) => f64::from(u8::from(K3Config::passes(&settings, ratio))),
        TokenObjectiveConfig::DecoupledPpo(settings) => {
            let cap_mode = if rule == "cap_mask" { CapMode::Mask } else { CapMode::Clamp };
            DecoupledPpoConfig { cap_mode, ..settings }.weight(ratio)
        }
        _ => case.unknown(),
    };
    let inputs = |key| narrow::<F>(&case.numbers(key));
    let pairs = inputs("ratios").into_iter().zip(inputs("advantages"));
    let weights = pairs.map(|(ratio, advantage)| Some(weight(ratio.widen(), advantage.widen())));
    vec![("weights", weights.collect())]
}

fn compute<F: Real>(case: &Case) -> Result<Figures, TokenLossError> {
    const OBJECTIVES: [&str; 20] = [
        "reinforce",
        "ppo",
        "decoupled_ppo",
        "grpo",
        "dapo",
        "dr_grpo",
        "gspo",
        "cispo",
        "rloo",
        "tis",
        "icepop",
        "dis",
        "four_bound",
        "k15",
        "k3",
        "k25",
        "topr",
        "sapo",
        "opsm",
        "lag_mask",
    ];
    match case.function() {
        "ppo_microbatches" => micro_batches::<F>(case),
        "ratio_weight" => Ok(ratio_weight::<F>(case)),
        kind if OBJECTIVES.contains(&kind) => objective::<F>(case, kind),
        _ => case.unknown(),
    }
}

#[test]
fn golden_token_losses() {
    check("token_losses", DOUBLE, compute::<f64>);
    check("token_losses", SINGLE, compute::<f32>);
}
