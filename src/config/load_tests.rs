//! Every kind of fault gives one message with the place, the full path and what to do.

use super::super::sample::{Evaluation, Mode, Optimizer, Sample, Sgd, Sink};
use super::*;

fn read(text: &str, overrides: &[&str]) -> Result<Sample, ConfigError> {
    let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().unwrap()).collect();
    load(text, "run.toml", &overrides)
}

fn message(text: &str, overrides: &[&str]) -> String {
    read(text, overrides).unwrap_err().to_string()
}

#[test]
fn an_empty_document_gives_the_defaults() {
    assert_eq!(read("", &[]).unwrap(), Sample::default());
}

#[test]
fn the_written_default_reads_back_as_itself() {
    let text = toml::to_string(&Sample::default()).unwrap();
    assert_eq!(read(&text, &[]).unwrap(), Sample::default());
}

#[test]
fn a_document_and_its_overrides_are_read() {
    let text = "
seed = 1
widths = [8]
learner.gamma = 1
sink = { file = { path = 'm' } }
options = { free = [1, 'x'] }
[learner.optimizer]
kind = 'sgd'
learning_rate = 1
[evaluations.easy]
episodes = 3
[[stages]]
episodes = 1
";
    let sample =
        read(text, &["seed=2", "learner.mode=when_full", "seed=3", "evaluations.hard.episodes=7"]).unwrap();
    assert_eq!(sample.seed, 3);
    assert_eq!(sample.learner.mode, Mode::WhenFull);
    assert_eq!(sample.learner.optimizer, Optimizer::Sgd(Sgd { learning_rate: 1.0, bits: 0 }));
    assert!(matches!(sample.sink, Sink::File(file) if file.path == "m"));
    assert_eq!(sample.evaluations["hard"], Evaluation { episodes: 7, env: None });
    assert_eq!(sample.stages.len(), 1);
}

#[test]
fn a_table_that_names_no_variant_keeps_the_default_one() {
    let expected = Optimizer::Adam { learning_rate: 0.5, betas: None };
    assert_eq!(read("", &["learner.optimizer.learning_rate=0.5"]).unwrap().learner.optimizer, expected);
    assert_eq!(read("[learner.optimizer]\nlearning_rate = 0.5", &[]).unwrap().learner.optimizer, expected);
}

#[test]
fn broken_toml_names_line_and_column() {
    assert!(message("seed = 1\nseed = ", &[]).starts_with("run.toml:2:8: not valid TOML: "));
    assert!(message("a = 1\n\n  = 3", &[]).starts_with("run.toml:3:3: not valid TOML: "));
    assert!(message("seed = 1\nseed = 2", &[]).starts_with("run.toml:2:1: not valid TOML: duplicate key"));
    assert!(message("[learner", &[]).starts_with("run.toml:1:"));
}

#[test]
fn an_unknown_field_names_the_nearest() {
    assert_eq!(
        message("# seeds\nsede = 1", &[]),
        "run.toml:2:1: unknown field `sede`; did you mean `seed`? (expected one of `seed`, `learner`, `max_lag`, \
         `widths`, `range`, `options`, `evaluations`, `stages`, `last`, `sink`)"
    );
    assert_eq!(
        message("[learner]\n  gama = 0.9", &[]),
        "run.toml:2:3: unknown field `learner.gama`; did you mean `gamma`? (expected one of `gamma`, `normalise`, \
         `optimizer`, `mode`)"
    );
    assert_eq!(
        message("stages = [{ episodes = 1 }, { episodes = 1, envs = 'x' }]", &[]),
        "run.toml:1:45: unknown field `stages[1].envs`; did you mean `env`? (expected `episodes` or `env`)"
    );
}

#[test]
fn an_unknown_field_is_found_inside_tagged_and_other_enums() {
    assert_eq!(
        message("[learner.optimizer]\nkind = 'adam'\nlearningrate = 1.0", &[]),
        "run.toml:3:1: unknown field `learner.optimizer.learningrate`; with kind = \"adam\", did you mean \
         `learning_rate`? (expected `learning_rate` or `betas`)"
    );
    assert_eq!(
        message("[learner.optimizer]\nkind = 'frozen'\nbits = 1", &[]),
        "run.toml:3:1: unknown field `learner.optimizer.bits`; with kind = \"frozen\", nothing can be set here"
    );
    assert_eq!(
        message("[sink.file]\npath = 'x'\nmode = 1", &[]),
        "run.toml:3:1: unknown field `sink.file.mode`; expected `path`"
    );
}

#[test]
fn a_wrong_type_names_what_was_expected_and_found() {
    assert_eq!(
        message("seed = 'x'", &[]),
        "run.toml:1:8: wrong value of `seed`: expected integer >= 0, found the string \"x\""
    );
    assert_eq!(
        message("[learner.optimizer]\nkind = 'adam'\nlearning_rate = true", &[]),
        "run.toml:3:17: wrong value of `learner.optimizer.learning_rate`: expected number, found true"
    );
    assert_eq!(
        message("widths = [1, 2.5]", &[]),
        "run.toml:1:14: wrong value of `widths[1]`: expected integer >= 0, found 2.5"
    );
    assert_eq!(
        message("range = [1, 2, 3]", &[]),
        "run.toml:1:9: wrong value of `range`: expected array of 2 elements (number, number), found an array of 3 \
         elements"
    );
    assert_eq!(
        message("learner = 3", &[]),
        "run.toml:1:11: wrong value of `learner`: expected table with gamma, normalise, optimizer, mode, found 3"
    );
    assert!(
        message("last = { episodes = 1, env = 5 }", &[])
            .ends_with("expected string, found 5; put it in quotes")
    );
}

#[test]
fn a_value_out_of_bounds_is_refused() {
    assert_eq!(
        message("[learner]\ngamma = 1.5", &[]),
        "run.toml:2:9: wrong value of `learner.gamma`: expected number from 0 to 1, found 1.5"
    );
    assert!(message("learner.gamma = nan", &[]).ends_with("expected number from 0 to 1, found nan"));
    assert!(message("seed = -1", &[]).ends_with("expected integer >= 0, found -1"));
    assert!(
        message("widths = []", &[])
            .ends_with("expected array of integer >= 0, length >= 1, found an array of 0 elements")
    );
    let optimizer = "learner.optimizer = { kind = 'sgd', learning_rate = 1, bits = 300 }";
    assert!(
        message(optimizer, &[])
            .ends_with("`learner.optimizer.bits`: expected integer from 0 to 255, found 300")
    );
}

#[test]
fn a_missing_field_names_its_table() {
    assert_eq!(
        message("seed = 1\n[evaluations.easy]\nenv = 'x'", &[]),
        "run.toml:2:14: missing field `evaluations.easy.episodes`; set it to: integer >= 0"
    );
    assert_eq!(
        message("learner.optimizer = { kind = 'sgd' }", &[]),
        "run.toml:1:9: missing field `learner.optimizer.learning_rate`; set it to: number"
    );
}

#[test]
fn an_unknown_choice_names_the_nearest() {
    assert_eq!(
        message("[learner]\nmode = 'whenfull'", &[]),
        "run.toml:2:8: unknown value `whenfull` of `learner.mode`; did you mean `when_full`? (expected `eager` or \
         `when_full`)"
    );
    assert_eq!(
        message("[learner.optimizer]\nkind = 'adan'", &[]),
        "run.toml:2:8: unknown value `adan` of `learner.optimizer.kind`; did you mean `adam`? (expected one of \
         `adam`, `sgd`, `frozen`)"
    );
    assert_eq!(
        message("sink = 'fil'", &[]),
        "run.toml:1:8: unknown value `fil` of `sink`; did you mean `file`? (expected `off` or `file`)"
    );
}

#[test]
fn an_override_is_named_instead_of_a_line() {
    let text = "[learner]\ngamma = 0.5";
    assert!(
        message(text, &["learner.gama=1"])
            .starts_with("`--set learner.gama=1`: unknown field `learner.gama`")
    );
    assert!(
        message(text, &["learner.gamma=x"])
            .starts_with("`--set learner.gamma=x`: wrong value of `learner.gamma`")
    );
    assert!(
        message("", &["last={env=\"x\"}"])
            .starts_with("`--set last={env=\"x\"}`: missing field `last.episodes`")
    );
    assert_eq!(
        message(text, &["learner.gamma.x=1"]),
        "`--set learner.gamma.x=1`: `learner.gamma` is not a table (run.toml:2:1)"
    );
    // An override replaces the value that the file had wrong.
    assert_eq!(read("seed = 'x'", &["seed=4"]).unwrap().seed, 4);
}

#[test]
fn what_only_the_deserialiser_knows_still_has_a_place() {
    #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Listening {
        inner: Address,
    }
    #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Address {
        #[schemars(with = "String")]
        listen: Option<std::net::SocketAddr>,
    }
    let error = load::<Listening>("[inner]\nlisten = 'nowhere'", "run.toml", &[]).unwrap_err();
    assert_eq!(error.to_string(), "run.toml:2:10: `inner.listen`: invalid socket address syntax");
}

#[test]
fn a_later_check_can_name_the_lines_of_both_fields() {
    let overrides = ["learner.gamma=0.5".parse().unwrap()];
    let source = Source::parse("seed = 1\n[learner]\n  normalise = false", "run.toml", &overrides).unwrap();
    assert_eq!(source.line_of("seed"), Some((1, 1)));
    assert_eq!(source.line_of("learner"), Some((2, 2)));
    assert_eq!(source.line_of("learner.normalise"), Some((3, 3)));
    assert_eq!(source.line_of("learner.gamma"), None);
    assert_eq!(source.line_of("widths"), None);
    let error = source.error(&["learner.normalise", "learner.gamma", "widths"], "they contradict each other");
    assert_eq!(
        error.to_string(),
        "`learner.normalise` (run.toml:3:3) and `learner.gamma` (`--set learner.gamma=0.5`) and `widths` (left at its \
         default): they contradict each other"
    );
}

#[test]
fn columns_count_characters_not_bytes() {
    assert!(
        message("options = { 'ä' = 1 }\nlearner = { 'ö' = 1 }", &[])
            .starts_with("run.toml:2:13: unknown field")
    );
}
