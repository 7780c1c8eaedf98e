//! Learning a table of values from a policy that is some updates old.
//!
//! A random Markov decision process, and a policy that moves a little at every update along a fixed direction. The
//! values of the newest policy π are learned from unrolls of the policy μ of K updates before, by V-trace targets and
//! by uncorrected n-step returns, with steps that shrink so that the table settles. What each should settle at is
//! known exactly: V-trace at the values of the policy proportional to min(rho_bar μ, π), uncorrected returns at those
//! of μ.

use forebay::learner::advantage::{
    AdvantageError, Boundaries, VtraceConfig, VtraceInput, n_step_returns, vtrace,
};
use forebay::random::CounterRng;

pub const STATES: usize = 6;
pub const ACTIONS: usize = 3;
const DISCOUNT: f64 = 0.9;
/// Steps and columns of a batch.
const STEPS: usize = 8;
const COLUMNS: usize = 64;
/// Updates that the newest policy is away from the uniform one.
pub const NEWEST: usize = 32;
/// How far the preference of an action moves at an update, at most.
const PACE: f64 = 0.1;

pub type Policy = [[f64; ACTIONS]; STATES];
pub type Values = [f64; STATES];

/// Where targets come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Corrected, with this bound of both ratios (`inf`: none of the temporal difference's, 1 of the trace's).
    Vtrace { rho_bar: f64 },
    /// As if the unrolls were of the newest policy.
    Uncorrected,
}

/// The process, and the way that its policy takes.
pub struct Study {
    transitions: [[Values; ACTIONS]; STATES],
    rewards: [[f64; ACTIONS]; STATES],
    direction: [[f64; ACTIONS]; STATES],
    rng: CounterRng,
}

impl Study {
    pub fn new(seed: u64) -> Self {
        let mut rng = CounterRng::new(seed);
        let mut table = |low, high| -> [[f64; ACTIONS]; STATES] {
            std::array::from_fn(|_| std::array::from_fn(|_| rng.uniform_in(low, high)))
        };
        let (rewards, direction) = (table(-1.0, 1.0), table(-PACE, PACE));
        // Cubes of uniform numbers: some successors are much likelier than others, so that actions matter.
        let mut successors = || -> Values {
            let weights: Values = std::array::from_fn(|_| rng.uniform().powi(3));
            let sum: f64 = weights.iter().sum();
            weights.map(|weight| weight / sum)
        };
        let transitions = std::array::from_fn(|_| std::array::from_fn(|_| successors()));
        Self { transitions, rewards, direction, rng }
    }

    /// The policy after some updates.
    pub fn policy(&self, updates: usize) -> Policy {
        self.direction.map(|preferences| {
            let weights = preferences.map(|preference| (preference * updates as f64).exp());
            let sum: f64 = weights.iter().sum();
            weights.map(|weight| weight / sum)
        })
    }

    /// The exact values of a policy.
    pub fn values(&self, policy: &Policy) -> Values {
        let mut values = [0.0; STATES];
        // A contraction by the discount at each pass: 400 of them leave less than 1e-18.
        for _ in 0..400 {
            values = std::array::from_fn(|state| {
                let of_action = |action: usize| {
                    let next = &self.transitions[state][action];
                    let future: f64 = next.iter().zip(&values).map(|(p, value)| p * value).sum();
                    self.rewards[state][action] + DISCOUNT * future
                };
                (0..ACTIONS).map(|action| policy[state][action] * of_action(action)).sum()
            });
        }
        values
    }

    /// Where a method settles when it learns about `target` from `behaviour`.
    pub fn fixed_point(&self, method: Method, target: &Policy, behaviour: &Policy) -> Values {
        match method {
            Method::Uncorrected => self.values(behaviour),
            Method::Vtrace { rho_bar } => self.values(&std::array::from_fn(|state| {
                let weights: [f64; ACTIONS] = std::array::from_fn(|action| {
                    (rho_bar * behaviour[state][action]).min(target[state][action])
                });
                let sum: f64 = weights.iter().sum();
                weights.map(|weight| weight / sum)
            })),
        }
    }

    /// The values that a method has learned after so many batches.
    ///
    /// # Errors
    /// When the targets cannot be computed.
    pub fn learn(
        &mut self,
        method: Method,
        target: &Policy,
        behaviour: &Policy,
        batches: usize,
    ) -> Result<Values, AdvantageError> {
        let mut values = [0.0; STATES];
        let mut states: Vec<usize> = (0..COLUMNS).map(|column| column % STATES).collect();
        for batch in 0..batches {
            let mut visited = Vec::with_capacity(STEPS * COLUMNS);
            let (mut rewards, mut log_rhos) = (Vec::new(), Vec::new());
            for _ in 0..STEPS {
                for state in &mut states {
                    let action = choose(&behaviour[*state], self.rng.uniform());
                    visited.push(*state);
                    rewards.push(self.rewards[*state][action]);
                    log_rhos.push((target[*state][action] / behaviour[*state][action]).ln());
                    *state = choose(&self.transitions[*state][action], self.rng.uniform());
                }
            }
            let never = vec![false; visited.len()];
            let bootstrap: Vec<f64> = states.iter().map(|&state| values[state]).collect();
            let of_visited: Vec<f64> = visited.iter().map(|&state| values[state]).collect();
            let discounts = vec![DISCOUNT; visited.len()];
            let boundaries = Boundaries {
                terminated: &never,
                truncated: &never,
                final_values: &of_visited,
                bootstrap: &bootstrap,
            };
            let targets = match method {
                Method::Uncorrected => n_step_returns(STEPS, &rewards, &discounts, &of_visited, &boundaries)?,
                Method::Vtrace { rho_bar } => {
                    let config = VtraceConfig { rho_bar, ..VtraceConfig::default() };
                    let values = &of_visited;
                    let input =
                        VtraceInput { log_rhos: &log_rhos, rewards: &rewards, values, discounts: &discounts };
                    vtrace(&config, &input, &boundaries)?.vs
                }
            };
            let rate = 1.0 / (1.0 + batch as f64 / 10.0);
            let (mut sums, mut visits) = ([0.0; STATES], [0.0; STATES]);
            for (&state, target) in visited.iter().zip(targets) {
                sums[state] += target - values[state];
                visits[state] += 1.0;
            }
            for state in 0..STATES {
                values[state] += rate * sums[state] / f64::max(visits[state], 1.0);
            }
        }
        Ok(values)
    }
}

/// The entry of a distribution that a number from 0 to 1 falls to.
fn choose<const N: usize>(probabilities: &[f64; N], mut uniform: f64) -> usize {
    for (index, probability) in probabilities.iter().enumerate() {
        uniform -= probability;
        if uniform < 0.0 {
            return index;
        }
    }
    N - 1
}

/// Root of the mean squared difference.
pub fn distance(left: &Values, right: &Values) -> f64 {
    let squares = left.iter().zip(right).map(|(a, b)| (a - b).powi(2));
    (squares.sum::<f64>() / STATES as f64).sqrt()
}
