//! What every objective keeps to.

use std::slice::from_ref;

use super::fixture::{Fixture, close, configurations};
use crate::learner::token::{
    Aggregation, Denominators, Diagnostics, Figure, KlEstimator, Shape, TOKEN_OBJECTIVES, TokenBatch,
    TokenLossConfig, TokenObjectiveConfig, mean_divergence, reference_kl_rewards, token_loss,
};
use crate::learner::token::{DisConfig, ReinforceConfig, TokenValueClip, token_value_loss};
use crate::trajectory::Version;

fn configuration(text: &str) -> TokenLossConfig {
    toml::from_str(text).unwrap()
}

#[test]
fn nothing_is_read_where_nothing_is_learned() {
    for config in configurations() {
        let (mut zeros, mut fillers) = (Fixture::new(1), Fixture::new(1));
        zeros.fill(0.0);
        for filler in [f64::NAN, f64::INFINITY, -800.0] {
            fillers.fill(filler);
            assert_eq!(zeros.loss(&config), fillers.loss(&config), "{config:?} with {filler}");
        }
    }
}

#[test]
fn masked_tokens_have_a_gradient_of_exactly_0() {
    for config in configurations() {
        let mut fixture = Fixture::new(2);
        fixture.fill(f64::NAN);
        let loss = fixture.loss(&config);
        assert!(loss.loss.is_finite(), "{config:?}");
        let entropy = loss.entropy_gradient.unwrap();
        for (token, _) in fixture.mask.iter().enumerate().filter(|(_, learned)| !**learned) {
            assert_eq!([loss.log_prob_gradient[token], entropy[token]], [0.0; 2], "{config:?}");
        }
    }
}

#[test]
fn a_batch_without_loss_tokens_has_no_loss_and_no_figures() {
    for config in configurations() {
        let mut fixture = Fixture::new(3);
        fixture.mask.fill(false);
        // A pair has a margin of 0 even between empty rows; without rewards there is no pair.
        fixture.rewards.fill(None);
        let loss = fixture.loss(&config);
        assert_eq!(loss.loss, 0.0);
        assert!(loss.log_prob_gradient.iter().all(|&slope| slope == 0.0));
        assert_eq!(loss.diagnostics, Diagnostics::default(), "{config:?}");
    }
}

#[test]
fn rows_without_loss_tokens_change_nothing() {
    let fixture = Fixture::new(4);
    let kept: Vec<usize> = (0..8).filter(|row| ![1, 4].contains(row)).collect();
    let rows: Vec<_> = kept.iter().map(|&row| fixture.rows[row].clone()).collect();
    let prompts: Vec<_> = kept.iter().map(|&row| fixture.prompts[row]).collect();
    let rewards: Vec<_> = kept.iter().map(|&row| fixture.rewards[row]).collect();
    let shape = Shape { rows: &rows, prompts: &prompts, mask: &fixture.mask, rewards: Some(&rewards) };
    for config in configurations() {
        // These count every row; and the best row of a prompt may be one without loss tokens.
        let counts_rows = matches!(config.aggregation(), Aggregation::FixedLength | Aggregation::GroupMean);
        if counts_rows || config.needs().rewards {
            continue;
        }
        let denominators = Denominators::new(&config, &shape).unwrap();
        let without = token_loss(&config, &fixture.batch_of(shape), &denominators).unwrap();
        assert_eq!(fixture.loss(&config), without, "{config:?}");
    }
}

#[test]
fn micro_batches_add_up_to_the_batch() {
    let fixture = Fixture::new(5);
    // By prompts where there are pairs, which must stay together; any split for the others.
    let by_prompt: [&[usize]; 3] = [&[6, 7], &[0, 1, 2], &[3, 4, 5]];
    let any: [&[usize]; 4] = [&[0, 3], &[1], &[2, 4, 6], &[5, 7]];
    for config in configurations() {
        let whole = fixture.loss(&config);
        let denominators = Denominators::new(&config, &fixture.shape()).unwrap();
        let splits: &[&[usize]] = if denominators.pairs().is_empty() { &any } else { &by_prompt };
        let (mut loss, mut gradient) = (0.0, vec![0.0; fixture.mask.len()]);
        let mut figures = Diagnostics::default();
        for split in splits {
            let part = denominators.select(split).unwrap();
            let rows: Vec<_> = split.iter().map(|&row| fixture.rows[row].clone()).collect();
            let prompts: Vec<_> = split.iter().map(|&row| fixture.prompts[row]).collect();
            let shape = Shape { rows: &rows, prompts: &prompts, mask: &fixture.mask, rewards: None };
            let part = token_loss(&config, &fixture.batch_of(shape), &part).unwrap();
            loss += part.loss;
            figures.merge(&part.diagnostics);
            for (sum, slope) in gradient.iter_mut().zip(part.log_prob_gradient) {
                *sum += slope;
            }
        }
        assert!(close(loss, whole.loss), "{config:?}: {loss} is not {}", whole.loss);
        assert_eq!(gradient, whole.log_prob_gradient, "{config:?}");
        for ((name, merged), (_, whole)) in figures.named().into_iter().zip(whole.diagnostics.named()) {
            assert!(close(merged, whole), "{config:?}: {name}");
        }
    }
}

#[test]
fn replicas_with_summed_totals_add_up_to_the_batch() {
    let fixture = Fixture::new(6);
    for config in configurations() {
        let whole = Denominators::new(&config, &fixture.shape()).unwrap();
        let shape = |rows: std::ops::Range<usize>| Shape {
            rows: &fixture.rows[rows.clone()],
            prompts: &fixture.prompts[rows.clone()],
            mask: &fixture.mask,
            rewards: Some(&fixture.rewards[rows]),
        };
        let parts = [shape(0..3), shape(3..8)];
        let totals = parts.map(|part| Denominators::new(&config, &part).unwrap().totals());
        let totals = totals[0] + totals[1];
        assert_eq!(totals, whole.totals());
        let weights =
            parts.map(|part| Denominators::with_totals(&config, &part, totals).unwrap().weights().to_vec());
        assert_eq!(weights.concat(), whole.weights(), "{config:?}");
    }
}

/// d loss / d log π by central differences.
fn differences(fixture: &Fixture, config: &TokenLossConfig) -> Vec<f64> {
    const STEP: f64 = 1e-6;
    let mut slopes = Vec::new();
    for token in 0..fixture.mask.len() {
        let moved = |step: f64| {
            let mut moved = fixture.clone();
            moved.log_probs[token] += step;
            moved.loss(config).loss
        };
        slopes.push((moved(STEP) - moved(-STEP)) / (2.0 * STEP));
    }
    slopes
}

#[test]
fn gradients_are_the_slopes_of_the_loss_where_nothing_is_stopped() {
    // In the other objectives a weight or an anchor depends on log π and carries no gradient.
    const STOPPED: [&str; 5] = ["cispo", "dis", "four_bound", "topr", "mopd"];
    let fixture = Fixture::new(7);
    for config in configurations() {
        let anchored = matches!(config.objective.kind(), "decoupled_ppo" | "tis" | "icepop");
        let weighed = config.objective.kind() == "rloo" && config.objective.takes_whole_sequences();
        let approximated = anchored && !config.objective.needs().proximal;
        if STOPPED.contains(&config.objective.kind()) || weighed || approximated {
            continue;
        }
        let gradient = fixture.loss(&config).log_prob_gradient;
        for (token, slope) in differences(&fixture, &config).into_iter().enumerate() {
            let got = gradient[token];
            assert!((got - slope).abs() < 1e-6 * slope.abs().max(1.0), "{config:?}[{token}]: {got}, {slope}");
        }
    }
}

#[test]
fn on_policy_every_ratio_objective_has_the_gradient_of_reinforce() {
    let fixture = Fixture::new(8).on_policy();
    let mut compared = 0;
    for entry in TOKEN_OBJECTIVES {
        let objective = (entry.default)();
        // The others have a term of their own: a reference, a teacher, or no advantage at all.
        let needs = objective.needs();
        if needs.reference || needs.teacher || !needs.advantages {
            continue;
        }
        let gradient = |objective| {
            let aggregation = Some(Aggregation::PromptMean);
            let reference_kl = Some(serde_json::from_str("{}").unwrap());
            let config = TokenLossConfig { aggregation, reference_kl, ..TokenLossConfig::of(objective) };
            let mut fixture = fixture.clone();
            fixture.versions.fill(Version(8));
            fixture.loss(&config).log_prob_gradient
        };
        let reinforce = gradient(TokenObjectiveConfig::Reinforce(ReinforceConfig::default()));
        for (got, expected) in gradient(objective.clone()).into_iter().zip(reinforce) {
            assert!(close(got, expected), "{}: {got} is not {expected}", entry.kind());
        }
        compared += 1;
    }
    assert_eq!(compared, 19);
}

#[test]
fn removed_tokens_stay_in_the_denominator() {
    let (row, mask) = (0..2, [true; 2]);
    let shape = Shape { rows: from_ref(&row), prompts: &[0], mask: &mask, rewards: None };
    let config = TokenLossConfig::of(TokenObjectiveConfig::Dis(DisConfig::default()));
    let batch = TokenBatch {
        advantages: Some(&[1.0, 1.0]),
        ..TokenBatch::new(shape, &[-1.0, -1.0], &[-1.0, -800.0])
    };
    let loss = token_loss(&config, &batch, &Denominators::new(&config, &shape).unwrap()).unwrap();
    assert_eq!(loss.log_prob_gradient, [-0.5, 0.0]);
    assert_eq!(loss.diagnostics.get(Figure::MaskedFracHigh), Some(0.5));
}

#[test]
fn bounded_weights_stay_finite_for_any_ratio() {
    for kind in ["cispo", "dis", "four_bound", "icepop", "k3", "topr", "sapo", "tis"] {
        let config = configuration(&format!("objective = {{ kind = '{kind}' }}"));
        for (distance, advantage) in [(800.0, 1.0), (-800.0, 1.0), (-800.0, -1.0), (800.0, -1.0)] {
            let mut fixture = Fixture::new(9).on_policy();
            fixture.advantages.fill(advantage);
            for (behaviour, log_prob) in fixture.behaviour.iter_mut().zip(&fixture.log_probs) {
                *behaviour = log_prob - distance;
            }
            let loss = fixture.loss(&config);
            let finite = loss.log_prob_gradient.iter().all(|slope| slope.is_finite());
            assert!(loss.loss.is_finite() && finite, "{kind} at {distance}");
        }
    }
}

#[test]
fn an_advantage_of_0_has_no_gradient_whatever_the_ratio_is() {
    let mut fixture = Fixture::new(10);
    fixture.advantages.fill(0.0);
    for (index, behaviour) in fixture.behaviour.iter_mut().enumerate() {
        *behaviour += if index % 2 == 0 { 900.0 } else { -900.0 };
    }
    for kind in ["reinforce", "ppo", "dapo", "gspo", "cispo", "rloo", "dis", "four_bound", "sapo", "topr"] {
        let config = configuration(&format!("objective = {{ kind = '{kind}' }}"));
        let loss = fixture.loss(&config);
        assert_eq!(
            (loss.loss, loss.log_prob_gradient.iter().all(|&slope| slope == 0.0)),
            (0.0, true),
            "{kind}"
        );
    }
}

#[test]
fn a_prompt_weighs_the_same_however_long_its_answers_are() {
    let config = configuration("aggregation = 'prompt_mean'\nobjective = { kind = 'reinforce' }");
    let share = |length: usize| {
        let (rows, mask) = ([0..2, 2..2 + length], vec![true; 2 + length]);
        let shape = Shape { rows: &rows, prompts: &[0, 1], mask: &mask, rewards: None };
        Denominators::new(&config, &shape).unwrap().weights()[1] * length as f64
    };
    assert_eq!([share(1), share(4)], [0.5, 0.5]);
}

#[test]
fn the_entropy_bonus_pulls_every_loss_token_by_its_weight() {
    let config = configuration("entropy_coef = 0.5\nobjective = { kind = 'reinforce' }");
    let fixture = Fixture::new(11);
    let loss = fixture.loss(&config);
    let plain = fixture.loss(&TokenLossConfig { entropy_coef: 0.0, ..config });
    assert!(close(loss.loss, plain.loss - 0.5 * loss.diagnostics.get(Figure::Entropy).unwrap()));
    assert_eq!(loss.log_prob_gradient, plain.log_prob_gradient);
    assert_eq!(plain.entropy_gradient, None);
    let learned = fixture.mask.iter().filter(|learned| **learned).count() as f64;
    for (slope, &set) in loss.entropy_gradient.unwrap().iter().zip(&fixture.mask) {
        assert!(close(*slope, if set { -0.5 / learned } else { 0.0 }));
    }
}

#[test]
fn the_reference_reward_is_given_at_loss_tokens_only() {
    let (row, mask) = (0..3, [true, false, true]);
    let shape = Shape { rows: from_ref(&row), prompts: &[0], mask: &mask, rewards: None };
    let rewards = |estimator| {
        reference_kl_rewards(0.5, estimator, &shape, &[-1.0, f64::NAN, -1.0], &[-3.0, f64::NAN, -1.0])
            .unwrap()
    };
    assert_eq!(rewards(KlEstimator::K1), [-1.0, 0.0, 0.0]);
    assert_eq!(rewards(KlEstimator::K2), [-1.0, 0.0, 0.0]);
    assert!(close(rewards(KlEstimator::K3)[0], -0.5 * ((-2.0_f64).exp() + 1.0)));
}

#[test]
fn the_mean_divergence_is_over_loss_tokens_alone_and_exactly_0_between_equal_policies() {
    let mut fixture = Fixture::new(11);
    fixture.fill(f64::NAN);
    let shape = fixture.shape();
    for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
        let same = mean_divergence(estimator, &shape, &fixture.behaviour, &fixture.behaviour).unwrap();
        assert_eq!(same, Some(0.0));
        let found = mean_divergence(estimator, &shape, &fixture.behaviour, &fixture.reference).unwrap();
        let rewards =
            reference_kl_rewards(1.0, estimator, &shape, &fixture.behaviour, &fixture.reference).unwrap();
        let tokens = fixture.mask.iter().filter(|learned| **learned).count() as f64;
        assert!(close(found.unwrap(), -rewards.iter().sum::<f64>() / tokens), "{estimator:?}");
    }
    let none = vec![false; fixture.mask.len()];
    let shape = Shape { mask: &none, ..shape };
    let found = mean_divergence(KlEstimator::K3, &shape, &fixture.behaviour, &fixture.reference);
    assert_eq!(found.unwrap(), None);
    let short = mean_divergence(KlEstimator::K3, &shape, &fixture.behaviour, &fixture.reference[1..]);
    assert!(short.unwrap_err().to_string().contains("reference"));
}

#[test]
fn the_value_loss_of_micro_batches_adds_up_and_never_reads_masked_tokens() {
    let mut fixture = Fixture::new(12);
    fixture.fill(f64::NAN);
    let denominators = Denominators::of_all_rows(Aggregation::SeqMean, None, &fixture.shape()).unwrap();
    let clip = Some(TokenValueClip { old_values: &fixture.proximal, range: 0.2 });
    let value_loss = |shape: &Shape<'_>, denominators: &Denominators| {
        token_value_loss(shape, denominators, &fixture.log_probs, &fixture.reference, clip).unwrap()
    };
    let whole = value_loss(&fixture.shape(), &denominators);
    let mut sum = 0.0;
    for rows in [0..5, 5..8] {
        let part = denominators.select(&rows.clone().collect::<Vec<_>>()).unwrap();
        let shape =
            Shape { rows: &fixture.rows[rows.clone()], prompts: &fixture.prompts[rows], ..fixture.shape() };
        let shape = Shape { rewards: None, ..shape };
        sum += value_loss(&shape, &part).loss;
    }
    assert!(whole.loss > 0.0 && close(sum, whole.loss));
}
