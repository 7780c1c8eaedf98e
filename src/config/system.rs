//! `system = "NAME"`: what a published system chooses, laid under what a configuration says.
//!
//! A system chooses its schedule, its sizes and what it learns by. Everything that the configuration says itself holds
//! instead; what comes out says every choice, so that it means the same when it is read again.

use toml::{Table, Value};

use super::{ConfigError, GenerateConfig, Source};
use crate::schedule::axes::{RoundEnd, TokenMask};
use crate::schedule::flow::FlowSettings;
use crate::schedule::systems::{SYSTEMS, System, lay_over};

/// The field that names a system.
pub(super) const FIELD: &str = "system";

/// Lays the choices of the system that a document of a token run names under it.
///
/// # Errors
/// When there is no such system, or it is not one of token runs, or the schedule is given in another way too.
pub(super) fn expand(source: &mut Source) -> Result<(), ConfigError> {
    let Some(name) = source.document().get(FIELD) else { return Ok(()) };
    let system = name.as_str().and_then(System::named);
    let Some(system) = system.filter(|system| !system.learner.is_empty()) else {
        let known: Vec<&str> =
            SYSTEMS.iter().filter(|system| !system.learner.is_empty()).map(|system| system.name).collect();
        let why = format!("there is no such system of token runs; there are: {}", known.join(", "));
        return Err(source.error(&[FIELD], why));
    };
    let kind = source.document().get("schedule").and_then(|schedule| schedule.get("kind"));
    if kind.is_some_and(|kind| kind.as_str() != Some("axes")) {
        let why = "the one chooses a schedule and so does the other; leave one of them away";
        return Err(source.error(&[FIELD, "schedule.kind"], why));
    }
    let under = chosen(system, source.document()).map_err(|why| source.error(&[FIELD], why))?;
    source.lay_under(under);
    Ok(())
}

/// The objective that settings of a learner name.
fn objective(learner: &Table) -> Option<&str> {
    learner.get("loss")?.get("objective")?.get("kind")?.as_str()
}

/// What a system chooses, in the sizes that a document gives.
fn chosen(system: &System, document: &Table) -> Result<Table, String> {
    let learner = document.get("learner");
    let size = |name: &str, own: u64| {
        let given = learner.and_then(|learner| learner.get(name)).and_then(Value::as_integer);
        given.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0).unwrap_or(own)
    };
    let own = system.settings();
    let (batch, group_size) = (size("prompts", own.batch), size("group_size", u64::from(own.group_size)));
    let mut settings = system.sized(batch, u32::try_from(group_size).unwrap_or(u32::MAX));
    if let RoundEnd::Budget { tokens } = &mut settings.round_end {
        // A round's budget is a share of the longest answer, and so depends on what that is here.
        let longest = document.get("generate").and_then(|generate| generate.get("max_new_tokens"));
        let longest = longest.and_then(Value::as_integer).and_then(|longest| u64::try_from(longest).ok());
        *tokens = longest.unwrap_or(GenerateConfig::default().max_new_tokens as u64).div_ceil(4).max(1);
    }
    let given = learner.and_then(Value::as_table).and_then(objective);
    let mut learner: Table = system.learner.parse().map_err(|error| format!("{}: {error}", system.name))?;
    if given.is_some_and(|given| objective(&learner) != Some(given)) {
        // The rest of a system's loss is made for its objective; another one's own defaults hold.
        for name in ["loss", "refresh_reference"] {
            learner.remove(name);
        }
    }
    learner.insert("prompts".into(), Value::Integer(batch as i64));
    learner.insert("group_size".into(), Value::Integer(group_size as i64));
    let consume = &settings.consume;
    let age = match consume.mask {
        TokenMask::None => None,
        TokenMask::Old => Some(0),
        TokenMask::LagAbove { lag } => Some(lag),
    };
    for (name, bound) in [("max_lag", consume.max_head_lag), ("max_token_age", age)] {
        if let Some(bound) = bound {
            learner.insert(name.into(), Value::Integer(bound as i64));
        }
    }
    if consume.zero_advantage {
        learner.insert("drop_zero_variance".into(), Value::Boolean(true));
    }
    let mut schedule = changed_axes(&settings)?;
    schedule.insert("kind".into(), Value::String("axes".into()));
    let mut table = Table::new();
    table.insert("learner".into(), Value::Table(learner));
    table.insert("schedule".into(), Value::Table(schedule));
    Ok(table)
}

/// Axes in which a schedule is not the synchronous one, but for those that are the learner's settings.
fn changed_axes(settings: &FlowSettings) -> Result<Table, String> {
    let table = |settings: &FlowSettings| Table::try_from(settings).map_err(|error| error.to_string());
    let standard = table(&FlowSettings::default())?;
    let mut axes = table(settings)?;
    for name in ["batch", "group_size"] {
        axes.remove(name);
    }
    if let Some(Value::Table(consume)) = axes.get_mut("consume") {
        consume.retain(|name, _| name == "short_drop");
    }
    axes.retain(|name, value| match value {
        Value::Table(table) if name == "consume" => !table.is_empty(),
        value => standard.get(name) != Some(value),
    });
    Ok(axes)
}

impl Source {
    /// Puts values where the document has none.
    fn lay_under(&mut self, mut under: Table) {
        lay_over(&mut under, self.document());
        self.replace_document(under);
    }
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
