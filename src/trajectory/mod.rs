//! The records that travel from the actors to the learner, and the ledger that accounts for each of them.

mod fate;
mod ledger;
mod message;
mod tokens;
mod unroll;
mod version;

pub use fate::{TokenFate, TokenFates};
pub use ledger::{Amount, BufferedTicket, DropReason, Ledger, LedgerSnapshot, LiveTicket};
pub use message::Message;
pub use tokens::{Finish, Group, Reward, Segment, Trajectory, TrajectoryId};
pub use unroll::{EpisodeEnd, FinalObservation, Unroll, UnrollId};
pub use version::Version;
