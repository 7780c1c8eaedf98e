use std::sync::Arc;

use super::*;
use crate::random::CounterRng;
use crate::trajectory::{TrajectoryId, Version};

/// A group of one prompt; each answer is a list of (token, whether it is an action).
fn group(prompt: &[u32], answers: &[&[(u32, bool)]]) -> Group {
    let prompt: Arc<[u32]> = Arc::from(prompt);
    let members = answers.iter().enumerate().map(|(member, answer)| {
        let id = TrajectoryId { member: member as u16, ..TrajectoryId::default() };
        let mut trajectory = Trajectory::new(id, prompt.clone());
        for &(token, is_action) in *answer {
            if is_action {
                trajectory.push_action(token, -1.0, Version(0));
            } else {
                trajectory.push_observation(&[token], Version(0));
            }
        }
        trajectory
    });
    Group { epoch: 0, prompt: 0, source: "test".into(), budget: None, members: members.collect() }
}

fn random_group(rng: &mut CounterRng, longest: usize) -> Group {
    let prompt: Vec<u32> = (0..=rng.below(longest)).map(|_| rng.next_u32() % 50).collect();
    let answers: Vec<Vec<(u32, bool)>> = (0..rng.below(6))
        .map(|_| (0..rng.below(longest)).map(|_| (rng.next_u32() % 50, rng.below(4) > 0)).collect())
        .collect();
    group(&prompt, &answers.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn pack(groups: &[Group], rows: usize) -> Vec<Pack> {
    Packing { rows, experts_per_row: 0 }.pack(groups).unwrap()
}

#[test]
fn a_prompt_is_packed_once_and_its_last_token_begins_each_answer() {
    let group = group(&[1, 2, 3], &[&[(10, true), (11, true)], &[(20, true)], &[]]);
    let packs = pack(&[group], 100);
    let place = |member, token| Place { group: 0, member, token };
    let expected = Pack {
        tokens: vec![1, 2, 3, 10, 3],
        positions: vec![0, 1, 2, 3, 2],
        sequences: vec![
            Sequence::alone(0..2),
            Sequence { prefix: 0..2, rows: 2..4 },
            Sequence { prefix: 0..2, rows: 4..5 },
        ],
        experts: vec![],
        rows: vec![2, 3, 4],
        targets: vec![10, 11, 20],
        places: vec![place(0, 0), place(0, 1), place(1, 0)],
        candidates: CandidateSets::default(),
    };
    assert_eq!(packs, [expected]);
}

#[test]
fn members_of_a_group_with_several_prompts_share_each_its_own() {
    let mut group = group(&[1, 2], &[&[(10, true)], &[(20, true)], &[(30, true)]]);
    group.members[1].prompt = Arc::from([7, 8, 9]);
    let packs = pack(&[group], 100);
    assert_eq!(packs[0].tokens, [1, 2, 2, 7, 8, 9]);
    let members: Vec<usize> = packs[0].places.iter().map(|place| place.member).collect();
    assert_eq!(members, [0, 2, 1]);
}

#[test]
fn actions_are_predicted_among_the_candidates_that_they_were_sampled_among() {
    let mut group = group(&[1], &[&[(10, true), (11, false), (12, true)], &[(20, true)]]);
    group.members[0].candidates = vec![vec![9, 10], vec![], vec![12]];
    let packs = pack(std::slice::from_ref(&group), 100);
    let mut expected = CandidateSets::default();
    [vec![9, 10], vec![12], vec![]].into_iter().for_each(|ids| expected.push(ids));
    assert_eq!(packs[0].candidates, expected);
    group.members[0].candidates.pop();
    let error = Packing { rows: 100, experts_per_row: 0 }.pack(&[group]).unwrap_err().to_string();
    assert!(error.contains("`candidates` has 2 entries"), "{error}");
}

#[test]
fn observations_are_seen_but_not_predicted_and_nothing_follows_the_last_action() {
    let group = group(&[1], &[&[(10, true), (11, false), (12, false), (13, true), (14, false)]]);
    let packs = pack(&[group], 100);
    assert_eq!(packs[0].tokens, [1, 10, 11, 12]);
    assert_eq!(packs[0].sequences, [Sequence::alone(0..4)]);
    assert_eq!((&packs[0].rows[..], &packs[0].targets[..]), (&[0, 3][..], &[10, 13][..]));
}

#[test]
fn every_action_is_predicted_once_from_what_came_before_it_whatever_the_budget() {
    let mut rng = CounterRng::new(4);
    for round in 0..60 {
        let groups: Vec<Group> = (0..=rng.below(5)).map(|_| random_group(&mut rng, 12)).collect();
        let budget = 1 + rng.below(60);
        let packs = pack(&groups, budget);
        let mut places = Vec::new();
        for pack in &packs {
            let own = pack.sequences.iter().filter(|sequence| !sequence.rows.is_empty());
            let answers =
                own.filter(|s| pack.rows.iter().any(|row| s.rows.contains(&(*row as usize)))).count();
            assert!(
                pack.len() <= budget || answers == 1,
                "round {round}: {} rows, budget {budget}",
                pack.len()
            );
            for ((&row, &target), place) in pack.rows.iter().zip(&pack.targets).zip(&pack.places) {
                let row = row as usize;
                let sequence = pack.sequences.iter().find(|s| s.rows.contains(&row)).unwrap();
                let seen: Vec<u32> = [sequence.prefix.clone(), sequence.rows.start..row + 1]
                    .into_iter()
                    .flat_map(|rows| pack.tokens[rows].to_vec())
                    .collect();
                let trajectory = &groups[place.group].members[place.member];
                let before = trajectory.prompt.len() + place.token;
                assert_eq!(seen, (0..before).map(|i| trajectory.token(i)).collect::<Vec<_>>());
                assert_eq!(pack.positions[row] as usize, before - 1);
                assert_eq!(target, trajectory.tokens[place.token]);
            }
            places.extend_from_slice(&pack.places);
        }
        places.sort_unstable();
        let expected: Vec<Place> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, g)| g.members.iter().enumerate().map(move |(member, m)| (group, member, m)))
            .flat_map(|(group, member, m)| m.actions().map(move |token| Place { group, member, token }))
            .collect();
        assert_eq!(places, expected, "round {round}");
    }
}

#[test]
fn a_group_above_the_budget_is_split_and_repeats_its_prompt() {
    let answer: &[(u32, bool)] = &[(10, true), (11, true), (12, true)];
    let group = group(&[1, 2, 3], &[answer; 4]);
    // The prefix takes 2 rows, each answer 3.
    let packs = pack(&[group], 8);
    assert_eq!(packs.iter().map(Pack::len).collect::<Vec<_>>(), [8, 8]);
    assert!(packs.iter().all(|pack| pack.tokens.starts_with(&[1, 2]) && pack.sequences.len() == 3));
}

#[test]
fn a_sequence_above_the_budget_stands_alone() {
    let long: Vec<(u32, bool)> = (0..20).map(|token| (token, true)).collect();
    let groups = [group(&[1, 2], &[&long, &[(1, true)], &[(2, true)]]), group(&[3], &[&[(4, true)]])];
    let packs = pack(&groups, 10);
    assert_eq!(packs.iter().map(Pack::len).collect::<Vec<_>>(), [21, 4]);
    assert!(packs[0].places.iter().all(|place| (place.group, place.member) == (0, 0)));
}

#[test]
fn packs_are_evened_out() {
    let answers: Vec<Vec<(u32, bool)>> = (0..12).map(|n| vec![(n, true); 10 + n as usize]).collect();
    let groups: Vec<Group> = answers.iter().map(|answer| group(&[1], &[answer])).collect();
    let total: usize = pack(&groups, 100).iter().map(Pack::len).sum();
    let sizes: Vec<usize> = pack(&groups, 100).iter().map(Pack::len).collect();
    assert_eq!((total, sizes.len()), (186, 2));
    assert!(sizes[0].abs_diff(sizes[1]) <= 4, "{sizes:?}");
}

#[test]
fn forced_experts_follow_their_tokens_and_only_equal_prefixes_are_shared() {
    let mut group = group(&[1, 2], &[&[(10, true), (11, true)], &[(20, true)], &[(30, true)]]);
    group.members[0].experts = vec![1, 2, 3, 4, 5, 6];
    group.members[1].experts = vec![1, 2, 7, 8];
    // Its prompt went through other experts, under another version.
    group.members[2].experts = vec![9, 2, 7, 8];
    let packs = Packing { rows: 100, experts_per_row: 2 }.pack(&[group]).unwrap();
    assert_eq!(packs[0].tokens, [1, 2, 10, 2, 1, 2]);
    assert_eq!(packs[0].experts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 7, 8]);
    assert_eq!(packs[0].forced(), Some(&packs[0].experts[..]));
    assert_eq!(packs[0].sequences[4], Sequence { prefix: 4..5, rows: 5..6 });
}

#[test]
fn groups_that_are_not_what_they_should_be_are_refused_by_name() {
    let good = || group(&[1, 2], &[&[(10, true)], &[(11, true)]]);
    let refused = |change: &dyn Fn(&mut Group), experts_per_row| {
        let mut bad = good();
        change(&mut bad);
        let error = Packing { rows: 9, experts_per_row }.pack(&[good(), bad]).unwrap_err();
        assert!(error.to_string().starts_with("group "), "{error}");
        error
    };
    let (group, member) = (1, 1);
    assert_eq!(Packing { rows: 0, experts_per_row: 0 }.pack(&[good()]), Err(PackError::NoRows));
    let error = refused(&|g| g.members.iter_mut().for_each(|m| m.prompt = Arc::from([])), 0);
    assert_eq!(error, PackError::EmptyPrompt { group, member: 0 });
    let error = refused(&|g| g.members[1].is_action.push(true), 0);
    let array = "is_action";
    assert_eq!(error, PackError::Length { group, member, array, found: 2, expected: 1 });
    let mut bad = good();
    bad.members[0].experts = vec![0; 4];
    let error = Packing { rows: 9, experts_per_row: 2 }.pack(&[bad]).unwrap_err();
    let array = "experts";
    assert_eq!(error, PackError::Length { group: 0, member, array, found: 0, expected: 4 });
}
