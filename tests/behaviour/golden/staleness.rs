//! Decisions of the rollout schedules, event by event: admission by lead, credit by samples, draws of groups, rounds that end
//! with a share of their answers; and the lags of tokens.
//!
//! The scheduler is driven as by an engine: what a log calls an event is one or more of the scheduler's, and what it calls a
//! decision is read from the commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::schedule::axes::{AdmissionRules, Refill, RoundEnd, SourceConfig, exact_ceiling};
use forebay::schedule::flow::{FlowCommand, FlowEvent, FlowScheduler, FlowSettings, MemberId, Stretch};
use forebay::schedule::systems::System;
use forebay::schedule::{Admission, Lags};
use forebay::trajectory::{Trajectory, TrajectoryId, Version};
use serde_json::{Value, json};

use super::golden_file;

fn system(name: &str, batch: u64, group_size: u32) -> FlowSettings {
    System::named(name).unwrap().sized(batch, group_size)
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

fn ended(group: u64, member: u32) -> FlowEvent {
    let stretches = vec![Stretch { version: 0, tokens: 1 }];
    FlowEvent::Finished { id: MemberId { group, member }, stretches }
}

fn areal_admission(case: &Value) -> Vec<Value> {
    let params = &case["params"];
    let most = params["max_concurrent"].as_u64();
    let mut admission = Admission::new(count(&params["batch_size"]), count(&params["eta"]), most);
    let events = case["inputs"]["events"].as_array().unwrap();
    let step = |event: &Value| {
        let capacity = admission.capacity();
        let mut admit = Value::Null;
        match event["event"].as_str().unwrap() {
            "request" => {
                admit = json!(capacity > 0);
                if capacity > 0 {
                    admission.start();
                }
            }
            "accept" => admission.accept(),
            "reject" => admission.reject(),
            "version" => admission.advance(),
            "recover" => admission.recover(count(&event["version"])),
            other => panic!("unknown event {other}"),
        }
        json!({
            "capacity_before": capacity, "admit": admit, "version": admission.version(),
            "accepted": admission.accepted(), "running": admission.running(),
        })
    };
    events.iter().map(step).collect()
}

fn lags(case: &Value) -> Vec<Value> {
    let version = count(&case["params"]["version"]);
    let of = |given: &Value| {
        let versions: Vec<u64> = given["versions"].as_array().unwrap().iter().map(count).collect();
        let actions: Vec<bool> =
            given["is_action"].as_array().unwrap().iter().map(|flag| count(flag) == 1).collect();
        let lags = Lags::of(version, &versions, &actions);
        let mut trajectory = Trajectory::new(TrajectoryId::default(), Arc::from([]));
        for (version, action) in versions.iter().zip(&actions) {
            match action {
                true => trajectory.push_action(0, 0.0, Version(*version)),
                false => trajectory.push_observation(&[0], Version(*version)),
            }
        }
        let segments = trajectory.segments();
        let segments: Vec<[u64; 3]> = segments
            .iter()
            .map(|segment| [segment.tokens.start as u64, segment.tokens.len() as u64, segment.version.0])
            .collect();
        json!({
            "token_lag": lags.tokens, "head_lag": lags.head, "max_action_lag": lags.head,
            "mean_action_lag": lags.mean, "old_action_tokens": lags.old, "old_fraction": lags.old_fraction,
            "version_span": lags.span, "segments": segments,
        })
    };
    case["inputs"]["trajectories"].as_array().unwrap().iter().map(of).collect()
}

fn sample_credit(case: &Value) -> Vec<Value> {
    let queue = case["inputs"]["queue"].as_array().unwrap();
    let mut names: Vec<&str> = queue.iter().map(|prompt| prompt["dataset"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    let group_size = |name: &str| {
        let prompt = queue.iter().find(|prompt| prompt["dataset"] == name).unwrap();
        count(&prompt["group_size"]) as u32
    };
    let source = |name: &&str| SourceConfig {
        name: (*name).to_owned(),
        cap: case["params"]["dataset_caps"][*name].as_u64(),
        group_size: Some(group_size(name)),
        ..SourceConfig::default()
    };
    let settings = FlowSettings {
        // No update is made.
        batch: 1000,
        sources: names.iter().map(source).collect(),
        admission: AdmissionRules { pool: case["params"]["capacity"].as_u64(), ..AdmissionRules::default() },
        ..system("deepseek_v4_1", 1000, 4)
    };
    let mut scheduler = FlowScheduler::new(settings);
    let place = |prompt: &Value| names.iter().position(|name| prompt["dataset"] == *name).unwrap();
    let order = queue.iter().map(|prompt| place(prompt) as u32).collect();
    scheduler.on(FlowEvent::Offered { sources: order }, 0.0);
    // Prompts of a source are taken in their order.
    let mut waiting: Vec<Vec<&str>> = vec![Vec::new(); names.len()];
    for prompt in queue.iter().rev() {
        waiting[place(prompt)].push(prompt["prompt"].as_str().unwrap());
    }
    let mut groups: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    let mut steps = Vec::new();
    for event in case["inputs"]["events"].as_array().unwrap() {
        let event = match event["prompt"].as_str() {
            None => FlowEvent::Started,
            Some(prompt) => {
                let (group, next) = groups.get_mut(prompt).unwrap();
                *next += 1;
                ended(*group, *next - 1)
            }
        };
        let mut dispatched = Vec::new();
        for command in scheduler.on(event, 0.0) {
            if let FlowCommand::Launch { group, source, .. } = command {
                let prompt = waiting[source as usize].pop().unwrap();
                groups.insert(prompt.to_owned(), (group, 0));
                dispatched.push(prompt);
            }
        }
        let live = scheduler.in_flight();
        let by_name: BTreeMap<&str, u64> = names
            .iter()
            .zip(live)
            .filter(|(_, live)| **live > 0)
            .map(|(name, live)| (*name, *live))
            .collect();
        steps.push(json!({
            "dispatched": dispatched, "credit": scheduler.credit(), "live": live.iter().sum::<u64>(),
            "live_by_dataset": by_name,
        }));
    }
    steps
}

/// A driver of groups by the names of a log.
struct Named {
    scheduler: FlowScheduler,
    names: BTreeMap<u64, String>,
    fresh: u64,
    prefix: &'static str,
    commands: Vec<FlowCommand>,
}

impl Named {
    fn new(settings: FlowSettings, prefix: &'static str) -> Self {
        let scheduler = FlowScheduler::new(settings);
        Self { scheduler, names: BTreeMap::new(), fresh: 0, prefix, commands: Vec::new() }
    }

    /// Tells, and gives new groups the next names.
    fn tell(&mut self, event: FlowEvent) {
        let commands = self.scheduler.on(event, 0.0);
        for command in &commands {
            if let FlowCommand::Launch { group, .. } = command {
                self.names.insert(*group, format!("{}{}", self.prefix, self.fresh));
                self.fresh += 1;
            }
        }
        self.commands.extend(commands);
    }

    fn group(&self, name: &str) -> u64 {
        *self.names.iter().find(|(_, found)| *found == name).unwrap().0
    }

    fn named(&self, groups: &[u64]) -> Vec<String> {
        groups.iter().map(|group| self.names[group].clone()).collect()
    }

    fn member(&self, id: MemberId) -> String {
        format!("{}/{}", self.names[&id.group], id.member)
    }

    fn launched(&self) -> Vec<String> {
        let launched = self.commands.iter().filter_map(|command| match command {
            FlowCommand::Launch { group, .. } => Some(*group),
            _ => None,
        });
        self.named(&launched.collect::<Vec<_>>())
    }

    fn trained(&self) -> Option<Vec<u64>> {
        self.commands.iter().find_map(|command| match command {
            FlowCommand::Train { groups } => Some(groups.clone()),
            _ => None,
        })
    }

    /// The learner's turn is over: the next round begins.
    fn next_round(&mut self) {
        if self.scheduler.version() == 0 && self.scheduler.loaded().is_none() {
            return self.tell(FlowEvent::Started);
        }
        self.tell(FlowEvent::Published);
        if !self.commands.iter().any(|command| matches!(command, FlowCommand::Load { .. })) {
            self.tell(FlowEvent::Skipped);
        }
    }
}

fn april(case: &Value) -> Vec<Value> {
    let (accept, submit) = (count(&case["params"]["accept_groups"]), count(&case["params"]["submit_groups"]));
    let settings = FlowSettings { round_end: RoundEnd::Groups { submit }, ..system("april", accept, 1) };
    let mut driver = Named::new(settings, "d");
    let buffered = words(&case["inputs"]["buffer"]);
    if !buffered.is_empty() {
        // What a round before left over.
        assert_eq!(buffered.len() as u64, submit - accept);
        driver.tell(FlowEvent::Started);
        for group in 0..accept {
            driver.tell(ended(group, 0));
            driver.tell(FlowEvent::Graded { group, keep: true });
        }
        driver.names =
            (accept..submit).zip(&buffered).map(|(group, name)| (group, (*name).to_owned())).collect();
        driver.fresh = 0;
    }
    let mut accepted: Vec<u64> = Vec::new();
    let mut over = false;
    let mut steps = Vec::new();
    for event in case["inputs"]["events"].as_array().unwrap() {
        driver.commands.clear();
        let before = driver.scheduler.buffer();
        match event["event"].as_str().unwrap() {
            "round_start" => {
                (accepted, over) = (Vec::new(), false);
                driver.next_round();
            }
            "group_done" => {
                let group = driver.group(event["group"].as_str().unwrap());
                let keep = count(&event["keep"]) == 1;
                // One that ended while it waited is handed on when it is drawn.
                driver.tell(ended(group, 0));
                driver.tell(FlowEvent::Graded { group, keep });
                if keep {
                    accepted.push(group);
                }
                over = driver.trained().is_some();
                assert!(!over || driver.trained() == Some(accepted.clone()));
            }
            "surplus_done" => {
                let group = driver.group(event["group"].as_str().unwrap());
                driver.tell(ended(group, 0));
            }
            other => panic!("unknown event {other}"),
        }
        let buffer = driver.scheduler.buffer();
        let left: Vec<u64> = before.iter().copied().filter(|group| !buffer.contains(group)).collect();
        let came: Vec<u64> = buffer.iter().copied().filter(|group| !before.contains(group)).collect();
        steps.push(json!({
            "drawn_from_buffer": driver.named(&left), "drawn_from_data": driver.launched(),
            "pending": driver.scheduler.pending_in_round(), "accepted": driver.named(&accepted),
            "round_over": over, "aborted": driver.named(&came), "buffer": driver.named(&buffer),
        }));
    }
    steps
}

fn lambda_nk_pause(case: &Value) -> Vec<Value> {
    let params = &case["params"];
    let (prompts, group_size) = (count(&params["prompts"]), count(&params["group_size"]) as u32);
    let lambda = params["lambda"].as_f64().unwrap();
    let refill = if params["refill"] == "start_only" { Refill::StartOnly } else { Refill::Continuous };
    let settings = FlowSettings {
        round_end: RoundEnd::Fraction { lambda, min_ready: count(&params["min_ready_groups"]), refill },
        ..system("kimi_k3", prompts, group_size)
    };
    let settings =
        FlowSettings { admission: AdmissionRules { throttle: None, ..settings.admission }, ..settings };
    assert_eq!(exact_ceiling(lambda, settings.pool()), count(&case["expected"]["threshold"]));
    let mut driver = Named::new(settings, "g");
    let mut steps = Vec::new();
    for event in case["inputs"]["events"].as_array().unwrap() {
        driver.commands.clear();
        if event["event"] == "iteration_start" {
            driver.next_round();
        } else {
            let (name, member) = event["trajectory"].as_str().unwrap().split_once('/').unwrap();
            let group = driver.group(name);
            driver.tell(ended(group, member.parse().unwrap()));
            if driver.commands.contains(&FlowCommand::Grade { group }) {
                driver.tell(FlowEvent::Graded { group, keep: true });
            }
        }
        let resumed = driver.commands.iter().filter_map(|command| match command {
            FlowCommand::Resume { id } => Some(driver.member(*id)),
            _ => None,
        });
        let trained = driver.trained();
        let paused = driver.scheduler.paused().into_iter().map(|id| driver.member(id));
        steps.push(json!({
            "resumed": resumed.collect::<Vec<_>>(), "added_groups": driver.launched(),
            "done": driver.scheduler.done_in_round(), "live": driver.scheduler.live(),
            "ready": driver.named(&driver.scheduler.ready()), "pause": trained.is_some(),
            "train": driver.named(&trained.unwrap_or_default()), "paused": paused.collect::<Vec<_>>(),
        }));
    }
    steps
}

#[test]
fn golden_staleness() {
    let Some(file) = golden_file("staleness") else { return };
    if file["schema"] != 1 {
        println!("skipped: staleness.json has schema {}, not 1", file["schema"]);
        return;
    }
    let cases = file["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let (steps, expected) = match case["function"].as_str().unwrap() {
            "areal_admission" => (areal_admission(case), "steps"),
            "lags" => (lags(case), "trajectories"),
            "sample_credit" => (sample_credit(case), "steps"),
            "april" => (april(case), "steps"),
            "lambda_nk_pause" => (lambda_nk_pause(case), "steps"),
            other => panic!("staleness/{}: unknown function {other}", case["name"]),
        };
        let expected = case["expected"][expected].as_array().unwrap();
        assert_eq!(steps.len(), expected.len(), "{}", case["name"]);
        for (index, (step, expected)) in steps.iter().zip(expected).enumerate() {
            assert_eq!(step, expected, "{}, step {index}", case["name"]);
        }
    }
    println!("staleness: {} cases", cases.len());
}
