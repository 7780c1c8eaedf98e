//! The schedule of a token run, as one point of the space of schedules.
//!
//! What the space calls the filter of what is consumed is split: bounds on age and groups without variance are the
//! learner's settings, the rest is below `schedule.consume`.

use super::TokenConfig;
use super::check::{Contradiction, refuse};
use crate::schedule::axes::{Interrupt, RoundEnd, TokenMask, WeightPush};
use crate::schedule::flow::FlowSettings;
use crate::schedule::systems::lay_over;
use crate::schedule::{ScheduleConfig, ScheduleContext, ScheduleContradiction};

/// Axes that are set elsewhere, and where.
const ELSEWHERE: [(&str, &str); 5] = [
    ("batch", "learner.prompts"),
    ("group_size", "learner.group_size"),
    ("consume.max_head_lag", "learner.max_lag"),
    ("consume.mask", "learner.max_token_age"),
    ("consume.zero_advantage", "learner.drop_zero_variance"),
];

impl TokenConfig {
    /// What `schedule`, the sizes of a batch and the bounds on age come to.
    ///
    /// # Errors
    /// When an axis is unknown or out of its range.
    pub fn flow(&self) -> Result<FlowSettings, Contradiction> {
        let learner = &self.learner;
        let (batch, group_size) = (learner.prompts as u64, learner.group_size as u32);
        let mut settings = FlowSettings::of_kind(&self.schedule, batch, group_size, learner.forced_lag);
        if let ScheduleConfig::Axes(axes) = &self.schedule {
            settings = with_axes(&settings, &axes.0)?;
        }
        let consume = &mut settings.consume;
        consume.max_head_lag = learner.max_lag;
        consume.mask = learner.max_token_age.map_or(TokenMask::None, |lag| TokenMask::LagAbove { lag });
        consume.zero_advantage = learner.drop_zero_variance;
        Ok(settings)
    }

    /// Refuses a schedule that contradicts itself, the model or what is learned.
    pub(super) fn check_flow(&self) -> Result<(), Contradiction> {
        let settings = self.flow()?;
        let objective = &self.learner.loss.objective;
        let context = ScheduleContext {
            simulated: false,
            state_store: true,
            records_experts: self.generate.engine.record_experts,
            whole_answers: objective.takes_whole_sequences(),
            group_relative: self.learner.advantage.is_group_relative(),
        };
        settings.check(context).map_err(|contradiction| self.as_written(contradiction))?;
        let adopts = matches!(settings.push, WeightPush::Boundary | WeightPush::Behind { .. });
        if settings.interrupt == Interrupt::None && settings.round_end != RoundEnd::Batch && !adopts {
            return Err(refuse(
                &["schedule.interrupt", "schedule.push"],
                "new weights reach answers in flight, which are not to be interrupted; set interrupt = \"token\"",
            ));
        }
        if self.generate.release_memory == Some(true) && !settings.takes_turns() {
            let why = "generation goes on while the learner learns and needs its memory; leave the former out, or take a \
                       schedule in which they take turns";
            if self.learner.forced_lag.is_some() {
                return Err(refuse(&["generate.release_memory", "learner.forced_lag"], why));
            }
            let fields = vec!["generate.release_memory", "layout"];
            return Err(self.as_written(ScheduleContradiction { fields, why: why.into() }));
        }
        if matches!(settings.round_end, RoundEnd::Budget { .. } | RoundEnd::Fraction { .. })
            && self.learner.minibatches > 1
        {
            return Err(refuse(
                &["schedule.round_end", "learner.minibatches"],
                "a round ends with as many groups as are complete, which cannot be cut into a fixed number of parts; set \
                 learner.minibatches = 1",
            ));
        }
        Ok(())
    }

    /// A contradiction of the space of schedules with the names that its fields have here.
    fn as_written(&self, contradiction: ScheduleContradiction) -> Contradiction {
        let ScheduleContradiction { fields, why } = contradiction;
        let named = |field: &&str| {
            let elsewhere =
                ELSEWHERE.iter().find(|(axis, _)| axis == field).map(|(_, name)| (*name).to_owned());
            let table = field.split('.').next().unwrap_or_default();
            match (elsewhere, &self.schedule) {
                (Some(name), _) => name,
                _ if matches!(table, "learner" | "model" | "generate") => (*field).to_owned(),
                (None, ScheduleConfig::Axes(_)) => format!("schedule.{field}"),
                (None, _) => "schedule.kind".to_owned(),
            }
        };
        let mut names: Vec<String> = fields.iter().map(named).collect();
        names.dedup();
        Contradiction { fields: names, why }
    }
}

fn with_axes(settings: &FlowSettings, axes: &toml::Table) -> Result<FlowSettings, Contradiction> {
    let is_set = |path: &str| {
        let mut place = Some(&toml::Value::Table(axes.clone())).cloned();
        for key in path.split('.') {
            place = place.and_then(|value| value.get(key).cloned());
        }
        place.is_some()
    };
    if let Some((axis, name)) = ELSEWHERE.iter().find(|(axis, _)| is_set(axis)) {
        let why = format!("is not set here in a token run; set {name}");
        return Err(refuse(&[&format!("schedule.{axis}")], why));
    }
    let wrong = |field: String, why: &str| refuse(&[&field], why);
    let table = toml::Table::try_from(settings);
    let mut table = table.map_err(|error| wrong("schedule".into(), &error.to_string()))?;
    lay_over(&mut table, axes);
    serde_path_to_error::deserialize(toml::Value::Table(table))
        .map_err(|error| wrong(format!("schedule.{}", error.path()), error.inner().message().trim_end()))
}
