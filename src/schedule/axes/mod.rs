//! The axes of the space of schedules: what a system may choose, one small type a file.
//!
//! A system is one point of this space ([`super::systems`]); [`super::flow`] is the scheduler that follows any point,
//! and `FlowSettings::check` refuses the points that contradict themselves. The types here hold settings and pure
//! rules; what changes during a run is the scheduler's.

mod admission;
mod consume;
mod dispatch;
mod interrupt;
mod layout;
mod mixer;
mod order;
mod push;
mod repetition;
mod resume;
mod round_end;
mod sources;
mod throttle;

pub use admission::{AdmissionCount, AdmissionRules};
pub use consume::{ConsumeFilter, ShortDrop, TokenMask};
pub use dispatch::Dispatch;
pub use interrupt::{Interrupt, OnUpdate};
pub use layout::Layout;
pub use mixer::{MixerConfig, MixerState};
pub use order::ConsumeOrder;
pub(in crate::schedule) use push::PushView;
pub use push::WeightPush;
pub use repetition::RepetitionStop;
pub use resume::Resume;
pub use round_end::{Refill, RoundEnd, exact_ceiling};
pub use sources::{SourceConfig, SourceQueue};
pub use throttle::{EngineLoad, ThrottleConfig, ThrottleState};
