//! What a system lays under a configuration, and what is refused.

use crate::config::{RunConfig, Source, TokenConfig};
use crate::env::task::TaskRegistry;
use crate::schedule::ScheduleConfig;
use crate::schedule::axes::{ConsumeOrder, RoundEnd, TokenMask};
use crate::schedule::flow::FlowSettings;
use crate::schedule::systems::{SYSTEMS, System};

fn read(text: &str) -> Result<TokenConfig, String> {
    let source = Source::parse(text, "run.toml", &[]).unwrap();
    match RunConfig::read(&source) {
        Ok(RunConfig::Token(config)) => Ok(*config),
        Ok(RunConfig::Control(config)) => Err(format!("a control run: {:?}", config.system)),
        Err(error) => Err(error.to_string()),
    }
}

fn refused(text: &str) -> String {
    let config = read(&format!("stop.updates = 1\n{text}")).unwrap();
    config.check(&TaskRegistry::builtin()).unwrap_err().to_string()
}

#[test]
fn every_system_of_token_runs_is_its_own_schedule_in_the_sizes_that_are_given_and_passes_all_checks() {
    for system in SYSTEMS.iter().filter(|system| !system.learner.is_empty()) {
        let own = system.settings();
        let members = own.group_size.min(4);
        let critic = if system.name == "glm_sao" { "learner.critic.trunk = 'separate'" } else { "" };
        let text = format!(
            "system = '{}'\nlearner.prompts = 6\nlearner.group_size = {members}\ngenerate.max_new_tokens = 40\n\
             generate.engine.record_experts = true\nstop.updates = 1\n{critic}",
            system.name
        );
        let config = read(&text).unwrap();
        config.check(&TaskRegistry::builtin()).unwrap_or_else(|error| panic!("{}: {error}", system.name));
        let mut expected = system.sized(6, members);
        if let RoundEnd::Budget { tokens } = &mut expected.round_end {
            *tokens = 10;
        }
        if expected.consume.mask == TokenMask::Old {
            expected.consume.mask = TokenMask::LagAbove { lag: 0 };
        }
        assert_eq!(config.flow().unwrap(), expected, "{}", system.name);
        // What was resolved means the same when it is read again.
        let written = toml::to_string(&config).unwrap();
        assert_eq!(read(&written).unwrap(), config, "{written}");
    }
}

#[test]
fn what_a_configuration_says_itself_holds_and_the_rest_is_the_systems() {
    let config = read(
        "system = 'areal'\nschedule.admission.lead = 2\nlearner.max_lag = 6\n\
         learner.loss.objective = { kind = 'ppo', clip_high = 0.3 }",
    )
    .unwrap();
    let areal = System::named("areal").unwrap().settings();
    let flow = config.flow().unwrap();
    assert_eq!((flow.admission.lead, flow.consume.max_head_lag), (Some(2), Some(6)));
    assert_eq!((flow.order, flow.interrupt), (ConsumeOrder::OldestReady, areal.interrupt));
    assert_eq!(config.learner.prompts as u64, areal.batch);
    assert_eq!(config.learner.loss.objective.kind(), "ppo");
}

#[test]
fn the_loss_of_a_system_is_its_objectives_and_does_not_hold_for_another() {
    let own = read("system = 'kimi_k1_5'").unwrap().learner;
    assert_eq!((own.loss.objective.kind(), own.refresh_reference), ("k15", Some(1)));
    for kind in ["grpo", "ppo"] {
        let text = format!(
            "system = 'kimi_k1_5'\nlearner.loss.objective.kind = '{kind}'\nlearner.prompts = 6\nstop.updates = 1"
        );
        let config = read(&text).unwrap();
        assert_eq!((config.learner.loss.objective.kind(), config.learner.refresh_reference), (kind, None));
        config.check(&TaskRegistry::builtin()).unwrap();
    }
}

#[test]
fn axes_can_be_written_without_a_system() {
    let config = read(
        "[schedule]\nkind = 'axes'\ninterrupt = 'token'\ndispatch = { unit = 'sample' }\n\
         round_end = { rule = 'groups', submit = 12 }",
    )
    .unwrap();
    let flow = config.flow().unwrap();
    assert_eq!(flow.round_end, RoundEnd::Groups { submit: 12 });
    assert_eq!(FlowSettings { round_end: RoundEnd::Batch, ..flow }.layout, FlowSettings::default().layout);
    assert!(matches!(config.schedule, ScheduleConfig::Axes(_)));
}

#[test]
fn the_system_of_control_runs_is_one_of_these() {
    assert!(read("system = 'impala'").unwrap_err().contains("a control run: Some(Impala)"));
    let message = read("system = 'impala'\n[task]\nname = 'copy'").unwrap_err();
    assert!(message.contains("no such system of token runs") && message.contains("areal"), "{message}");
}

#[test]
fn an_unknown_system_and_a_schedule_beside_one_are_refused_with_the_fields() {
    let message = read("[task]\nname = 'copy'\n[stop]\nupdates = 1").map(|config| config.system);
    assert_eq!(message, Ok(None));
    let message = read("system = 'aprl'").unwrap_err();
    assert!(message.contains("`system`") && message.contains("april"), "{message}");
    let message = read("system = 'april'\nschedule.kind = 'one_step'").unwrap_err();
    assert!(message.contains("`system`") && message.contains("`schedule.kind`"), "{message}");
}

#[test]
fn axes_that_are_wrong_set_elsewhere_or_not_of_a_run_are_refused_with_their_names() {
    for (text, expected) in [
        ("schedule = { kind = 'axes', batch = 4 }", "learner.prompts"),
        ("schedule = { kind = 'axes', consume = { max_head_lag = 3 } }", "learner.max_lag"),
        ("schedule = { kind = 'axes', interupt = 'token' }", "interupt"),
        ("schedule = { kind = 'axes', round_end = { rule = 'budget' } }", "schedule.round_end"),
        ("schedule = { kind = 'axes', round_end = { rule = 'budget', tokens = 4 } }", "schedule.interrupt"),
        ("system = 'areal'\nlearner.group_size = 1", "learner.group_size"),
        ("system = 'kimi_k3'\nlearner.minibatches = 2", "learner.minibatches"),
        (
            "system = 'glm_sao'\nschedule.interrupt = 'none'\nlearner.critic.trunk = 'separate'",
            "schedule.push",
        ),
        ("system = 'deepseek_v4_1'", "generate.engine.record_experts"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}
