//! Problems of several tasks in fixed proportions.
//!
//! ```toml
//! [task]
//! name = "mixture"
//! options.parts = [
//!   { name = "copy", weight = 3 },
//!   { name = "chain", weight = 1, source = "sums", options = { max = 4 } },
//! ]
//! ```
//!
//! - **Exact.** Weights are whole numbers; among as many problems in a row as they add up to, wherever the first one
//!   stands, each part has exactly its weight. The parts take turns as evenly as their weights allow.
//! - The n-th problem of a part is the n-th that its task alone would have; a part with finitely many is walked through
//!   over and over, in an order drawn anew each time unless it says otherwise.
//! - **Held out.** Evaluation asks for evaluation problems of the parts in the same proportions and repeats none: it ends
//!   before the first part runs out. A part without evaluation problems is left out of it.
//! - A problem goes back to the task that it came from to be answered, graded and shown; what the task knows of it is
//!   carried in its data.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::json;

use super::contract::{Completion, GroupAnswer, Problem, Split, Task, Turn};
use super::error::{GradeError, TaskError};
use super::options::TaskOptions;
use super::prompts::shuffled;
use super::registry::{TaskEntry, TaskRegistry};
use crate::trajectory::Reward;

pub(super) const NAME: &str = "mixture";
/// What the weights may add up to.
const MOST_TURNS: u64 = 10_000;

/// What can be chosen about a mixture.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixtureOptions {
    /// The tasks, at least one.
    pub parts: Vec<PartOptions>,
}

/// One task of a mixture.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartOptions {
    /// Its registered name; no mixture itself.
    pub name: String,
    /// Its problems among as many in a row as all weights add up to.
    #[serde(default = "one")]
    pub weight: u32,
    /// What its problems are reported under; absent: what the task calls them.
    #[serde(default)]
    pub source: Option<String>,
    /// The task's own options.
    #[serde(default)]
    pub options: toml::Table,
    /// Whether finitely many problems are taken in another order in each pass.
    #[serde(default = "yes")]
    pub shuffle: bool,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// One task and what it is called here.
struct Part {
    task: Arc<dyn Task>,
    source: Option<Arc<str>>,
    shuffle: bool,
    /// Orders of the passes asked for last, since problems are made from their index alone.
    orders: Mutex<Vec<(u32, Arc<[u32]>)>>,
}

/// Whose turn it is.
struct Turns {
    /// Part of each turn of a round, and its turns before that in the round.
    round: Vec<(usize, u32)>,
    /// Turns of each part in a round.
    weights: Vec<u32>,
}

/// The task; the module's documentation describes it.
pub struct Mixture {
    parts: Vec<Part>,
    train: Turns,
    evaluation: Turns,
    /// Evaluation problems; `None` without end.
    evaluation_len: Option<u32>,
    seed: u64,
}

/// The registry's entry.
pub(super) fn entry() -> TaskEntry {
    TaskEntry::composed(NAME, "problems of several tasks in fixed proportions", |options, seed, registry| {
        Ok(Box::new(Mixture::new(options, seed, registry)?))
    })
}

impl Turns {
    /// Each turn goes to the part that is furthest behind its share, the first of several.
    fn new(weights: Vec<u32>) -> Self {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut taken = vec![0_u32; weights.len()];
        let mut round = Vec::with_capacity(total as usize);
        for turn in 1..=total {
            let behind = |part: usize| {
                (u64::from(weights[part]) * turn) as i64 - (total * u64::from(taken[part])) as i64
            };
            let next = (0..weights.len()).rev().max_by_key(|&part| behind(part)).unwrap_or_default();
            round.push((next, taken[next]));
            taken[next] += 1;
        }
        Self { round, weights }
    }

    /// Part of the turn at an index, and its turns before.
    fn at(&self, index: u32) -> (usize, u32) {
        let length = self.round.len() as u32;
        let (part, before) = self.round[(index % length) as usize];
        (part, index / length * self.weights[part] + before)
    }

    /// Index of the turn of a part that has so many before it.
    fn index_of(&self, part: usize, before: u32) -> u64 {
        let weight = self.weights[part];
        let of_round = (part, before % weight);
        let place = self.round.iter().position(|&turn| turn == of_round).unwrap_or_default();
        u64::from(before / weight) * self.round.len() as u64 + place as u64
    }
}

impl Mixture {
    /// The mixture that `options` describe, of tasks that `registry` knows; `seed` is that of all of them.
    ///
    /// # Errors
    /// When a part is unknown, has impossible options or no training problem, or the weights cannot be used.
    pub fn new(options: &TaskOptions<'_>, seed: u64, registry: &TaskRegistry) -> Result<Self, TaskError> {
        let MixtureOptions { parts: given } = options.parse()?;
        if given.is_empty() {
            return Err(options.refuse("parts", "is empty; give at least one task"));
        }
        let total: u64 = given.iter().map(|part| u64::from(part.weight)).sum();
        if total > MOST_TURNS {
            let why = format!("have weights that add up to {total}; {MOST_TURNS} is the most");
            return Err(options.refuse("parts", &why));
        }
        let mut parts = Vec::with_capacity(given.len());
        let mut weights = Vec::with_capacity(given.len());
        for (index, part) in given.into_iter().enumerate() {
            let key = format!("parts[{index}]");
            let refuse = |why: &str| options.refuse(&key, why);
            if part.name == NAME {
                return Err(refuse("is a mixture itself; list its parts here"));
            }
            if part.weight == 0 {
                return Err(refuse("has weight 0; give at least 1, or leave it out"));
            }
            if part.source.as_deref().is_some_and(|source| source.trim().is_empty()) {
                return Err(refuse("has an empty `source`; give it a name, or leave it out"));
            }
            let task = registry.make(&part.name, &part.options, seed);
            let task = task.map_err(|error| refuse(&format!("cannot be made: {error}")))?;
            if task.is_empty(Split::Train) {
                return Err(refuse(&format!("`{}` has no training problem", part.name)));
            }
            weights.push(part.weight);
            parts.push(Part {
                task,
                source: part.source.map(Into::into),
                shuffle: part.shuffle,
                orders: Mutex::default(),
            });
        }
        let held_out =
            |(part, &weight): (&Part, &u32)| if part.task.is_empty(Split::Evaluation) { 0 } else { weight };
        let evaluation = Turns::new(parts.iter().zip(&weights).map(held_out).collect());
        let ends = parts.iter().enumerate().filter(|(part, _)| evaluation.weights[*part] > 0);
        let ends =
            ends.filter_map(|(part, of)| Some(evaluation.index_of(part, of.task.len(Split::Evaluation)?)));
        let evaluation_len = if evaluation.round.is_empty() { Some(0) } else { ends.min() };
        Ok(Self {
            evaluation_len: evaluation_len.map(|len| u32::try_from(len).unwrap_or(u32::MAX)),
            train: Turns::new(weights),
            evaluation,
            parts,
            seed,
        })
    }

    fn turns(&self, split: Split) -> &Turns {
        match split {
            Split::Train => &self.train,
            Split::Evaluation => &self.evaluation,
        }
    }

    /// Part of a problem of this mixture, and the problem as the part made it.
    fn own(&self, problem: &Problem) -> Option<(&Part, Problem)> {
        let part = self.parts.get(usize::try_from(problem.data.get("part")?.as_u64()?).ok()?)?;
        let data = problem.data.get("data").cloned().unwrap_or_default();
        Some((part, Problem { data, ..problem.clone() }))
    }

    fn graded(&self, problem: &Problem) -> Result<(&Part, Problem), GradeError> {
        let lost = || GradeError::Reference("`data` does not say which part of the mixture it is of".into());
        self.own(problem).ok_or_else(lost)
    }
}

impl Part {
    /// Index of the part's problem in the n-th of its turns.
    fn index(&self, split: Split, n: u32, seed: u64) -> u32 {
        let Some(len) = self.task.len(split) else { return n };
        let (pass, place) = (n / len, n % len);
        if split == Split::Evaluation || !self.shuffle {
            return place;
        }
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let known = orders.iter().find(|(of, _)| *of == pass).map(|(_, order)| Arc::clone(order));
        let order = known.unwrap_or_else(|| {
            let order: Arc<[u32]> = shuffled(len, seed, pass).into();
            // Two, for problems on both sides of a border.
            orders.truncate(1);
            orders.insert(0, (pass, Arc::clone(&order)));
            order
        });
        order[place as usize]
    }
}

impl Task for Mixture {
    fn len(&self, split: Split) -> Option<u32> {
        match split {
            Split::Train => None,
            Split::Evaluation => self.evaluation_len,
        }
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        if let Some(len) = self.len(split).filter(|&len| index >= len) {
            return Err(TaskError::Index { task: NAME.into(), split, index, len });
        }
        let (number, n) = self.turns(split).at(index);
        let part = &self.parts[number];
        let problem = part.task.problem(split, part.index(split, n, self.seed))?;
        let mut data = json!({ "part": number });
        // Whoever looks for a budget finds it where every problem has it.
        if let Some(budget) = problem.budget() {
            data["budget"] = budget.into();
        }
        if !problem.data.is_null() {
            data["data"] = problem.data;
        }
        let source = part.source.clone().unwrap_or(problem.source);
        Ok(Problem { source, data, prompt: problem.prompt, answer: problem.answer })
    }

    fn place(&self, split: Split, index: u32) -> u32 {
        self.turns(split).at(index).1
    }

    fn sources(&self) -> Vec<Arc<str>> {
        let mut sources: Vec<Arc<str>> = Vec::new();
        for part in &self.parts {
            let own = part.source.clone().map_or_else(|| part.task.sources(), |source| vec![source]);
            for source in own {
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
        sources
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        let (part, problem) = self.graded(problem)?;
        part.task.grade(&problem, completion)
    }

    fn parts(&self) -> Vec<String> {
        let mut names = self.parts[0].task.parts();
        for part in &self.parts[1..] {
            let own = part.task.parts();
            names.retain(|name| own.contains(name));
        }
        names
    }

    fn skipped(&self) -> u64 {
        self.parts.iter().map(|part| part.task.skipped()).sum()
    }

    fn grades_groups(&self) -> bool {
        self.parts.iter().any(|part| part.task.grades_groups())
    }

    fn grade_group(&self, problem: &Problem, answers: &[GroupAnswer<'_>]) -> Result<Vec<Reward>, GradeError> {
        let (part, problem) = self.graded(problem)?;
        if !part.task.grades_groups() {
            return Ok(answers.iter().map(|answer| answer.reward.clone()).collect());
        }
        part.task.grade_group(&problem, answers)
    }

    fn respond(&self, problem: &Problem, turns: &[String]) -> Result<Turn, GradeError> {
        let (part, problem) = self.graded(problem)?;
        part.task.respond(&problem, turns)
    }

    fn is_multi_turn(&self) -> bool {
        self.parts.iter().any(|part| part.task.is_multi_turn())
    }

    fn forced_length(&self, problem: &Problem, member: u16) -> Option<usize> {
        let (part, problem) = self.own(problem)?;
        part.task.forced_length(&problem, member)
    }

    fn alphabet(&self) -> Option<String> {
        let alphabets: Option<Vec<String>> = self.parts.iter().map(|part| part.task.alphabet()).collect();
        let characters: std::collections::BTreeSet<char> =
            alphabets?.iter().flat_map(|alphabet| alphabet.chars()).collect();
        Some(characters.into_iter().collect())
    }

    fn demonstration(&self, problem: &Problem, turns: &[String]) -> Option<String> {
        let (part, problem) = self.own(problem)?;
        part.task.demonstration(&problem, turns)
    }
}

impl std::fmt::Debug for Mixture {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Mixture")
            .field("sources", &self.sources())
            .field("weights", &self.train.weights)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "mixture_tests.rs"]
mod tests;
