//! The token workload's actors: generators that sample answers, threads that grade them, the learner that learns from
//! groups of them, and a run as a whole.
//!
//! The ring is that of every run: [`generator`] → [`plane`] (graded groups, the schedule) →
//! [`queue`](super::queue::queue) → [`learner`] → [`ParameterBus`](super::parameter_bus::ParameterBus) → generator.
//! Supervision, queue, bus, checkpoints and telemetry are those of the control workload.

mod answers;
mod build;
pub mod checkpoint;
mod collect;
mod conversation;
mod corpus;
mod critic;
mod decoder_file;
mod demonstrations;
mod devices;
mod efforts;
mod engine_trace;
mod evaluation;
mod faults;
mod frozen;
pub mod generator;
mod grading;
mod journal;
mod language_model;
pub mod learner;
mod monitor;
mod placement;
pub mod plane;
mod pretrain;
mod reward_model;
pub mod run;
mod teachers;
mod train;
mod tree;
mod warmup;

pub use build::load_token_parameters;
pub use collect::{CollectOptions, Collected, Policy, collect};
pub use corpus::{Corpus, CorpusDescription, CorpusError};
pub use evaluation::{EvaluatedAnswer, Examinee, TokenEvaluation, TokenEvaluationConfig, evaluate_tokens};
pub use grading::{GradingConfig, Verdict, judge};
pub use language_model::LanguageModel;
pub use pretrain::{PretrainOptions, Pretraining, pretrain_value};
pub use reward_model::{RewardModelConfig, Rewarded};
pub use train::train_tokens;
