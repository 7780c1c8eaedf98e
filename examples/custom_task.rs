//! A task of your own, registered beside the built-in ones.
//!
//! `cargo run --release --example custom_task -- train examples/custom_task.toml` trains a model on it; every other
//! subcommand works too, since the program hands its registry to the library's command line.

use std::process::ExitCode;

use forebay::env::NoOptions;
use forebay::env::task::{
    Completion, GradeError, Problem, Prompt, Split, Task, TaskEntry, TaskError, TaskRegistry,
};
use forebay::random::{Stream, draw};
use forebay::trajectory::Reward;

/// Roman numerals: `14=` wants `XIV`. One number in eight is kept for evaluation.
struct Roman {
    seed: u64,
}

/// Writes a number below 400.
fn roman(mut number: u32) -> String {
    const SIGNS: [(u32, &str); 9] =
        [(100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")];
    let mut text = String::new();
    for (value, sign) in SIGNS {
        while number >= value {
            text.push_str(sign);
            number -= value;
        }
    }
    text
}

impl Task for Roman {
    fn len(&self, _: Split) -> Option<u32> {
        None
    }

    fn problem(&self, split: Split, index: u32) -> Result<Problem, TaskError> {
        let drawn = draw(self.seed, Stream::Problem, [split as u32, index, 0, 0]);
        let (block, within) = (drawn[0] % 49, drawn[1] % 7);
        let number = match split {
            Split::Train => 8 * block + 1 + within,
            Split::Evaluation => 8 * (block + 1),
        };
        let prompt = Prompt::Text(format!("{number}="));
        Ok(Problem { source: "roman".into(), prompt, answer: roman(number), data: serde_json::Value::Null })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(Reward::of(if completion.reply().trim() == problem.answer { 1.0 } else { 0.0 }))
    }

    fn alphabet(&self) -> Option<String> {
        Some("0123456789=IVXLC".into())
    }
}

fn main() -> ExitCode {
    let mut registry = TaskRegistry::builtin();
    registry.register(TaskEntry::new("roman", "write a number in Roman numerals", |options, seed| {
        options.parse::<NoOptions>()?;
        Ok(Box::new(Roman { seed }))
    }));
    forebay::cli::run(registry)
}
