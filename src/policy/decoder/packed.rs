//! Groups of trajectories as rows of one forward pass.
//!
//! A trajectory of prompt `p_0 … p_{m-1}` and answer `a_0 … a_{n-1}` takes the rows of `p_0 … p_{m-2}` (its prefix)
//! and of `p_{m-1}, a_0, …` up to the token before its last action (its own rows): own row j predicts `a_j`, so the
//! prompt's last token is each answer's own first row and the prefix can be packed once for all the answers of a
//! group.
//!
//! Invariants:
//! - every action of every trajectory is predicted by exactly one row of exactly one [`Pack`]; observations are
//!   seen, not predicted; what follows the last action is left out;
//! - a sequence is never split; a pack has no more rows than the budget unless it is one sequence that is longer;
//! - an action that was sampled among some tokens only is predicted among the same ones;
//! - a prompt is packed once for all its answers in a pack (members of a group may have several prompts; with forced
//!   experts: for those that recorded the same ones);
//! - packs depend on the groups and settings only, and are of much the same size: longest first, each to the
//!   emptiest.

use std::borrow::Borrow;

use thiserror::Error;

use crate::ops::{CandidateSets, Sequence};
use crate::trajectory::{Group, Trajectory};

/// What a pack may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Rows of a pack, prompts included (the token budget of a micro-batch).
    pub rows: usize,
    /// Experts recorded for a token, [`super::Decoder::experts_per_row`], to run those again; 0 lets the router
    /// choose.
    pub experts_per_row: usize,
}

/// Which token of which trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Index of the group.
    pub group: usize,
    /// Index among the group's members.
    pub member: usize,
    /// Index among the trajectory's tokens after the prompt.
    pub token: usize,
}

/// A micro-batch: N rows that run through the layers, P of which predict an action.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pack {
    /// Token ids, `[N]`.
    pub tokens: Vec<u32>,
    /// Position of each token in its sequence, `[N]`.
    pub positions: Vec<u32>,
    /// Which rows belong together.
    pub sequences: Vec<Sequence>,
    /// Experts to run, `[N, layers, experts a token]`; empty lets the router choose.
    pub experts: Vec<u16>,
    /// Rows that predict an action, `[P]`, ascending.
    pub rows: Vec<u32>,
    /// The action that each of them predicts, `[P]`.
    pub targets: Vec<u32>,
    /// Where that action is, `[P]`.
    pub places: Vec<Place>,
    /// Tokens that each of them was sampled among, P sets, an empty one meaning all; no sets when none was restricted.
    pub candidates: CandidateSets,
}

/// Why groups cannot be packed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum PackError {
    /// No row fits.
    #[error("the budget of rows of a pack is 0: give it at least 1")]
    NoRows,
    /// Nothing predicts the first token.
    #[error(
        "group {group}, member {member} has an empty prompt: begin it with a token, such as the one that starts a text"
    )]
    EmptyPrompt {
        /// Index of the group.
        group: usize,
        /// Index of the member.
        member: usize,
    },
    /// An array is not of the trajectory's length.
    #[error(
        "group {group}, member {member}: `{array}` has {found} entries where its tokens need {expected}: record all or none"
    )]
    Length {
        /// Index of the group.
        group: usize,
        /// Index of the member.
        member: usize,
        /// Name of the array.
        array: &'static str,
        /// Its length.
        found: usize,
        /// The length it should have.
        expected: usize,
    },
}

/// An answer with something to predict.
#[derive(Debug, Clone, Copy)]
struct Answer {
    member: usize,
    /// Own rows, which is the answer's length up to its last action.
    rows: usize,
}

/// Answers that are packed together behind one prefix.
struct Part<'a> {
    group: usize,
    members: &'a [Trajectory],
    answers: Vec<Answer>,
}

impl Part<'_> {
    fn prefix(&self) -> usize {
        self.answers.first().map_or(0, |answer| self.members[answer.member].prompt.len() - 1)
    }

    fn rows(&self) -> usize {
        self.prefix() + self.answers.iter().map(|answer| answer.rows).sum::<usize>()
    }
}

impl Packing {
    /// Packs groups; trajectories without actions take no part.
    ///
    /// # Errors
    /// When a group is not as its documentation says, naming it.
    pub fn pack<G: Borrow<Group>>(&self, groups: &[G]) -> Result<Vec<Pack>, PackError> {
        self.pack_where(groups, |_, _| true)
    }

    /// As [`Packing::pack`], of those trajectories only that `wanted` says, by the indices of their group and member.
    ///
    /// # Errors
    /// As [`Packing::pack`].
    pub fn pack_where<G: Borrow<Group>>(
        &self,
        groups: &[G],
        wanted: impl Fn(usize, usize) -> bool,
    ) -> Result<Vec<Pack>, PackError> {
        if self.rows == 0 {
            return Err(PackError::NoRows);
        }
        let mut parts = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let members = &group.borrow().members;
            for answers in self.sharing(index, members, |member| wanted(index, member))? {
                self.cut(Part { group: index, members, answers }, &mut parts);
            }
        }
        let sizes: Vec<usize> = parts.iter().map(Part::rows).collect();
        let packs = distribute(&sizes, self.rows).into_iter().map(|bin| {
            let mut pack = Pack::default();
            bin.into_iter().for_each(|part| pack.push(&parts[part], self.experts_per_row));
            if pack.candidates.total() == 0 {
                pack.candidates = CandidateSets::default();
            }
            pack
        });
        Ok(packs.collect())
    }

    /// The answers of a group that have something to predict, together when they may share the prefix.
    fn sharing(
        &self,
        group: usize,
        members: &[Trajectory],
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<Vec<Answer>>, PackError> {
        let mut shares: Vec<Vec<Answer>> = Vec::new();
        for (member, trajectory) in members.iter().enumerate() {
            self.check(group, member, trajectory)?;
            let Some(last) = trajectory.actions().last().filter(|_| wanted(member)) else { continue };
            let answer = Answer { member, rows: last + 1 };
            let prefix = (trajectory.prompt.len() - 1) * self.experts_per_row;
            let alike = |share: &&mut Vec<Answer>| {
                let first = &members[share[0].member];
                first.prompt == trajectory.prompt && first.experts[..prefix] == trajectory.experts[..prefix]
            };
            match shares.iter_mut().find(alike) {
                Some(share) => share.push(answer),
                None => shares.push(vec![answer]),
            }
        }
        Ok(shares)
    }

    fn check(&self, group: usize, member: usize, trajectory: &Trajectory) -> Result<(), PackError> {
        if trajectory.prompt.is_empty() {
            return Err(PackError::EmptyPrompt { group, member });
        }
        let length =
            |array, found, expected| Err(PackError::Length { group, member, array, found, expected });
        let (tokens, experts) = (trajectory.tokens.len(), trajectory.experts.len());
        if trajectory.is_action.len() != tokens {
            return length("is_action", trajectory.is_action.len(), tokens);
        }
        // Without forced experts it does not matter what was recorded.
        let routed = (trajectory.len() - 1) * self.experts_per_row;
        if self.experts_per_row > 0 && experts != routed {
            return length("experts", experts, routed);
        }
        // Observations behind the last action need no set.
        let (sets, actions) =
            (trajectory.candidates.len(), trajectory.actions().last().map_or(0, |last| last + 1));
        if sets > 0 && !(actions..=tokens).contains(&sets) {
            return length("candidates", sets, tokens);
        }
        Ok(())
    }

    /// Cuts a part that is larger than the budget into smaller ones, each with the prefix.
    fn cut<'a>(&self, part: Part<'a>, parts: &mut Vec<Part<'a>>) {
        if part.rows() <= self.rows {
            parts.push(part);
            return;
        }
        let sizes: Vec<usize> = part.answers.iter().map(|answer| answer.rows).collect();
        for bin in distribute(&sizes, self.rows.saturating_sub(part.prefix())) {
            let answers = bin.into_iter().map(|answer| part.answers[answer]).collect();
            parts.push(Part { answers, ..part });
        }
    }
}

impl Pack {
    /// Number of rows (N).
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Experts to run instead of the router's choice.
    #[must_use]
    pub fn forced(&self) -> Option<&[u16]> {
        (!self.experts.is_empty()).then_some(&self.experts[..])
    }

    fn push(&mut self, part: &Part, experts_per_row: usize) {
        let Some(first) = part.answers.first() else { return };
        let prefix_len = part.prefix();
        let prefix = self.run(&part.members[first.member], 0..prefix_len, experts_per_row);
        if !prefix.is_empty() {
            self.sequences.push(Sequence::alone(prefix.clone()));
        }
        for answer in &part.answers {
            let trajectory = &part.members[answer.member];
            let rows = self.run(trajectory, prefix_len..prefix_len + answer.rows, experts_per_row);
            for token in trajectory.actions() {
                self.rows.push((rows.start + token) as u32);
                self.targets.push(trajectory.tokens[token]);
                let candidates = trajectory.candidates.get(token).map(Vec::as_slice).unwrap_or_default();
                self.candidates.push(candidates.iter().copied());
                self.places.push(Place { group: part.group, member: answer.member, token });
            }
            self.sequences.push(Sequence { prefix: prefix.clone(), rows });
        }
    }

    /// Appends the rows of some positions of a trajectory.
    fn run(
        &mut self,
        trajectory: &Trajectory,
        positions: std::ops::Range<usize>,
        experts_per_row: usize,
    ) -> std::ops::Range<usize> {
        let start = self.len();
        self.tokens.extend(positions.clone().map(|position| trajectory.token(position)));
        self.positions.extend(positions.clone().map(|position| position as u32));
        let experts = positions.start * experts_per_row..positions.end * experts_per_row;
        self.experts.extend_from_slice(&trajectory.experts[experts]);
        start..self.len()
    }
}

/// Puts things of these sizes into as few bins as first-fit finds, and no bin above `budget` but for one thing that
/// is larger; then evens the bins out. Indices ascend in a bin, and bins by their first index.
fn distribute(sizes: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(sizes[index]), index));
    let fewest = fill(sizes, &order, 0, |loads, size| loads.iter().position(|&load| load + size <= budget));
    // The emptiest bin of that many; where this does not come out, the first way stands.
    let even = fill(sizes, &order, fewest.len(), |loads, size| {
        let (bin, &load) = loads.iter().enumerate().min_by_key(|&(_, load)| load)?;
        (load == 0 || load + size <= budget).then_some(bin)
    });
    let mut bins = if even.len() <= fewest.len() { even } else { fewest };
    bins.iter_mut().for_each(|bin| bin.sort_unstable());
    bins.sort_by_key(|bin| bin.first().copied());
    bins
}

/// Puts each thing into the bin that `choose` names, given the loads of the bins, or else into a new one.
fn fill(
    sizes: &[usize],
    order: &[usize],
    bins: usize,
    choose: impl Fn(&[usize], usize) -> Option<usize>,
) -> Vec<Vec<usize>> {
    let (mut bins, mut loads) = (vec![Vec::new(); bins], vec![0; bins]);
    for &index in order {
        let bin = choose(&loads, sizes[index]).unwrap_or_else(|| {
            bins.push(Vec::new());
            loads.push(0);
            bins.len() - 1
        });
        bins[bin].push(index);
        loads[bin] += sizes[index];
    }
    bins
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
