//! Problems from a file: one JSON object a line (JSONL).
//!
//! ```text
//! {"prompt": "What is 2+2?", "answer": "4", "source": "sums", "split": "train"}
//! {"messages": [{"role": "user", "content": "What is 3+3?"}], "answer": 6}
//! ```
//!
//! `prompt` or `messages`, and `answer` (text or a number) are required; other fields are kept as the problem's data.
//! A line without `split` falls to evaluation by a hash of its prompt, so that a file that grows keeps its split. A
//! prompt that stands in both splits, and an answer that the verifier cannot use, make a line bad.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::contract::{Completion, Problem, Prompt, Split, Task};
use super::error::{GradeError, TaskError};
use super::held_out::hash;
use super::options::TaskOptions;
use super::registry::TaskEntry;
use super::verify::{Verifier, VerifierConfig};
use crate::trajectory::Message;
use crate::trajectory::Reward;

/// How many bad lines are remembered word for word.
const REMEMBERED: usize = 10;

/// What to do with a line that is no problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadLines {
    /// Refuse the dataset, naming the line.
    #[default]
    Refuse,
    /// Leave the line out and count it.
    Skip,
}

/// What can be chosen about a dataset.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetOptions {
    /// The file.
    pub path: PathBuf,
    /// How replies are compared with the answers.
    #[serde(default)]
    pub verifier: VerifierConfig,
    /// What to do with bad lines.
    #[serde(default)]
    pub on_bad_line: BadLines,
    /// Share of the lines without `split` that are held out for evaluation, 0 to below 1.
    #[serde(default)]
    pub evaluation_fraction: f64,
}

/// The task called `dataset`.
pub(super) fn entry() -> TaskEntry {
    TaskEntry::new("dataset", "problems from a JSONL file, graded by a verifier", |options, _| {
        Ok(Box::new(Dataset::from_options(options)?))
    })
}

/// The task; the module's documentation describes it.
pub struct Dataset {
    name: String,
    train: Vec<Problem>,
    evaluation: Vec<Problem>,
    verifier: Box<dyn Verifier>,
    skipped: u64,
    bad_lines: Vec<TaskError>,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Dataset")
            .field("name", &self.name)
            .field("train", &self.train.len())
            .field("evaluation", &self.evaluation.len())
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

impl Dataset {
    /// Loads the dataset that `options` describe.
    ///
    /// # Errors
    /// When an option is wrong, or as [`Dataset::load`] says.
    pub fn from_options(options: &TaskOptions<'_>) -> Result<Self, TaskError> {
        let read: DatasetOptions = options.parse()?;
        if !(0.0..1.0).contains(&read.evaluation_fraction) {
            let why = format!("is {}; give at least 0 and less than 1", read.evaluation_fraction);
            return Err(options.refuse("evaluation_fraction", &why));
        }
        let DatasetOptions { path, verifier, on_bad_line, evaluation_fraction } = read;
        Self::load(&path, verifier.build(), on_bad_line, evaluation_fraction)
    }

    /// Loads the file at `path`, graded by `verifier`, which may be one of your own.
    ///
    /// # Errors
    /// When the file cannot be read, a line is bad and to be refused, or no training problem is left.
    pub fn load(
        path: &Path,
        verifier: Box<dyn Verifier>,
        on_bad_line: BadLines,
        evaluation_fraction: f64,
    ) -> Result<Self, TaskError> {
        let unreadable = |error| TaskError::Read { path: path.to_owned(), error };
        let mut lines = BufReader::new(File::open(path).map_err(unreadable)?);
        let name =
            path.file_stem().map_or_else(|| "dataset".into(), |stem| stem.to_string_lossy().into_owned());
        let mut dataset = Self {
            name,
            train: Vec::new(),
            evaluation: Vec::new(),
            verifier,
            skipped: 0,
            bad_lines: Vec::new(),
        };
        let mut sides = Sides { evaluation_fraction, seen: BTreeMap::new() };
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            if lines.read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
                break;
            }
            // Files of some editors begin with a byte order mark.
            let content =
                if line == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes) } else { &bytes };
            if content.trim_ascii().is_empty() {
                continue;
            }
            if let Err(why) = dataset.add(content, line, &mut sides) {
                let error = TaskError::Line { path: path.to_owned(), line, why };
                match on_bad_line {
                    BadLines::Refuse => return Err(error),
                    BadLines::Skip => dataset.skip(error),
                }
            }
        }
        if dataset.train.is_empty() {
            let (evaluation, skipped) = (dataset.evaluation.len(), dataset.skipped);
            let mut why = format!("{evaluation} for evaluation, {skipped} bad lines");
            if let Some(first) = dataset.bad_lines.first() {
                why = format!("{why}, the first: {first}");
            }
            return Err(TaskError::Empty { path: path.to_owned(), why });
        }
        if let Some(first) = dataset.bad_lines.first() {
            let (path, skipped) = (path.display(), dataset.skipped);
            tracing::warn!("{path}: {skipped} bad lines are left out, the first: {first}");
        }
        Ok(dataset)
    }

    /// What was wrong with the first ten of them.
    #[must_use]
    pub fn bad_lines(&self) -> &[TaskError] {
        &self.bad_lines
    }

    fn skip(&mut self, error: TaskError) {
        self.skipped += 1;
        if self.bad_lines.len() < REMEMBERED {
            self.bad_lines.push(error);
        }
    }

    fn add(&mut self, content: &[u8], number: u64, sides: &mut Sides) -> Result<(), String> {
        let line = Line::read(content)?;
        self.verifier.check(&line.answer).map_err(|error| format!("`answer`: {error}"))?;
        let split = sides.side(&line, number)?;
        let problem = Problem {
            source: line.source.as_deref().unwrap_or(&self.name).into(),
            prompt: line.prompt,
            answer: line.answer,
            data: if line.data.is_empty() { Value::Null } else { Value::Object(line.data) },
        };
        match split {
            Split::Train => self.train.push(problem),
            Split::Evaluation => self.evaluation.push(problem),
        }
        Ok(())
    }

    fn problems(&self, split: Split) -> &[Problem] {
        match split {
            Split::Train => &self.train,
            Split::Evaluation => &self.evaluation,
        }
    }
}

/// Decides on the side of each line, and remembers where every prompt stands.
struct Sides {
    evaluation_fraction: f64,
    /// Side and line of each prompt's hash.
    seen: BTreeMap<u64, (Split, u64)>,
}

impl Sides {
    fn side(&mut self, line: &Line, number: u64) -> Result<Split, String> {
        let prompt = hash(prompt_text(&line.prompt).as_bytes());
        let share = prompt as f64 / 2_f64.powi(64);
        let drawn = if share < self.evaluation_fraction { Split::Evaluation } else { Split::Train };
        let &mut (before, at) = self.seen.entry(prompt).or_insert((line.split.unwrap_or(drawn), number));
        match line.split {
            Some(split) if split != before => {
                Err(format!("its prompt is in the {before} split already, at line {at}"))
            }
            // The same prompt without `split` follows the first.
            _ => Ok(before),
        }
    }
}

/// What makes two prompts the same.
fn prompt_text(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Messages(messages) => {
            let parts =
                messages.iter().flat_map(|message| [&*message.role, "\u{1}", &*message.content, "\u{2}"]);
            parts.collect()
        }
    }
}

/// The fields of a line.
struct Line {
    prompt: Prompt,
    answer: String,
    source: Option<String>,
    split: Option<Split>,
    /// All other fields.
    data: Map<String, Value>,
}

impl Line {
    fn read(content: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|error| format!("it is not UTF-8: {error}"))?;
        let value: Value = serde_json::from_str(text).map_err(|error| {
            // A line's error says "line 1", which is not the line of the file.
            let error = error.to_string();
            let (what, _) = error.split_once(" at line").unwrap_or((&error, ""));
            format!("it is not JSON: {what}")
        })?;
        let Value::Object(mut fields) = value else {
            return Err("it is not a JSON object; write {\"prompt\": …, \"answer\": …}".into());
        };
        let prompt = read_prompt(&mut fields)?;
        let answer = match fields.shift_remove("answer") {
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err("`answer` is neither text nor a number".into()),
            None => return Err("`answer` is missing".into()),
        };
        let source = read_text(&mut fields, "source")?;
        let split = match read_text(&mut fields, "split")?.as_deref() {
            None => None,
            Some("train") => Some(Split::Train),
            Some("evaluation") => Some(Split::Evaluation),
            Some(other) => return Err(format!("`split` is `{other}`; give `train` or `evaluation`")),
        };
        Ok(Self { prompt, answer, source, split, data: fields })
    }
}

fn read_prompt(fields: &mut Map<String, Value>) -> Result<Prompt, String> {
    match (read_text(fields, "prompt")?, fields.shift_remove("messages")) {
        (Some(_), Some(_)) => Err("it has both `prompt` and `messages`; leave one of them out".into()),
        (None, None) => Err("`prompt` is missing, and so is `messages`".into()),
        (Some(text), None) if text.is_empty() => Err("`prompt` is empty".into()),
        (Some(text), None) => Ok(Prompt::Text(text)),
        (None, Some(messages)) => {
            let messages: Vec<Message> =
                serde_json::from_value(messages).map_err(|error| format!("`messages`: {error}"))?;
            if messages.is_empty() {
                return Err("`messages` is empty".into());
            }
            Ok(Prompt::Messages(messages))
        }
    }
}

/// The text of an optional field; null counts as missing.
fn read_text(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` is not text")),
    }
}

impl Task for Dataset {
    fn len(&self, split: Split) -> Option<u32> {
        Some(u32::try_from(self.problems(split).len()).unwrap_or(u32::MAX))
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let problems = self.problems(split);
        problems.get(index as usize).cloned().ok_or_else(|| TaskError::Index {
            task: self.name.clone(),
            split,
            index,
            len: problems.len() as u32,
        })
    }

    fn sources(&self) -> Vec<Arc<str>> {
        let mut seen = BTreeSet::new();
        let sources = self.train.iter().map(|problem| &problem.source);
        sources.filter(|source| seen.insert(Arc::clone(source))).cloned().collect()
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        self.verifier.verify(&problem.answer, completion.reply()).map(Reward::of)
    }

    fn alphabet(&self) -> Option<String> {
        let characters = self.train.iter().chain(&self.evaluation).flat_map(|problem| {
            let texts: Vec<&str> = match &problem.prompt {
                Prompt::Text(text) => vec![text],
                Prompt::Messages(messages) => {
                    messages.iter().map(|message| message.content.as_str()).collect()
                }
            };
            texts.into_iter().flat_map(str::chars).chain(problem.answer.chars()).collect::<Vec<char>>()
        });
        Some(characters.collect::<BTreeSet<char>>().into_iter().collect())
    }
}

#[cfg(test)]
#[path = "dataset_tests.rs"]
mod tests;
