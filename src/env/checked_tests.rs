//! Each test breaks one clause of the contract, on the side of the environment or of the caller.

use super::*;

/// Does what each test tells it to.
#[derive(Clone)]
struct Puppet {
    spec: EnvSpec,
    observation: Vec<f32>,
    mask: Vec<bool>,
    step: Step,
}

impl Puppet {
    fn new(action_space: ActionSpace) -> Self {
        let mask = vec![true; action_space.choices()];
        let spec = EnvSpec {
            name: "Puppet".into(),
            observation_shape: vec![3],
            masks_actions: !mask.is_empty(),
            action_space,
        };
        Self { spec, observation: vec![0.5; 3], mask, step: Step { reward: 1.0, ..Step::default() } }
    }

    fn started(self) -> Checked {
        let mut checked = Checked::new(Box::new(self)).unwrap();
        checked.reset(0).unwrap();
        checked
    }
}

impl Environment for Puppet {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _seed: u64) -> Result<(), EnvError> {
        Ok(())
    }

    fn step(&mut self, _action: Action<'_>) -> Result<Step, EnvError> {
        Ok(self.step)
    }

    fn observe(&self, out: &mut Vec<f32>) {
        out.extend_from_slice(&self.observation);
    }

    fn action_mask(&self, out: &mut Vec<bool>) {
        out.extend_from_slice(&self.mask);
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn restore(&mut self, _bytes: &[u8]) -> Result<(), EnvError> {
        Ok(())
    }
}

fn two_choices() -> Puppet {
    Puppet::new(ActionSpace::Discrete { n: 2 })
}

fn pair() -> Puppet {
    Puppet::new(ActionSpace::MultiDiscrete { sizes: vec![2, 3] })
}

fn interval() -> Puppet {
    Puppet::new(ActionSpace::Box { low: vec![-1.0, 0.0], high: vec![1.0, 2.0] })
}

/// The call and the reason that a contract error names.
fn broken<T>(result: Result<T, EnvError>) -> (&'static str, String) {
    match result.err() {
        Some(EnvError::Contract { env, call, why }) if env == "Puppet" => (call, why),
        other => panic!("expected a broken contract, got {other:?}"),
    }
}

#[test]
fn a_faithful_environment_passes_unchanged() {
    for (puppet, action) in
        [(two_choices(), vec![1.0]), (pair(), vec![1.0, 2.0]), (interval(), vec![-1.0, 2.0])]
    {
        let expected = puppet.clone();
        let mut checked = puppet.started();
        let (mut observation, mut mask) = (vec![9.0], vec![]);
        checked.observe(&mut observation).unwrap();
        checked.action_mask(&mut mask).unwrap();
        assert_eq!(observation[1..], expected.observation);
        assert_eq!(mask, expected.mask);
        assert_eq!(checked.step(Action::new(&action)).unwrap(), expected.step);
    }
}

#[test]
fn an_observation_of_the_wrong_length_is_taken_back() {
    for length in [0, 2, 4] {
        let mut puppet = two_choices();
        puppet.observation = vec![0.0; length];
        let mut out = vec![7.0];
        let (call, why) = broken(puppet.started().observe(&mut out));
        assert_eq!(call, "observe");
        assert!(why.contains(&length.to_string()), "{why}");
        assert_eq!(out, [7.0]);
    }
}

#[test]
fn a_value_that_is_not_finite_is_named() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut puppet = two_choices();
        puppet.observation[2] = value;
        let (call, why) = broken(puppet.started().observe(&mut Vec::new()));
        assert_eq!((call, why), ("observe", format!("value 2 is {value}, which is not finite")));
    }
}

#[test]
fn large_and_tiny_finite_values_pass() {
    let mut puppet = two_choices();
    puppet.observation = vec![f32::MAX, f32::MIN, f32::MIN_POSITIVE / 2.0];
    assert!(puppet.started().observe(&mut Vec::new()).is_ok());
}

#[test]
fn a_reward_that_is_not_finite_is_refused() {
    let mut puppet = two_choices();
    puppet.step.reward = f32::NAN;
    assert_eq!(broken(puppet.started().step(Action::new(&[0.0]))).0, "step");
}

#[test]
fn a_mask_of_the_wrong_length_is_refused() {
    let mut puppet = two_choices();
    puppet.mask.push(true);
    let mut out = Vec::new();
    assert_eq!(broken(puppet.started().action_mask(&mut out)).0, "action_mask");
    assert!(out.is_empty());
}

#[test]
fn a_mask_that_leaves_a_component_no_choice_is_refused() {
    let mut puppet = pair();
    puppet.mask = vec![true, true, false, false, false];
    let (call, why) = broken(puppet.started().action_mask(&mut Vec::new()));
    assert_eq!((call, why.as_str()), ("action_mask", "no choice of component 1 is allowed"));
}

#[test]
fn an_action_outside_the_space_is_refused() {
    for (puppet, action) in [
        (two_choices(), vec![2.0]),
        (two_choices(), vec![-1.0]),
        (two_choices(), vec![0.5]),
        (two_choices(), vec![f32::NAN]),
        (two_choices(), vec![]),
        (two_choices(), vec![0.0, 0.0]),
        (pair(), vec![1.0, 3.0]),
        (pair(), vec![1.0]),
        (interval(), vec![0.0, 2.5]),
        (interval(), vec![f32::NAN, 1.0]),
    ] {
        let result = puppet.started().step(Action::new(&action));
        assert_eq!(broken(result).0, "step", "{action:?}");
    }
}

#[test]
fn a_masked_choice_is_refused() {
    let mut puppet = pair();
    puppet.mask[3] = false;
    let mut checked = puppet.started();
    assert!(checked.step(Action::new(&[1.0, 0.0])).is_ok());
    let (_, why) = broken(checked.step(Action::new(&[0.0, 1.0])));
    assert_eq!(why, "choice 1 of component 1 is masked");
}

#[test]
fn a_step_needs_a_running_episode() {
    let mut puppet = two_choices();
    puppet.step.truncated = true;
    let mut checked = Checked::new(Box::new(puppet)).unwrap();
    assert_eq!(broken(checked.step(Action::new(&[0.0]))).0, "step");
    checked.reset(0).unwrap();
    assert!(checked.step(Action::new(&[0.0])).is_ok());
    assert_eq!(broken(checked.step(Action::new(&[0.0]))).0, "step");
    checked.reset(1).unwrap();
    assert!(checked.step(Action::new(&[0.0])).is_ok());
}

#[test]
fn a_restored_environment_knows_whether_its_episode_is_running() {
    let mut puppet = two_choices();
    puppet.step.terminated = true;
    let mut checked = puppet.started();
    let running = checked.save().unwrap();
    checked.step(Action::new(&[0.0])).unwrap();
    let ended = checked.save().unwrap();
    checked.restore(&running).unwrap();
    assert!(checked.step(Action::new(&[0.0])).is_ok());
    checked.reset(0).unwrap();
    checked.restore(&ended).unwrap();
    assert!(checked.step(Action::new(&[0.0])).is_err());
}

#[test]
fn a_specification_that_contradicts_itself_is_refused() {
    let infinite = ActionSpace::Box { low: vec![f32::NEG_INFINITY], high: vec![f32::INFINITY] };
    assert!(Checked::new(Box::new(Puppet::new(infinite))).is_ok());
    for space in [
        ActionSpace::Discrete { n: 0 },
        ActionSpace::MultiDiscrete { sizes: vec![] },
        ActionSpace::MultiDiscrete { sizes: vec![2, 0] },
        ActionSpace::Box { low: vec![], high: vec![] },
        ActionSpace::Box { low: vec![0.0], high: vec![1.0, 1.0] },
        ActionSpace::Box { low: vec![1.0], high: vec![0.0] },
        ActionSpace::Box { low: vec![f32::NAN], high: vec![0.0] },
    ] {
        assert_eq!(broken(Checked::new(Box::new(Puppet::new(space)))).0, "spec");
    }
    let mut masked = interval();
    masked.spec.masks_actions = true;
    assert_eq!(broken(Checked::new(Box::new(masked))).0, "spec");
    let mut empty = two_choices();
    empty.spec.observation_shape = vec![2, 0];
    assert_eq!(broken(Checked::new(Box::new(empty))).0, "spec");
}
