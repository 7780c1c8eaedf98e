//! A task defined outside this crate's own, through the registry to a grade.

use super::*;
use crate::trajectory::{Finish, Reward};

struct Shout;

impl Task for Shout {
    fn len(&self, split: Split) -> Option<u32> {
        (split == Split::Evaluation).then_some(0)
    }

    fn problem(&self, _: Split, index: u32) -> Result<Problem, TaskError> {
        let word = ["yes", "no"][index as usize % 2];
        let prompt = Prompt::Text(format!("{word}!"));
        Ok(Problem {
            source: "shout".into(),
            prompt,
            answer: word.to_uppercase(),
            data: serde_json::Value::Null,
        })
    }

    fn grade(&self, problem: &Problem, completion: &Completion<'_>) -> Result<Reward, GradeError> {
        Ok(Reward::of(f64::from(u8::from(completion.reply() == problem.answer))))
    }
}

#[test]
fn one_call_registers_a_task_of_ones_own() {
    let mut registry = TaskRegistry::builtin();
    assert!(registry.register(TaskEntry::new("shout", "in capitals", |_, _| Ok(Box::new(Shout)))).is_none());
    let task = registry.make("shout", &toml::Table::new(), 0).unwrap();
    let problem = task.problem(Split::Train, 1).unwrap();
    let turns = [task.demonstration(&problem, &[]).unwrap()];
    assert_eq!(respond(&*task, &problem, &turns), Ok(Turn::End));
    assert_eq!(
        grade(&*task, &problem, &Completion { turns: &turns, finish: Finish::Stop }),
        Ok(Reward::of(1.0))
    );
    assert!(task.is_empty(Split::Evaluation) && !task.is_empty(Split::Train));
    assert_eq!(task.alphabet(), None);
}

#[test]
fn problems_and_prompts_survive_serialisation() {
    let task = TaskRegistry::builtin().make("addition", &toml::toml! { style = "chat" }, 0).unwrap();
    let problem = task.problem(Split::Train, 0).unwrap();
    let text = serde_json::to_string(&problem).unwrap();
    assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    assert!(serde_json::to_string(&problem.prompt).unwrap().starts_with("[{\"role\":\"user\""));
}
