//! The grading pool: threads that call into the task, so that generation never waits for a grader.
//!
//! Answers are judged one by one; a task that grades groups is asked again once a group is complete.
//!
//! Invariants: every submitted answer comes back exactly once, to the generator that sent it, as the task's next turn,
//! a reward, or an error, and every submitted group with its grades or an error; a grader that is silent for longer than the timeout gives an error, its thread is left behind
//! and replaced, and what it says later is not heard. What is in the pool is bounded by what is in flight.

#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::work::{Answer, Judged, JudgedGroup, Verdict, WholeGroup, judge};
use self::work::{Outcome, Question, Work};
use super::reward_model::RewardModelConfig;
use crate::env::task::{GradeError, Task};
use crate::trajectory::Trajectory;

/// Threads left behind at which a run gives up.
const MOST_DETACHED: usize = 64;

/// How answers are graded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GradingConfig {
    /// Threads that grade.
    pub threads: usize,
    /// Longest time a grader may take for an answer or a group, seconds; then it counts as not graded.
    pub timeout_seconds: f64,
    /// A reward model that grades in place of the task, or beside it. Absent: the task's own grade alone.
    pub reward_model: Option<RewardModelConfig>,
}

impl Default for GradingConfig {
    fn default() -> Self {
        Self { threads: 1, timeout_seconds: 30.0, reward_model: None }
    }
}

/// What a worker is at. The work itself stays with the pool, so that a worker that never returns keeps nothing.
struct Running {
    work: Work,
    since: Instant,
    /// Which thread has it.
    thread: u64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    running: Vec<Running>,
    /// Judged answers for each generator.
    judged: Vec<VecDeque<Judged>>,
    /// Judged groups for each generator.
    judged_groups: Vec<VecDeque<JudgedGroup>>,
    next_thread: u64,
    /// Threads that were left behind and have not come back.
    left_behind: BTreeSet<u64>,
    detached: usize,
    seconds: f64,
    closed: bool,
}

impl State {
    /// Work goes back to the generator that sent it; without an outcome it took too long.
    fn hand_back(&mut self, work: Work, outcome: Option<Outcome>, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds += seconds;
        match work {
            Work::Answer(answer) => {
                let verdict = match outcome {
                    Some(Outcome::Answer(verdict)) => verdict,
                    _ => Verdict::Failed(GradeError::TimedOut),
                };
                self.judged[answer.generator].push_back(Judged { answer: *answer, verdict, seconds });
            }
            Work::Group(WholeGroup { group, generator, .. }) => {
                let grades = match outcome {
                    Some(Outcome::Group(grades)) => grades,
                    _ => Err(GradeError::TimedOut),
                };
                self.judged_groups[generator].push_back(JudgedGroup { group, grades });
            }
        }
    }
}

struct Shared {
    task: Arc<dyn Task>,
    state: Mutex<State>,
    work: Condvar,
    /// Called when an answer was judged.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's documentation.
pub struct GradingPool {
    shared: Arc<Shared>,
    /// Threads; none: answers are judged where they are submitted.
    threads: usize,
    timeout: Duration,
}

impl GradingPool {
    /// A pool for so many generators. With `inline` answers are judged at once by whoever submits them, without a
    /// timeout. `wake` is called when an answer was judged.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        config: &GradingConfig,
        inline: bool,
        task: Arc<dyn Task>,
        generators: usize,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let state = State {
            judged: (0..generators).map(|_| VecDeque::new()).collect(),
            judged_groups: (0..generators).map(|_| VecDeque::new()).collect(),
            ..State::default()
        };
        let shared = Arc::new(Shared { task, state: Mutex::new(state), work: Condvar::new(), wake });
        let threads = if inline { 0 } else { config.threads };
        let timeout = Duration::try_from_secs_f64(config.timeout_seconds).unwrap_or(Duration::MAX);
        let pool = Self { shared, threads, timeout };
        (0..pool.threads).try_for_each(|_| pool.spawn())?;
        Ok(pool)
    }

    fn spawn(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = {
            let mut state = self.shared.lock();
            state.next_thread += 1;
            state.next_thread
        };
        let body = move || work(&shared, thread);
        std::thread::Builder::new().name(format!("grading {thread}")).spawn(body).map(drop)
    }

    /// Takes an answer.
    pub fn submit(&self, answer: Answer) {
        self.take(Work::Answer(Box::new(answer)));
    }

    /// Takes a complete group.
    pub fn submit_group(&self, group: WholeGroup) {
        self.take(Work::Group(group));
    }

    fn take(&self, work: Work) {
        if self.threads == 0 {
            let since = Instant::now();
            let outcome = Question::of(&work).put(&*self.shared.task);
            self.shared.lock().hand_back(work, Some(outcome), since.elapsed());
            return;
        }
        self.shared.lock().waiting.push_back(work);
        self.shared.work.notify_one();
    }

    /// A generator's judged groups.
    #[must_use]
    pub fn judged_groups(&self, generator: usize) -> Vec<JudgedGroup> {
        self.shared.lock().judged_groups[generator].drain(..).collect()
    }

    /// A generator's judged answers.
    #[must_use]
    pub fn judged(&self, generator: usize) -> Vec<Judged> {
        self.shared.lock().judged[generator].drain(..).collect()
    }

    /// A generator's answers, judged or not, for a checkpoint.
    #[must_use]
    pub fn trajectories(&self, generator: usize) -> Vec<Trajectory> {
        let state = self.shared.lock();
        let judged = state.judged[generator].iter().map(|judged| &judged.answer);
        let working = state.waiting.iter().chain(state.running.iter().map(|running| &running.work));
        let answers = working.filter_map(Work::answer).chain(judged);
        answers
            .filter(|answer| answer.generator == generator)
            .map(|answer| answer.trajectory.clone())
            .collect()
    }

    /// Forgets what a generator had here, when it was lost.
    pub fn forget(&self, generator: usize) {
        let mut state = self.shared.lock();
        state.waiting.retain(|work| work.generator() != generator);
        state.running.retain(|running| running.work.generator() != generator);
        state.judged[generator].clear();
        state.judged_groups[generator].clear();
    }

    /// Gives up on graders that are silent for too long.
    ///
    /// # Errors
    /// When too many threads were left behind, or a new one cannot be started.
    pub fn watch(&self) -> Result<(), String> {
        let mut late = Vec::new();
        {
            let mut state = self.shared.lock();
            let mut at = 0;
            while at < state.running.len() {
                if state.running[at].since.elapsed() > self.timeout {
                    late.push(state.running.swap_remove(at));
                } else {
                    at += 1;
                }
            }
            for running in &late {
                state.detached += 1;
                state.left_behind.insert(running.thread);
            }
            if state.detached > MOST_DETACHED {
                return Err(format!(
                    "{} graders did not return within grading.timeout_seconds and were left behind",
                    state.detached
                ));
            }
        }
        for Running { work, since, .. } in late {
            self.shared.lock().hand_back(work, None, since.elapsed());
            self.spawn().map_err(|error| format!("a grading thread could not be started: {error}"))?;
            (self.shared.wake)();
        }
        Ok(())
    }

    /// Time spent grading since the pool was started, all threads together.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.shared.lock().seconds
    }

    /// Threads that were left behind.
    #[must_use]
    pub fn detached(&self) -> usize {
        self.shared.lock().detached
    }
}

impl Drop for GradingPool {
    /// Threads end when they next look for work.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

fn work(shared: &Shared, thread: u64) {
    loop {
        let question = {
            let mut state = shared.lock();
            loop {
                if state.closed {
                    return;
                }
                if let Some(work) = state.waiting.pop_front() {
                    // The task sees a copy; the pool keeps the work in case the grader never returns.
                    let question = Question::of(&work);
                    state.running.push(Running { work, since: Instant::now(), thread });
                    break question;
                }
                state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let outcome = question.put(&*shared.task);
        {
            let mut state = shared.lock();
            let own = state.running.iter().position(|running| running.thread == thread);
            if state.left_behind.remove(&thread) {
                return;
            }
            // Nobody waits for what was forgotten.
            let Some(own) = own else { continue };
            let Running { work, since, .. } = state.running.swap_remove(own);
            state.hand_back(work, Some(outcome), since.elapsed());
        }
        (shared.wake)();
    }
}
