//! What holds for every built-in task, and each task's own problems and grades.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::env::task::{Completion, GradeError, Problem, Prompt, Split, Task, TaskRegistry, Turn};
use crate::trajectory::{Finish, Reward};

/// All but `long_tail`, whose answers' lengths are not the model's and whose problems are few; it has tests of its own.
const NAMES: [&str; 9] =
    ["copy", "reverse", "sort", "addition", "chain", "worked_chain", "countdown", "brackets", "guess_number"];
const SPLITS: [Split; 2] = [Split::Train, Split::Evaluation];

fn make(name: &str, options: &str, seed: u64) -> Arc<dyn Task> {
    TaskRegistry::builtin().make(name, &toml::from_str(options).unwrap(), seed).unwrap()
}

fn refused(name: &str, options: &str) -> String {
    TaskRegistry::builtin().make(name, &toml::from_str(options).unwrap(), 0).err().unwrap().to_string()
}

fn problems(task: &dyn Task, split: Split, count: u32) -> Vec<Problem> {
    let count = task.len(split).map_or(count, |len| len.min(count));
    (0..count).map(|index| task.problem(split, index).unwrap()).collect()
}

fn grade(task: &dyn Task, problem: &Problem, turns: &[&str]) -> Result<Reward, GradeError> {
    let turns: Vec<String> = turns.iter().map(|&turn| turn.to_owned()).collect();
    task.grade(problem, &Completion { turns: &turns, finish: Finish::Stop })
}

fn value(task: &dyn Task, problem: &Problem, reply: &str) -> f64 {
    grade(task, problem, &[reply]).unwrap().value
}

/// Plays the demonstrations to the end of the conversation.
fn demonstrated(task: &dyn Task, problem: &Problem) -> (Vec<String>, Vec<String>) {
    let (mut turns, mut observations) = (Vec::new(), Vec::new());
    loop {
        turns.push(task.demonstration(problem, &turns).expect("a demonstration goes on to the end"));
        match task.respond(problem, &turns).unwrap() {
            Turn::Observe(text) => observations.push(text),
            Turn::End => return (turns, observations),
        }
    }
}

/// Every built-in task in both styles.
fn all() -> impl Iterator<Item = (&'static str, Arc<dyn Task>)> {
    let styles = ["style = 'plain'", "style = 'chat'"];
    NAMES.into_iter().flat_map(move |name| styles.map(|style| (name, make(name, style, 3))))
}

#[test]
fn the_same_seed_split_and_index_give_the_same_problem() {
    for name in NAMES {
        let (first, again, other) = (make(name, "", 1), make(name, "", 1), make(name, "", 2));
        for split in SPLITS {
            let expected = problems(&*first, split, 20);
            // Asked for in another order.
            for index in (0..20.min(expected.len() as u32)).rev() {
                assert_eq!(again.problem(split, index).unwrap(), expected[index as usize], "{name}");
            }
            assert_ne!(problems(&*other, split, 20), expected, "{name}");
        }
    }
}

#[test]
fn demonstrations_earn_full_reward_and_an_empty_answer_earns_none() {
    for (name, task) in all() {
        for split in SPLITS {
            for problem in problems(&*task, split, 100) {
                assert_eq!(&*problem.source, name);
                let turns = demonstrated(&*task, &problem).0;
                let earned =
                    task.grade(&problem, &Completion { turns: &turns, finish: Finish::Stop }).unwrap();
                // The game costs its later turns.
                let least = if name == "guess_number" { 0.69 } else { 1.0 };
                assert!(earned.value >= least, "{name}: {problem:?}: {turns:?}: {earned:?}");
                assert_eq!(value(&*task, &problem, &problem.answer), 1.0, "{name}");
                for empty in ["", " ", "no idea"] {
                    assert_eq!(value(&*task, &problem, empty), 0.0, "{name}");
                }
                let nothing = Completion { turns: &[], finish: Finish::Length };
                assert_eq!(task.grade(&problem, &nothing).unwrap().value, 0.0, "{name}");
            }
        }
    }
}

#[test]
fn training_and_evaluation_share_no_problem_under_any_seed() {
    for name in NAMES {
        let content = |task: &dyn Task, split| -> BTreeSet<String> {
            let problems = problems(task, split, 600);
            // The game's prompt is always the same; the hidden number tells its problems apart.
            problems
                .iter()
                .map(|problem| serde_json::to_string(&(&problem.prompt, &problem.answer)).unwrap())
                .collect()
        };
        let train = content(&*make(name, "", 1), Split::Train);
        let evaluation = content(&*make(name, "", 2), Split::Evaluation);
        assert!(train.len() > 50 && evaluation.len() > 5, "{name}: {} {}", train.len(), evaluation.len());
        assert!(train.is_disjoint(&evaluation), "{name}");
    }
}

#[test]
fn the_alphabet_covers_prompts_answers_and_observations() {
    for (name, task) in all() {
        let alphabet = task.alphabet().unwrap();
        assert_eq!(alphabet.chars().collect::<BTreeSet<_>>().len(), alphabet.chars().count(), "{name}");
        for split in SPLITS {
            for problem in problems(&*task, split, 50) {
                let (turns, observations) = demonstrated(&*task, &problem);
                let shown = super::text_of(&problem.prompt)
                    + &turns.concat()
                    + &observations.concat()
                    + &problem.answer;
                assert!(shown.chars().all(|character| alphabet.contains(character)), "{name}: {shown}");
            }
        }
    }
}

#[test]
fn plain_prompts_are_short_and_chats_ask_in_words() {
    let expected = [
        ("copy", "abc>", "Repeat this string: abc\nAnswer with just the resulting string."),
        ("reverse", "abc<", "Reverse this string: abc\nAnswer with just the resulting string."),
        ("sort", "abc^", "Sort the characters of this string: abc\nAnswer with just the resulting string."),
    ];
    for (name, plain, chat) in expected {
        let options = "min_length = 3\nmax_length = 3\nalphabet = 'abc'";
        let find = |style: &str| {
            let task = make(name, &format!("{options}\nstyle = '{style}'"), 0);
            let shown = (0..2000).map(|index| task.problem(Split::Train, index).unwrap().prompt);
            shown.map(|prompt| super::text_of(&prompt)).find(|text| text.contains("abc")).unwrap()
        };
        assert_eq!((find("plain").as_str(), find("chat").as_str()), (plain, chat));
    }
}

#[test]
fn strings_are_transformed_over_the_alphabet_and_lengths_asked_for() {
    let options = "alphabet = 'zyx'\nmin_length = 4\nmax_length = 5";
    let string = |problem: &Problem| match &problem.prompt {
        Prompt::Text(text) => text[..text.len() - 1].to_owned(),
        Prompt::Messages(_) => panic!("plain is the default"),
    };
    for name in ["copy", "reverse", "sort"] {
        let task = make(name, options, 0);
        let mut lengths = BTreeSet::new();
        for problem in problems(&*task, Split::Train, 50) {
            let string = string(&problem);
            lengths.insert(string.len());
            let expected: String = match name {
                "copy" => string.clone(),
                "reverse" => string.chars().rev().collect(),
                // In the alphabet's own order.
                _ => "zyx".chars().flat_map(|c| string.chars().filter(move |&other| other == c)).collect(),
            };
            assert_eq!(problem.answer, expected);
        }
        assert_eq!(lengths, BTreeSet::from([4, 5]));
    }
}

#[test]
fn partial_credit_is_for_characters_in_place_and_only_when_asked_for() {
    let options = "min_length = 4\nmax_length = 4\nalphabet = 'ab'";
    for name in ["copy", "reverse", "sort"] {
        let (whole, partial) = (make(name, options, 0), make(name, &format!("{options}\npartial = true"), 0));
        let problem = whole.problem(Split::Train, 0).unwrap();
        let half_right = format!("{}xx", &problem.answer[..2]);
        assert_eq!(
            [value(&*whole, &problem, &half_right), value(&*partial, &problem, &half_right)],
            [0.0, 0.5]
        );
        assert_eq!(value(&*partial, &problem, &problem.answer), 1.0);
    }
}

#[test]
fn addition_asks_as_told_and_the_last_number_counts() {
    let (plain, chat) = (make("addition", "", 0), make("addition", "style = 'chat'", 0));
    let problem = plain.problem(Split::Train, 0).unwrap();
    let Prompt::Text(text) = &problem.prompt else { panic!("plain is text") };
    let (left, right) = text.trim_end_matches('=').split_once('+').unwrap();
    let sum = left.parse::<u32>().unwrap() + right.parse::<u32>().unwrap();
    assert_eq!((text.clone(), problem.answer.clone()), (format!("{left}+{right}="), sum.to_string()));
    let Prompt::Messages(messages) = chat.problem(Split::Train, 0).unwrap().prompt else {
        panic!("chat talks")
    };
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].role, "user");
    assert_eq!(messages[0].content, format!("What is {left}+{right}? Answer with just the number."));
    for (reply, expected) in [
        (format!("{sum}"), 1.0),
        (format!("The sum of {left} and {right} is {sum}."), 1.0),
        (format!("{left}+{right}={sum}"), 1.0),
        (format!("{sum} or {}", sum + 1), 0.0),
        (format!("-{sum}5"), 0.0),
        (format!("{sum}0"), 0.0),
    ] {
        assert_eq!(value(&*plain, &problem, &reply), expected, "{reply}");
    }
}

#[test]
fn addition_holds_out_more_than_500_distinct_pairs_in_both_orders() {
    let task = make("addition", "max = 99", 5);
    let held_out: BTreeSet<String> =
        problems(&*task, Split::Evaluation, u32::MAX).iter().map(|p| super::text_of(&p.prompt)).collect();
    assert_eq!(Some(held_out.len() as u32), task.len(Split::Evaluation));
    assert!((1000..1500).contains(&held_out.len()), "{}", held_out.len());
    let swapped = |text: &String| {
        let (left, right) = text.trim_end_matches('=').split_once('+').unwrap();
        format!("{right}+{left}=")
    };
    assert!(held_out.iter().all(|text| held_out.contains(&swapped(text))));
    assert!(task.problem(Split::Evaluation, held_out.len() as u32).is_err());
    assert_eq!(task.len(Split::Train), None);
    let train: BTreeSet<String> =
        problems(&*task, Split::Train, 20_000).iter().map(|p| super::text_of(&p.prompt)).collect();
    assert!(train.is_disjoint(&held_out) && train.len() > 7000, "{}", train.len());
}

#[test]
fn small_and_large_ranges_of_addition_work() {
    let small = make("addition", "max = 1", 0);
    let all = |split| {
        problems(&*small, split, 50).iter().map(|p| super::text_of(&p.prompt)).collect::<BTreeSet<_>>()
    };
    assert_eq!(all(Split::Train), all(Split::Evaluation));
    let large = make("addition", "max = 1000000000", 0);
    assert_eq!(large.len(Split::Evaluation), None);
    let problem = large.problem(Split::Evaluation, 7).unwrap();
    assert_eq!(value(&*large, &problem, &problem.answer), 1.0);
}

#[test]
fn chains_are_summed_and_demonstrated_with_or_without_steps() {
    let task = make("chain", "min_terms = 4\nmax_terms = 4\nmax = 20\nsteps = true", 0);
    for problem in problems(&*task, Split::Train, 100) {
        let Prompt::Text(text) = &problem.prompt else { panic!("plain is text") };
        let signed = text.trim_end_matches('=').replace('-', "+-");
        let terms: Vec<i64> = signed.split('+').map(|term| term.parse().unwrap()).collect();
        assert_eq!((terms.len(), terms.iter().sum::<i64>().to_string()), (4, problem.answer.clone()));
        let steps: Vec<i64> = (2..=4).map(|count| terms[..count].iter().sum()).collect();
        let steps = steps.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        assert_eq!(task.demonstration(&problem, &[]), Some(steps));
        assert_eq!(task.demonstration(&problem, &[String::new()]), None);
    }
}

#[test]
fn other_operations_are_applied_from_left_to_right_modulo_what_is_asked_for() {
    for (operations, options) in
        [("*", "modulus = 10"), ("<>", ""), ("+-*<>", "modulus = 7"), ("+", ""), ("-", "modulus = 3")]
    {
        let task = make(
            "chain",
            &format!(
                "min_terms = 4\nmax_terms = 4\nmax = 9\noperations = '{operations}'\n{options}\nsteps = true"
            ),
            0,
        );
        let modulus = options.strip_prefix("modulus = ").map(|modulus| modulus.parse::<i64>().unwrap());
        for problem in problems(&*task, Split::Train, 60) {
            let Prompt::Text(text) = &problem.prompt else { panic!("plain is text") };
            let mut characters = text.trim_end_matches('=').chars();
            let digit = |character: Option<char>| i64::from(character.unwrap().to_digit(10).unwrap());
            let mut value = digit(characters.next());
            let mut values = Vec::new();
            while let Some(operation) = characters.next() {
                assert!(operations.contains(operation), "{text}");
                let number = digit(characters.next());
                value = match operation {
                    '+' => value + number,
                    '-' => value - number,
                    '*' => value * number,
                    '<' => value.min(number),
                    _ => value.max(number),
                };
                value = modulus.map_or(value, |modulus| (value % modulus + modulus) % modulus);
                values.push(value.to_string());
            }
            assert_eq!((values.len(), &values[2]), (3, &problem.answer), "{text}");
            assert_eq!(task.demonstration(&problem, &[]), Some(values.join(",")));
        }
    }
}

#[test]
fn a_chain_may_show_a_part_of_its_work_and_always_its_value() {
    let shown = |every: u32| {
        let options =
            format!("min_terms = 6\nmax_terms = 6\noperations = '<'\nsteps = true\nevery = {every}");
        let task = make("chain", &options, 0);
        let mut problem = task.problem(Split::Train, 0).unwrap();
        problem.data["values"] = serde_json::json!([5, 4, 3, 2, 1]);
        task.demonstration(&problem, &[]).unwrap()
    };
    assert_eq!([1, 2, 3, 9].map(shown), ["5,4,3,2,1", "5,3,1", "4,1", "1"]);
    let chat = make("chain", "operations = '<+'\nmodulus = 5\nstyle = 'chat'", 0);
    let asked = super::text_of(&chat.problem(Split::Train, 0).unwrap().prompt);
    assert!(asked.contains("left to right") && asked.contains("modulo 5"), "{asked}");
}

#[test]
fn countdown_takes_every_right_expression_of_exactly_the_given_numbers() {
    let task = make("countdown", "", 0);
    let half = make("countdown", "partial = true", 0);
    let mut problem = task.problem(Split::Train, 0).unwrap();
    problem.data = serde_json::json!({ "numbers": [3, 5, 7], "target": 22 });
    for (reply, expected, partial) in [
        ("3*5+7", 1.0, 1.0),
        ("7 + 5 × 3", 1.0, 1.0),
        ("3*5+7=22", 1.0, 1.0),
        ("3 * 5 = 15\n15 + 7 = 22\n(3*5)+7 = 22", 1.0, 1.0),
        ("so <answer> (5*3)+7 </answer>.", 1.0, 1.0),
        ("<answer>1</answer> <answer>3*5+7</answer>", 1.0, 1.0),
        ("3+5+7", 0.0, 0.1),
        ("3*5+7+3-3", 0.0, 0.0),
        ("22", 0.0, 0.0),
        ("15+7", 0.0, 0.0),
        ("3*5+7)", 0.0, 0.0),
        ("3/(5-5)+7", 0.0, 0.0),
        ("", 0.0, 0.0),
    ] {
        assert_eq!(
            [value(&*task, &problem, reply), value(&*half, &problem, reply)],
            [expected, partial],
            "{reply}"
        );
    }
    problem.data = serde_json::json!({ "numbers": [8, 8, 3, 3], "target": 24 });
    assert_eq!(value(&*task, &problem, "8/(3-8/3)"), 1.0);
}

#[test]
fn countdown_keeps_to_its_ranges() {
    let task = make("countdown", "min_numbers = 2\nmax_numbers = 6\nmax_number = 10\nmax_target = 60", 0);
    let mut counts = BTreeSet::new();
    for problem in problems(&*task, Split::Train, 300) {
        let numbers = problem.data["numbers"].as_array().unwrap();
        counts.insert(numbers.len());
        assert!(numbers.iter().all(|number| (1..=10).contains(&number.as_u64().unwrap())));
        assert!((1..=60).contains(&problem.data["target"].as_u64().unwrap()));
    }
    assert_eq!(counts, (2..=6).collect());
}

#[test]
fn the_guessing_game_answers_each_turn_and_ends_on_a_hit_or_after_its_turns() {
    let task = make("guess_number", "max_turns = 3\nturn_cost = 0.25\nstyle = 'chat'", 0);
    let mut problem = task.problem(Split::Train, 0).unwrap();
    problem.data = serde_json::json!({ "hidden": 40 });
    let respond = |turns: &[&str]| {
        let turns: Vec<String> = turns.iter().map(|&turn| turn.to_owned()).collect();
        task.respond(&problem, &turns).unwrap()
    };
    assert_eq!(respond(&["20"]), Turn::Observe("higher".into()));
    assert_eq!(respond(&["20", "is it 60?"]), Turn::Observe("lower".into()));
    assert_eq!(respond(&["what?"]), Turn::Observe("number?".into()));
    assert_eq!(respond(&[&"9".repeat(400)]), Turn::Observe("lower".into()));
    assert_eq!(respond(&["40"]), Turn::End);
    assert_eq!(respond(&["20", "60", "50"]), Turn::End);
    for (turns, expected) in [
        (&["40"][..], 1.0),
        (&["20", "40"], 0.75),
        (&["20", "what?", "40"], 0.5),
        (&["20", "60", "50"], 0.0),
        (&["20", "60", "50", "40"], 0.0),
    ] {
        let reward = grade(&*task, &problem, turns).unwrap();
        assert_eq!(reward.value, expected, "{turns:?}");
        assert_eq!(reward.parts[0].1, f64::from(u8::from(expected > 0.0)));
    }
}

#[test]
fn the_plain_game_reads_as_one_text_and_demonstrations_halve_the_interval() {
    let task = make("guess_number", "min = -10\nmax = 10", 0);
    let mut problem = task.problem(Split::Train, 0).unwrap();
    problem.data = serde_json::json!({ "hidden": -7 });
    assert_eq!(problem.prompt, Prompt::Text("-10-10:".into()));
    let (turns, observations) = demonstrated(&*task, &problem);
    assert_eq!(turns, ["0", "-6", "-9", "-8", "-7"]);
    assert_eq!(observations, [" lower ", " lower ", " higher ", " higher "]);
    assert_eq!(task.demonstration(&problem, &turns), None);
}

#[test]
fn a_problem_without_what_grading_needs_is_an_error() {
    for name in ["addition", "countdown", "guess_number"] {
        let task = make(name, "", 0);
        let mut problem = task.problem(Split::Train, 0).unwrap();
        problem.data = serde_json::Value::Null;
        assert_eq!(grade(&*task, &problem, &["1"]).unwrap_err().kind(), "reference", "{name}");
    }
}

#[test]
fn impossible_options_are_refused_by_name() {
    for (name, options, key) in [
        ("copy", "alphabet = 'a'", "`alphabet`"),
        ("copy", "alphabet = 'aab'", "`alphabet`"),
        ("sort", "alphabet = 'a b'", "`alphabet`"),
        ("reverse", "alphabet = 'ab<'", "`alphabet`"),
        ("copy", "min_length = 0", "`min_length`"),
        ("copy", "max_length = 1001", "`max_length`"),
        ("copy", "min_length = 9", "`max_length`"),
        ("copy", "style = 'loud'", "`style`"),
        ("addition", "max = 0", "`max`"),
        ("addition", "max = 2000000000", "`max`"),
        ("addition", "max = -1", "`max`"),
        ("chain", "min_terms = 1", "`min_terms`"),
        ("chain", "min_terms = 7", "`max_terms`"),
        ("chain", "max = 0", "`max`"),
        ("chain", "operations = ''", "`operations`"),
        ("chain", "operations = '+/'", "`operations`"),
        ("chain", "operations = '++'", "`operations`"),
        ("chain", "operations = '*'", "`modulus`"),
        ("chain", "modulus = 1", "`modulus`"),
        ("chain", "every = 0", "`every`"),
        ("worked_chain", "max = 0", "`max`"),
        ("worked_chain", "steps = false", "`steps`"),
        ("countdown", "max_numbers = 9", "`max_numbers`"),
        ("countdown", "min_numbers = 5", "`min_numbers`"),
        ("countdown", "max_target = 79", "`max_target`"),
        ("countdown", "max_number = 1", "`max_number`"),
        ("brackets", "kinds = 5", "`kinds`"),
        ("brackets", "min_length = 9", "`max_length`"),
        ("guess_number", "min = 100", "`min`"),
        ("guess_number", "max_turns = 0", "`max_turns`"),
        ("guess_number", "turn_cost = 1.5", "`turn_cost`"),
        ("guess_number", "turn_cost = nan", "`turn_cost`"),
    ] {
        let message = refused(name, options);
        assert!(message.contains(&format!("options of task `{name}`")) && message.contains(key), "{message}");
    }
}
