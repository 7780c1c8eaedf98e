//! Rows that count nowhere do not run through the model.

use std::sync::Arc;

use candle_core::Device;

use crate::learner::token::{
    TokenLearner, TokenLearnerConfig, TokenLearnerState, TokenLossConfig, TokenOutcome,
};
use crate::policy::{Decoder, DecoderConfig, NamePatterns};
use crate::trajectory::{Group, Reward, Trajectory, TrajectoryId, Version};

const VOCABULARY: u32 = 7;

fn answer(tokens: &[u32], reward: f64) -> Trajectory {
    let mut trajectory = Trajectory::new(TrajectoryId::default(), Arc::from([1, 2]));
    tokens.iter().for_each(|&token| trajectory.push_action(token, -1.5, Version(0)));
    trajectory.reward = Some(Reward::of(reward));
    trajectory
}

/// The parameters after one update on a group with a loss.
fn after(members: Vec<Trajectory>, loss: &str) -> Result<Vec<f32>, String> {
    let decoder = Decoder::new(
        DecoderConfig {
            vocabulary: VOCABULARY as usize,
            width: 8,
            inner: 8,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_size: 8,
            context: 16,
            ..DecoderConfig::default()
        },
        &Device::Cpu,
    )
    .unwrap();
    let parameters = decoder.layout().initialize(3, &Device::Cpu).unwrap();
    let loss: TokenLossConfig = toml::from_str(loss).unwrap();
    let config = TokenLearnerConfig { loss, ..TokenLearnerConfig::default() };
    let (frozen, state) = (NamePatterns::default(), TokenLearnerState::default());
    let mut learner =
        TokenLearner::new(config, 1, Arc::new(decoder), &parameters, &frozen, 1.0, state).unwrap();
    learner.begin().unwrap();
    let group = Group { epoch: 0, prompt: 0, source: "test".into(), budget: None, members };
    match learner.update(&[&group], 1e-2, false, &|| false) {
        Ok(TokenOutcome::Applied(_)) => {}
        Ok(other) => return Err(format!("{other:?}")),
        Err(error) => return Err(error.to_string()),
    }
    let tensors = learner.parameters().iter();
    Ok(tensors.flat_map(|(_, tensor)| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap()).collect())
}

#[test]
fn only_what_the_objective_chose_runs_through_the_model() {
    let best = || answer(&[3, 4, 5], 1.0);
    // No embedding belongs to this token: whoever runs it fails.
    let unreadable = answer(&[3, VOCABULARY], 0.0);
    let alone = after(vec![best()], "objective = { kind = 'best_of_n' }").unwrap();
    assert_eq!(after(vec![unreadable.clone(), best()], "objective = { kind = 'best_of_n' }").unwrap(), alone);
    assert!(after(vec![unreadable, best()], "objective = { kind = 'reinforce' }").is_err());
}

#[test]
fn what_could_not_be_graded_does_not_run_through_the_model() {
    let learned = || vec![answer(&[3, 4, 5], 1.0), answer(&[4], 0.0)];
    let mut ungraded = answer(&[VOCABULARY], 0.0);
    ungraded.reward = None;
    let with_it: Vec<Trajectory> = learned().into_iter().chain([ungraded]).collect();
    let plain = "objective = { kind = 'ppo' }";
    // Neither through the policy nor through the reference.
    for loss in [plain, &format!("{plain}\nreference_kl = {{ coefficient = 0.1 }}")] {
        assert_eq!(after(with_it.clone(), loss).unwrap(), after(learned(), loss).unwrap());
    }
}
