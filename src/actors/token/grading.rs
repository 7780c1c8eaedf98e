//! The grading pool: threads that call into the task, so that generation never waits for a grader.
//!
//! Invariants: every submitted answer comes back exactly once, to the generator that sent it, as the task's next turn,
//! a reward, or an error; a grader that is silent for longer than the timeout gives an error, its thread is left behind
//! and replaced, and what it says later is not heard. What is in the pool is bounded by what is in flight.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use super::reward_model::RewardModelConfig;
use crate::env::task::{self, Completion, GradeError, Task, Turn};
use crate::trajectory::{Finish, Reward, Trajectory};

/// Threads left behind at which a run gives up.
const MOST_DETACHED: usize = 64;

/// How answers are graded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GradingConfig {
    /// Threads that grade.
    pub threads: usize,
    /// Longest time a grader may take for an answer, seconds; then the answer counts as not graded.
    pub timeout_seconds: f64,
    /// A reward model that grades in place of the task, or beside it. Absent: the task's own grade alone.
    pub reward_model: Option<RewardModelConfig>,
}

impl Default for GradingConfig {
    fn default() -> Self {
        Self { threads: 1, timeout_seconds: 30.0, reward_model: None }
    }
}

/// An answer to be judged.
#[derive(Debug)]
pub struct Answer {
    /// The trajectory, ended or at the end of a turn.
    pub trajectory: Trajectory,
    /// What was said, the last turn included.
    pub conversation: Conversation,
    /// Who sent it.
    pub generator: usize,
}

/// What the task made of it.
#[derive(Debug)]
pub enum Verdict {
    /// It says something, and the model goes on.
    Observe(String),
    /// A grade.
    Graded(Reward),
    /// It could not be graded.
    Failed(GradeError),
}

/// An answer and what the task made of it.
#[derive(Debug)]
pub struct Judged {
    /// The answer.
    pub answer: Answer,
    /// The verdict.
    pub verdict: Verdict,
    /// How long the task took, seconds.
    pub seconds: f64,
}

/// Judges an answer: the next turn if there is one, else a grade.
#[must_use]
pub fn judge(task: &dyn Task, trajectory: &Trajectory, conversation: &Conversation) -> Verdict {
    let (problem, turns) = (&conversation.problem, &conversation.turns);
    let finish = trajectory.finish.unwrap_or(Finish::Stop);
    if finish == Finish::Stop {
        match task::respond(task, problem, turns) {
            Ok(Turn::Observe(said)) => return Verdict::Observe(said),
            Ok(Turn::End) => {}
            Err(error) => return Verdict::Failed(error),
        }
    }
    task::grade(task, problem, &Completion { turns, finish }).map_or_else(Verdict::Failed, Verdict::Graded)
}

/// What a worker is at. The answer itself stays with the pool, so that a worker that never returns keeps nothing.
struct Running {
    answer: Answer,
    since: Instant,
    /// Which thread has it.
    thread: u64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Answer>,
    running: Vec<Running>,
    /// Judged answers for each generator.
    judged: Vec<VecDeque<Judged>>,
    next_thread: u64,
    /// Threads that were left behind and have not come back.
    left_behind: BTreeSet<u64>,
    detached: usize,
    seconds: f64,
    closed: bool,
}

impl State {
    /// An answer goes back to the generator that sent it.
    fn hand_back(&mut self, answer: Answer, verdict: Verdict, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds += seconds;
        self.judged[answer.generator].push_back(Judged { answer, verdict, seconds });
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
        let state = State { judged: (0..generators).map(|_| VecDeque::new()).collect(), ..State::default() };
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
        if self.threads == 0 {
            let since = Instant::now();
            let verdict = judge(&*self.shared.task, &answer.trajectory, &answer.conversation);
            self.shared.lock().hand_back(answer, verdict, since.elapsed());
            return;
        }
        self.shared.lock().waiting.push_back(answer);
        self.shared.work.notify_one();
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
        let answers =
            state.waiting.iter().chain(state.running.iter().map(|running| &running.answer)).chain(judged);
        answers
            .filter(|answer| answer.generator == generator)
            .map(|answer| answer.trajectory.clone())
            .collect()
    }

    /// Forgets what a generator had here, when it was lost.
    pub fn forget(&self, generator: usize) {
        let mut state = self.shared.lock();
        state.waiting.retain(|answer| answer.generator != generator);
        state.running.retain(|running| running.answer.generator != generator);
        state.judged[generator].clear();
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
        for Running { answer, since, .. } in late {
            self.shared.lock().hand_back(answer, Verdict::Failed(GradeError::TimedOut), since.elapsed());
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
        let (trajectory, conversation) = {
            let mut state = shared.lock();
            loop {
                if state.closed {
                    return;
                }
                if let Some(answer) = state.waiting.pop_front() {
                    // The task sees a copy; the pool keeps the answer in case the grader never returns.
                    let copy = (answer.trajectory.clone(), answer.conversation.clone());
                    state.running.push(Running { answer, since: Instant::now(), thread });
                    break copy;
                }
                state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let verdict = judge(&*shared.task, &trajectory, &conversation);
        {
            let mut state = shared.lock();
            let own = state.running.iter().position(|running| running.thread == thread);
            if state.left_behind.remove(&thread) {
                return;
            }
            // Nobody waits for an answer that was forgotten.
            let Some(own) = own else { continue };
            let Running { answer, since, .. } = state.running.swap_remove(own);
            state.hand_back(answer, verdict, since.elapsed());
        }
        (shared.wake)();
    }
}
