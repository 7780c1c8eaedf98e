//! Problems as they are asked at different efforts.
//!
//! `learner.efforts` lists them; the members of a group take them in turn, as do demonstrations and evaluated problems
//! by their index, so that whatever is learned or measured is spread over all of them. The instruction goes in front: of
//! a text prompt as it is, of a conversation as a message of the system's. Without efforts nothing changes.

use std::sync::Arc;

use super::conversation::prompt_ids;
use crate::env::task::{Problem, Prompt};
use crate::learner::token::EffortConfig;
use crate::policy::{Tokenizer, TokenizerError};
use crate::trajectory::Message;

/// A problem as some members of its group are asked it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The problem, its prompt with the instruction.
    pub problem: Arc<Problem>,
    /// Token ids of that prompt.
    pub prompt: Arc<[u32]>,
}

/// The problem as it is asked in the n-th place.
#[must_use]
pub fn at_effort(mut problem: Problem, efforts: &[EffortConfig], place: usize) -> Problem {
    let Some(effort) = efforts.get(place % efforts.len().max(1)) else { return problem };
    if effort.instruction.is_empty() {
        return problem;
    }
    match &mut problem.prompt {
        Prompt::Text(text) => text.insert_str(0, &effort.instruction),
        Prompt::Messages(messages) => match messages.first_mut().filter(|first| first.role == "system") {
            Some(system) => system.content = format!("{}\n{}", system.content, effort.instruction),
            None => messages.insert(0, Message::system(effort.instruction.as_str())),
        },
    }
    problem
}

/// The problem as it is asked at each effort; once as it is, without efforts.
///
/// # Errors
/// When a prompt cannot be encoded.
pub fn asked(
    problem: &Problem,
    efforts: &[EffortConfig],
    tokenizer: &Tokenizer,
) -> Result<Vec<Asked>, TokenizerError> {
    (0..efforts.len().max(1))
        .map(|place| {
            let problem = at_effort(problem.clone(), efforts, place);
            let prompt = prompt_ids(tokenizer, &problem)?.into();
            Ok(Asked { problem: Arc::new(problem), prompt })
        })
        .collect()
}

/// Every character of the instructions, for a tokenizer of characters.
#[must_use]
pub fn alphabet(efforts: &[EffortConfig]) -> String {
    efforts.iter().map(|effort| effort.instruction.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(prompt: Prompt) -> Problem {
        Problem { source: "sums".into(), prompt, answer: "4".into(), data: serde_json::Value::Null }
    }

    fn efforts() -> Vec<EffortConfig> {
        let effort = |name: &str, instruction: &str| EffortConfig {
            name: name.into(),
            instruction: instruction.into(),
            tau: 1.0,
        };
        vec![effort("low", "-"), effort("medium", ""), effort("high", "+")]
    }

    #[test]
    fn efforts_are_taken_in_turn_and_stand_in_front() {
        let text = |place| match at_effort(problem(Prompt::Text("2+2=".into())), &efforts(), place).prompt {
            Prompt::Text(text) => text,
            Prompt::Messages(_) => panic!("a text stays a text"),
        };
        assert_eq!([0, 1, 2, 3].map(text), ["-2+2=", "2+2=", "+2+2=", "-2+2="]);
        assert_eq!(at_effort(problem(Prompt::Text("2+2=".into())), &[], 5).answer, "4");
    }

    #[test]
    fn a_conversation_is_told_by_the_system() {
        let chat = |messages: Vec<Message>| {
            let Prompt::Messages(messages) =
                at_effort(problem(Prompt::Messages(messages)), &efforts(), 2).prompt
            else {
                panic!("a conversation stays one")
            };
            messages.iter().map(|m| format!("{}: {}", m.role, m.content)).collect::<Vec<_>>()
        };
        assert_eq!(chat(vec![Message::user("2+2?")]), ["system: +", "user: 2+2?"]);
        let told = vec![Message::system("Be kind."), Message::user("2+2?")];
        assert_eq!(chat(told), ["system: Be kind.\n+", "user: 2+2?"]);
    }
}
