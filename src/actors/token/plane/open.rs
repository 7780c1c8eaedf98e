//! A group that is not complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::records::{Ended, GroupKey, Member};
use crate::actors::token::efforts::Asked;
use crate::env::task::Problem;
use crate::trajectory::{Trajectory, TrajectoryId};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Open {
    /// The problem.
    pub(super) problem: Arc<Problem>,
    /// It as it is asked, at each effort.
    pub(super) asked: Vec<Asked>,
    /// Members that have ended.
    pub(super) members: BTreeMap<u16, Ended>,
    /// Which generator has it; `None` while it waits for one.
    pub(super) owner: Option<usize>,
    /// How often it was begun anew.
    pub(super) attempt: u16,
    /// Answers that it is made of, since it was opened.
    pub(super) size: usize,
}

impl Open {
    /// The problem as a member is asked it.
    pub(super) fn asked(&self, member: u16) -> &Asked {
        &self.asked[usize::from(member) % self.asked.len()]
    }

    /// Whether all of its members have ended.
    pub(super) fn is_whole(&self) -> bool {
        self.members.len() == self.size
    }

    /// The members that have not ended, none of them begun.
    pub(super) fn members_to_come(&self, key: GroupKey) -> Vec<Member> {
        let to_come = (0..self.size as u16).filter(|member| !self.members.contains_key(member));
        let member = |member| {
            let id = TrajectoryId { epoch: key.0, prompt: key.1, member, attempt: self.attempt };
            let asked = self.asked(member);
            Member {
                problem: Arc::clone(&asked.problem),
                trajectory: Trajectory::new(id, Arc::clone(&asked.prompt)),
                begun: false,
            }
        };
        to_come.map(member).collect()
    }
}
