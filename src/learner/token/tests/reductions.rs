//! What objectives come to in special cases, and what changes nothing or exactly as much as it should.

use std::collections::BTreeSet;

use super::fixture::{Fixture, close, configurations, objectives};
use crate::learner::token::{
    Aggregation, ReferenceKlConfig, TokenLoss, TokenLossConfig, TokenObjectiveConfig,
};
use crate::trajectory::{TokenFate, Version};

/// The gradient of an objective by itself, all rows summed.
fn gradient(fixture: &Fixture, objective: &TokenObjectiveConfig, aggregation: Aggregation) -> Vec<f64> {
    let config = TokenLossConfig {
        aggregation: Some(aggregation),
        reference_kl: Some(ReferenceKlConfig::default()),
        ..TokenLossConfig::of(objective.clone())
    };
    fixture.loss(&config).log_prob_gradient
}

fn objective(text: &str) -> TokenObjectiveConfig {
    toml::from_str(text).unwrap()
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64], what: &str) {
    for (token, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!(close(got, expected), "{what}: {got} is not {expected} at {token}");
    }
}

/// The fixture with its rows in another order, and where each of its tokens was before.
fn reordered(fixture: &Fixture, order: &[usize]) -> (Fixture, Vec<usize>) {
    let places: Vec<usize> = order.iter().flat_map(|&row| fixture.rows[row].clone()).collect();
    let mut start = 0;
    let rows = order.iter().map(|&row| {
        let own = start..start + fixture.rows[row].len();
        start = own.end;
        own
    });
    let numbers = |values: &[f64]| -> Vec<f64> { places.iter().map(|&place| values[place]).collect() };
    let moved = Fixture {
        rows: rows.collect(),
        prompts: order.iter().map(|&row| fixture.prompts[row]).collect(),
        mask: places.iter().map(|&place| fixture.mask[place]).collect(),
        rewards: order.iter().map(|&row| fixture.rewards[row]).collect(),
        log_probs: numbers(&fixture.log_probs),
        behaviour: numbers(&fixture.behaviour),
        advantages: numbers(&fixture.advantages),
        proximal: numbers(&fixture.proximal),
        reference: numbers(&fixture.reference),
        teacher: numbers(&fixture.teacher),
        entropies: numbers(&fixture.entropies),
        versions: places.iter().map(|&place| fixture.versions[place]).collect(),
    };
    (moved, places)
}

#[test]
fn the_order_of_a_batch_changes_nothing() {
    let fixture = Fixture::new(21);
    let (moved, places) = reordered(&fixture, &[6, 2, 4, 7, 0, 5, 1, 3]);
    for config in configurations() {
        let (before, after) = (fixture.loss(&config), moved.loss(&config));
        assert!(close(after.loss, before.loss), "{config:?}: {} is not {}", after.loss, before.loss);
        let expected: Vec<f64> = places.iter().map(|&place| before.log_prob_gradient[place]).collect();
        assert_close(&after.log_prob_gradient, &expected, &format!("{config:?}"));
        assert_eq!(after.diagnostics.fates(), before.diagnostics.fates());
    }
}

#[test]
fn every_loss_token_has_one_fate_whatever_the_objective() {
    let mut seen = BTreeSet::new();
    for seed in 0..8 {
        let fixture = Fixture::new(seed);
        let learned = fixture.mask.iter().filter(|learned| **learned).count() as u64;
        for config in configurations() {
            let fates = fixture.loss(&config).diagnostics.fates();
            assert_eq!(fates.total(), learned, "{config:?}: {fates:?}");
            seen.extend(fates.iter().map(|(fate, _)| fate));
        }
    }
    // What is left out before an objective sees it is not told here.
    let told = [
        TokenFate::Learned,
        TokenFate::NotChosen,
        TokenFate::Lag,
        TokenFate::SequenceGate,
        TokenFate::OffPolicyLow,
        TokenFate::OffPolicyHigh,
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), told);
}

#[test]
fn masked_fractions_are_the_fates_of_the_tokens() {
    let fixture = Fixture::new(22);
    for config in configurations() {
        let TokenLoss { diagnostics, .. } = fixture.loss(&config);
        let Some(masked) = diagnostics.get(crate::learner::token::Figure::MaskedFrac) else { continue };
        let fates = diagnostics.fates();
        let removed = fates.total() - fates.get(TokenFate::Learned);
        assert!(close(masked, removed as f64 / diagnostics.loss_tokens() as f64), "{config:?}");
    }
}

#[test]
fn without_its_square_an_objective_is_the_policy_gradient() {
    let fixture = Fixture::new(23);
    // Importance-weighted: the gradient of reinforce times π/μ.
    let plain = gradient(&fixture, &objective("kind = 'reinforce'"), Aggregation::PromptMean);
    let ratios = fixture.log_probs.iter().zip(&fixture.behaviour).map(|(now, then)| (now - then).exp());
    let weighed: Vec<f64> = plain
        .iter()
        .zip(ratios)
        .map(|(slope, ratio)| if *slope == 0.0 { 0.0 } else { slope * ratio })
        .collect();
    for text in [
        "kind = 'k3'\ntau = 0.0\nalpha = 0.0\nbeta = inf",
        "kind = 'k25'\ntau = 0.0\np_delta = 1.0",
        "kind = 'four_bound'\npos_low = 0.0\npos_high = inf\nneg_low = 0.0\nneg_high = inf",
        "kind = 'dis'\nepsilon_low = 1.0\nepsilon_high = 1e300",
        "kind = 'ppo'\nclip_low = 1.0\nclip_high = 1e300",
    ] {
        let got = gradient(&fixture, &objective(text), Aggregation::PromptMean);
        assert_close(&got, &weighed, text);
    }
    for (text, aggregation) in [
        ("kind = 'k15'\ntau = 0.0", Aggregation::SeqSumMean),
        ("kind = 'k15'\ntau = 0.0\nlevel = 'token'", Aggregation::TokenMean),
        ("kind = 'rloo'", Aggregation::SeqSumMean),
    ] {
        let plain = gradient(&fixture, &objective("kind = 'reinforce'"), aggregation);
        assert_close(&gradient(&fixture, &objective(text), aggregation), &plain, text);
    }
}

#[test]
fn where_the_proximal_is_the_sampling_policy_the_decoupled_objectives_are_ppo() {
    let mut fixture = Fixture::new(24);
    fixture.proximal.clone_from(&fixture.behaviour);
    let mut fresh = fixture.clone();
    // Tokens of the consuming version are anchored where they were sampled.
    fresh.versions.fill(Version(8));
    let ppo = gradient(&fixture, &objective("kind = 'ppo'"), Aggregation::TokenMean);
    for kind in ["decoupled_ppo", "tis", "icepop"] {
        for (fixture, proximal) in [(&fixture, "recompute"), (&fresh, "log_linear"), (&fresh, "linear")] {
            let text = format!("kind = '{kind}'\nproximal = '{proximal}'");
            assert_close(&gradient(fixture, &objective(&text), Aggregation::TokenMean), &ppo, &text);
        }
    }
}

#[test]
fn an_approximated_proximal_policy_is_one_given_by_its_formula() {
    let fixture = Fixture::new(25);
    for (proximal, between) in [
        (
            "log_linear",
            (|mu: f64, pi: f64, alpha: f64| mu.powf(1.0 - alpha) * pi.powf(alpha)) as fn(_, _, _) -> _,
        ),
        ("linear", |mu: f64, pi: f64, alpha: f64| (1.0 - alpha) * mu + alpha * pi),
    ] {
        let mut given = fixture.clone();
        for (token, anchor) in given.proximal.iter_mut().enumerate() {
            // The batch is consumed under version 8, and the step is on its way to version 9.
            let behaviour_version = fixture.versions[token].0 as f64;
            let alpha = (8.0 - behaviour_version) / (9.0 - behaviour_version);
            let (mu, pi) = (fixture.behaviour[token].exp(), fixture.log_probs[token].exp());
            *anchor = f64::ln(between(mu, pi, alpha));
        }
        for settings in [
            "kind = 'decoupled_ppo'\nweight_cap = 1.1",
            "kind = 'tis'\nlevel = 'sequence'",
            "kind = 'icepop'",
        ] {
            let approximated = objective(&format!("{settings}\nproximal = '{proximal}'"));
            let got = gradient(&fixture, &approximated, Aggregation::TokenMean);
            let expected = gradient(&given, &objective(settings), Aggregation::TokenMean);
            assert_close(&got, &expected, &format!("{settings} {proximal}"));
        }
    }
}

#[test]
fn a_teacher_equal_to_the_student_teaches_nothing() {
    let mut fixture = Fixture::new(26);
    fixture.teacher.clone_from(&fixture.log_probs);
    for text in ["kind = 'mopd'", "kind = 'mopd'\nimportance = false", "kind = 'mopd'\nr_max = 0.1"] {
        let slopes = gradient(&fixture, &objective(text), Aggregation::SeqMean);
        assert!(slopes.iter().all(|&slope| slope == 0.0), "{text}: {slopes:?}");
    }
}

#[test]
fn a_reference_equal_to_the_policy_leaves_the_square_of_k15_and_the_pairs_where_they_begin() {
    let mut fixture = Fixture::new(27);
    fixture.reference.clone_from(&fixture.log_probs);
    let plain = gradient(&fixture, &objective("kind = 'k15'\ntau = 0.0"), Aggregation::GroupMean);
    let got = gradient(&fixture, &objective("kind = 'k15'\ntau = 5.0"), Aggregation::GroupMean);
    assert_close(&got, &plain, "k15");
    let loss = fixture.loss(&TokenLossConfig::of(objective("kind = 'online_dpo'\nbeta = 0.3")));
    assert!(close(loss.loss, 2.0_f64.ln()), "{}", loss.loss);
}

/// The fixture with every token of a prompt's rows twice.
fn doubled(fixture: &Fixture, prompt: usize) -> Fixture {
    let order: Vec<usize> = (0..fixture.rows.len()).collect();
    let (mut doubled, _) = reordered(fixture, &order);
    let repeat = |range: &std::ops::Range<usize>, row: usize| {
        range.clone().cycle().take(range.len() * if fixture.prompts[row] == prompt { 2 } else { 1 })
    };
    let places: Vec<usize> =
        fixture.rows.iter().enumerate().flat_map(|(row, range)| repeat(range, row)).collect();
    let mut start = 0;
    for (row, range) in fixture.rows.iter().enumerate() {
        let end = start + repeat(range, row).count();
        doubled.rows[row] = start..end;
        start = end;
    }
    let numbers = |values: &[f64]| -> Vec<f64> { places.iter().map(|&place| values[place]).collect() };
    doubled.mask = places.iter().map(|&place| fixture.mask[place]).collect();
    doubled.log_probs = numbers(&fixture.log_probs);
    doubled.behaviour = numbers(&fixture.behaviour);
    doubled.advantages = numbers(&fixture.advantages);
    doubled.proximal = numbers(&fixture.proximal);
    doubled.reference = numbers(&fixture.reference);
    doubled.teacher = numbers(&fixture.teacher);
    doubled.entropies = numbers(&fixture.entropies);
    doubled.versions = places.iter().map(|&place| fixture.versions[place]).collect();
    doubled
}

#[test]
fn twice_as_many_tokens_leave_a_prompts_weight_under_prompt_mean_and_raise_it_under_token_mean() {
    let fixture = Fixture::new(28);
    let longer = doubled(&fixture, 1);
    let mut compared = 0;
    for objective in objectives() {
        // Those of whole sequences depend on the length through their ratio or their sum.
        if objective.takes_whole_sequences()
            || objective.takes_one_advantage_a_sequence()
            || objective.needs().rewards
        {
            continue;
        }
        let share = |fixture: &Fixture, aggregation| -> f64 {
            let slopes = gradient(fixture, &objective, aggregation);
            fixture.rows[3..6].iter().flat_map(|row| &slopes[row.clone()]).sum()
        };
        let [prompt, token] = [Aggregation::PromptMean, Aggregation::TokenMean];
        assert!(close(share(&longer, prompt), share(&fixture, prompt)), "{objective:?}");
        let learned = |fixture: &Fixture| fixture.mask.iter().filter(|learned| **learned).count() as f64;
        let expected = 2.0 * share(&fixture, token) * learned(&fixture) / learned(&longer);
        assert!(close(share(&longer, token), expected), "{objective:?}");
        compared += 1;
    }
    assert!(compared >= 25, "{compared}");
}
