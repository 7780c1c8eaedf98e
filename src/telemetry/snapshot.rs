//! What the progress line and the status page tell of each workload.

use serde::Serialize;

use super::format::si;
use super::progress::Snapshot;

/// Where a control run stands, in the few numbers that fit on a line.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ProgressSnapshot {
    /// Environment steps taken.
    pub env_steps: u64,
    /// Completed updates.
    pub updates: u64,
    /// Time since the run began, earlier sessions included (seconds).
    pub wall_seconds: f64,
    /// Environment steps in a second, over the last seconds.
    pub steps_per_second: f64,
    /// Mean return of the last 100 episodes.
    pub return_mean: Option<f64>,
    /// Mean return of the last evaluation.
    pub eval_mean: Option<f64>,
    /// Mean lag of the steps consumed last (updates).
    pub lag_mean: Option<f64>,
    /// Unrolls in the queue.
    pub queue_depth: u64,
    /// Unrolls that the queue can hold.
    pub queue_capacity: u64,
    /// How far the nearest stop condition is, from 0 to 1; `None` when it cannot be told (a target return).
    pub fraction_done: Option<f64>,
}

impl Snapshot for ProgressSnapshot {
    fn wall_seconds(&self) -> f64 {
        self.wall_seconds
    }

    fn fraction_done(&self) -> Option<f64> {
        self.fraction_done
    }

    fn figures(&self) -> Vec<String> {
        present([
            Some(format!("{} steps", si(self.env_steps as f64))),
            Some(format!("{} steps/s", si(self.steps_per_second))),
            named("return", self.return_mean),
            named("evaluation", self.eval_mean),
            named("lag", self.lag_mean),
            Some(format!("queue {}/{}", self.queue_depth, self.queue_capacity)),
            Some(format!("{} updates", si(self.updates as f64))),
        ])
    }
}

/// Where a token run stands, in the few numbers that fit on a line.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TokenProgress {
    /// Tokens generated.
    pub tokens: u64,
    /// Completed updates.
    pub updates: u64,
    /// Time since the run began, earlier sessions included (seconds).
    pub wall_seconds: f64,
    /// Tokens generated in a second, over the last seconds.
    pub tokens_per_second: f64,
    /// Loss of the last warm-up update, while the warm-up goes on (nats a token).
    pub warmup_loss: Option<f64>,
    /// Mean reward of the last 10 updates.
    pub reward_mean: Option<f64>,
    /// Fraction of the trajectories of the last update with the full reward.
    pub solved: Option<f64>,
    /// Mean reward of the last evaluation: its accuracy, where right is 1 and wrong 0.
    pub eval_mean: Option<f64>,
    /// Mean length of the responses of the last update (tokens).
    pub response_length_mean: Option<f64>,
    /// Mean lag of the tokens consumed last (updates).
    pub lag_mean: Option<f64>,
    /// Trajectories in generation.
    pub running: u64,
    /// Requests that wait for room in the KV cache.
    pub waiting: u64,
    /// Trajectories in the queue.
    pub queue_depth: u64,
    /// Trajectories that the queue can hold.
    pub queue_capacity: u64,
    /// How far the nearest stop condition is, from 0 to 1; `None` when it cannot be told (a target reward).
    pub fraction_done: Option<f64>,
}

impl Snapshot for TokenProgress {
    fn wall_seconds(&self) -> f64 {
        self.wall_seconds
    }

    fn fraction_done(&self) -> Option<f64> {
        self.fraction_done
    }

    fn figures(&self) -> Vec<String> {
        present([
            Some(format!("{} tokens", si(self.tokens as f64))),
            Some(format!("{} tokens/s", si(self.tokens_per_second))),
            named("warm-up loss", self.warmup_loss),
            named("reward", self.reward_mean),
            self.solved.map(|fraction| format!("solved {:.0} %", 100.0 * fraction)),
            named("evaluation", self.eval_mean),
            named("length", self.response_length_mean),
            named("lag", self.lag_mean),
            Some(format!("running {}+{}", self.running, self.waiting)),
            Some(format!("queue {}/{}", self.queue_depth, self.queue_capacity)),
            Some(format!("{} updates", si(self.updates as f64))),
        ])
    }
}

fn named(name: &str, value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{name} {}", si(value)))
}

fn present<const N: usize>(figures: [Option<String>; N]) -> Vec<String> {
    figures.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_run_is_told_in_tokens_and_rewards() {
        let progress = TokenProgress {
            tokens: 1_234_567,
            updates: 96,
            tokens_per_second: 4_560.0,
            reward_mean: Some(0.5),
            solved: Some(0.25),
            response_length_mean: Some(182.0),
            lag_mean: Some(1.25),
            running: 32,
            waiting: 4,
            queue_depth: 3,
            queue_capacity: 8,
            ..Default::default()
        };
        assert_eq!(
            progress.figures().join("  "),
            "1.23M tokens  4.56k tokens/s  reward 0.500  solved 25 %  length 182  lag 1.25  running 32+4  \
             queue 3/8  96 updates"
        );
    }

    #[test]
    fn a_warm_up_shows_its_loss_in_place_of_a_reward() {
        let figures = TokenProgress { warmup_loss: Some(2.5), ..Default::default() }.figures().join("  ");
        assert!(figures.contains("warm-up loss 2.50") && !figures.contains("reward"), "{figures}");
    }
}
