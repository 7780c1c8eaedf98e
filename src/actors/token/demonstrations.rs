//! What a warm-up imitates: the task's own demonstrations, as trajectories whose every answer token is to be learned.
//!
//! What reinforcement learning would punish is not imitated: a demonstration over the budget of the effort that it is
//! asked at is passed over, so that a task with short and long demonstrations shows each effort those that it may take.

use std::sync::Arc;

use super::conversation::{Conversation, prompt_ids};
use super::efforts::at_effort;
use crate::env::task::{Prompts, Split, Task, Turn, respond};
use crate::learner::token::TokenLearnerConfig;
use crate::policy::Tokenizer;
use crate::trajectory::{Finish, Group, Reward, Trajectory, TrajectoryId, Version};

/// Most turns of a demonstration.
const MOST_TURNS: usize = 64;
/// Problems that may be passed over one after another because they have no demonstration or are too long.
const MOST_PASSED_OVER: usize = 10_000;

/// See the module's documentation. Update n of a warm-up takes the n-th batch of the task's problems in their order,
/// so that a resumed warm-up goes on where it stopped.
pub struct Demonstrations {
    task: Arc<dyn Task>,
    tokenizer: Arc<Tokenizer>,
    context: usize,
    learner: TokenLearnerConfig,
    prompts: Prompts,
    /// The batch that `prompts` stands at.
    next: u64,
}

impl Demonstrations {
    /// Demonstrations of a task's problems in the order of `prompts`, each of fewer tokens than the context, asked at the
    /// efforts of `learner` in turn and within their budgets.
    #[must_use]
    pub fn new(
        task: Arc<dyn Task>,
        tokenizer: Arc<Tokenizer>,
        context: usize,
        learner: TokenLearnerConfig,
        prompts: Prompts,
    ) -> Self {
        Self { task, tokenizer, context, learner, prompts, next: 0 }
    }

    /// The n-th batch, one group a demonstration.
    ///
    /// # Errors
    /// When a problem cannot be made or encoded, or the task has no demonstrations.
    pub fn batch(&mut self, n: u64, size: usize) -> Result<Vec<Group>, String> {
        while self.next < n {
            self.take(size)?;
        }
        self.take(size)
    }

    fn take(&mut self, size: usize) -> Result<Vec<Group>, String> {
        self.next += 1;
        let mut groups = Vec::with_capacity(size);
        let mut passed_over = 0;
        while groups.len() < size {
            let (epoch, index) = self.prompts.next();
            match self.demonstration(epoch, index)? {
                Some(group) => groups.push(group),
                None if passed_over < MOST_PASSED_OVER => passed_over += 1,
                None => {
                    return Err("the task demonstrates no answers to warm up with, within their budgets if they have \
                                some; set warmup.updates = 0"
                        .into());
                }
            }
        }
        Ok(groups)
    }

    fn demonstration(&self, epoch: u32, index: u32) -> Result<Option<Group>, String> {
        let text = |error: &dyn std::fmt::Display| format!("demonstration of problem {index}: {error}");
        let problem = self.task.problem(Split::Train, index).map_err(|e| text(&e))?;
        let place = self.task.place(Split::Train, index) as usize;
        let problem = Arc::new(at_effort(problem, &self.learner.efforts, place));
        let prompt = prompt_ids(&self.tokenizer, &problem).map_err(|e| text(&e))?;
        let id = TrajectoryId { epoch, prompt: index, ..TrajectoryId::default() };
        let mut trajectory = Trajectory::new(id, prompt.into());
        let mut conversation = Conversation::new(Arc::clone(&problem));
        while conversation.turns.len() < MOST_TURNS {
            let Some(answer) = self.task.demonstration(&problem, &conversation.turns) else { break };
            let mut ids = self.tokenizer.encode(&answer).map_err(|e| text(&e))?;
            ids.push(self.tokenizer.ends()[0]);
            ids.into_iter().for_each(|id| trajectory.push_action(id, 0.0, Version(0)));
            conversation.end_turn(&self.tokenizer, &[], &trajectory);
            match respond(&*self.task, &problem, &conversation.turns).map_err(|e| text(&e))? {
                Turn::End => break,
                Turn::Observe(said) => {
                    let ids =
                        conversation.observe(&self.tokenizer, &trajectory, said).map_err(|e| text(&e))?;
                    trajectory.push_observation(&ids, Version(0));
                }
            }
        }
        let tau = self.learner.effort_of(place).map(|effort| effort.tau);
        let written = trajectory.action_count();
        if written == 0
            || trajectory.len() > self.context
            || self.learner.shaping.is_over_budget(tau, problem.budget(), written as u64)
        {
            return Ok(None);
        }
        trajectory.finish = Some(Finish::Stop);
        trajectory.reward = Some(Reward::of(1.0));
        let source = Arc::clone(&problem.source);
        Ok(Some(Group { epoch, prompt: index, source, budget: None, members: vec![trajectory] }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::env::task::TaskRegistry;

    /// Chains of three steps, worked or not, at an effort that only the value fits into and one that all fits into.
    fn demonstrations(base: u64) -> Demonstrations {
        let chain = |steps: bool| {
            format!(
                "{{ name = 'chain', options = {{ min_terms = 4, max_terms = 4, modulus = 10, steps = {steps} }} }}"
            )
        };
        let options = format!("parts = [{}, {}]", chain(true), chain(false));
        let task = TaskRegistry::builtin().make("mixture", &toml::from_str(&options).unwrap(), 1).unwrap();
        let tokenizer = Tokenizer::characters(&(task.alphabet().unwrap() + "lh")).unwrap();
        let learner = format!(
            "efforts = [{{ name = 'low', instruction = 'l', tau = 0.34 }}, {{ name = 'high', instruction = 'h' }}]\n\
             shaping = {{ effort_budget = {{ base = {base} }} }}"
        );
        let prompts = Prompts::new(None, true, 1).unwrap();
        Demonstrations::new(task, Arc::new(tokenizer), 24, toml::from_str(&learner).unwrap(), prompts)
    }

    #[test]
    fn a_demonstration_over_the_budget_of_its_effort_is_passed_over() {
        let mut demonstrations = demonstrations(6);
        let low = demonstrations.tokenizer.encode("l").unwrap()[0];
        let (mut of_low, mut of_high) = (BTreeSet::new(), BTreeSet::new());
        for group in demonstrations.batch(0, 60).unwrap() {
            let shown = &group.members[0];
            let lengths = if shown.prompt.contains(&low) { &mut of_low } else { &mut of_high };
            lengths.insert(shown.action_count());
        }
        assert_eq!((of_low, of_high), (BTreeSet::from([2]), BTreeSet::from([2, 6])));
    }

    #[test]
    fn a_task_without_a_demonstration_within_any_budget_is_refused() {
        let error = demonstrations(1).batch(0, 1).unwrap_err();
        assert!(error.contains("warmup.updates = 0") && error.contains("budgets"), "{error}");
    }
}
