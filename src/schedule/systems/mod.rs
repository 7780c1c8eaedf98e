//! Published systems as values: each a point of the space of schedules with what it learns by.
//!
//! A file holds one system: its rule, its source, its invariants, and which of its numbers are public. Sizes that no
//! source gives follow from the batch. [`SYSTEMS`] lists them all.

mod april;
mod areal;
mod deepseek_v4_1;
mod glm_sao;
mod impala;
mod kimi_k1_5;
mod kimi_k3;
mod layer;
mod mimo_v2_6;
mod one_step;
mod sync;

use super::flow::FlowSettings;
pub use layer::lay_over;

/// A system: its schedule, and what it learns by.
#[derive(Debug, Clone, Copy)]
pub struct System {
    /// Its name in configurations.
    pub name: &'static str,
    /// Its name in the literature.
    pub title: &'static str,
    /// Where it is described.
    pub source: &'static str,
    /// Its objective, as `forebay objectives` names it where it is one of the token workload's.
    pub objective: &'static str,
    /// Its advantage.
    pub advantage: &'static str,
    /// How losses of tokens are added up.
    pub aggregation: &'static str,
    /// Its discount (γ).
    pub gamma: f64,
    /// The same as settings of a token run, below `learner`; empty for what is none.
    pub learner: &'static str,
    /// What its description leaves open and this crate decided.
    pub reading: &'static str,
    /// Its schedule with B groups a batch of G members each.
    schedule: fn(u64, u32) -> FlowSettings,
    /// Groups of a batch and members of a group in its description, or ours.
    sizes: (u64, u32),
}

/// All systems, in the order of their publication after the two baselines.
pub const SYSTEMS: [System; 10] = [
    sync::SYSTEM,
    impala::SYSTEM,
    one_step::SYSTEM,
    kimi_k1_5::SYSTEM,
    april::SYSTEM,
    areal::SYSTEM,
    deepseek_v4_1::SYSTEM,
    glm_sao::SYSTEM,
    mimo_v2_6::SYSTEM,
    kimi_k3::SYSTEM,
];

impl System {
    /// The system of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SYSTEMS.iter().find(|system| system.name == name)
    }

    /// Its schedule, in its own sizes.
    #[must_use]
    pub fn settings(&self) -> FlowSettings {
        (self.schedule)(self.sizes.0, self.sizes.1)
    }

    /// Its schedule with batches of other sizes: B groups of G members. Pools, buffers and quotas follow.
    #[must_use]
    pub fn sized(&self, batch: u64, group_size: u32) -> FlowSettings {
        (self.schedule)(batch, group_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::check::ScheduleContext;

    #[test]
    fn every_system_is_a_schedule_without_contradictions() {
        for system in SYSTEMS {
            let context = ScheduleContext {
                group_relative: system.advantage.contains("group"),
                whole_answers: false,
                ..ScheduleContext::default()
            };
            for settings in [system.settings(), system.sized(4, system.settings().group_size)] {
                assert_eq!(settings.check(context), Ok(()), "{}", system.name);
            }
            assert_eq!(System::named(system.name).map(|found| found.title), Some(system.title));
        }
    }

    #[test]
    fn a_schedule_survives_being_written_and_read() {
        for system in SYSTEMS {
            let text = toml::to_string(&system.settings()).unwrap();
            assert_eq!(toml::from_str::<FlowSettings>(&text).unwrap(), system.settings(), "{text}");
        }
    }
}
