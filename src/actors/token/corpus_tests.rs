use super::*;

fn groups(count: u32) -> Vec<Group> {
    let group = |prompt: u32| {
        let tokens: Arc<[u32]> = (0..=prompt).collect();
        let members = (0..2).map(|member| {
            let id = TrajectoryId { epoch: 3, prompt, member, attempt: 0 };
            // The second is asked for another effort.
            let asked = if member == 0 { Arc::clone(&tokens) } else { [&[9], &*tokens].concat().into() };
            let mut trajectory = Trajectory::new(id, asked);
            trajectory.push_action(5, -0.5, Version(4));
            trajectory.push_observation(&[6, 7], Version(4));
            trajectory.push_action(8, -0.25, Version(4));
            trajectory.finish = Some(if member == 0 { Finish::Stop } else { Finish::Length });
            let parts = vec![("right".to_owned(), 1.0)];
            trajectory.reward = (prompt > 0).then(|| Reward { value: f64::from(prompt), parts });
            trajectory
        });
        Group { epoch: 3, prompt, source: "test".into(), budget: Some(7), members: members.collect() }
    };
    (0..count).map(group).collect()
}

fn written(folder: &Path, groups: &[Group]) -> CorpusDescription {
    let mut writer = CorpusWriter::create(folder, "copy".into(), Version(4), 0.5).unwrap();
    groups.iter().for_each(|group| writer.push(group).unwrap());
    writer.finish().unwrap()
}

#[test]
fn answers_come_back_as_they_were_with_their_turns_and_grades() {
    let dir = tempfile::tempdir().unwrap();
    let groups = groups(3);
    let description = written(dir.path(), &groups);
    assert_eq!((description.trajectories, description.tokens, description.grading_errors), (6, 24, 2));
    assert_eq!(description.reward_mean, 1.5);
    let corpus = Corpus::open(dir.path()).unwrap();
    assert_eq!(corpus.description(), &description);
    assert_eq!(corpus.groups().unwrap(), groups);
    assert!(corpus.policy().unwrap().is_none());
}

#[test]
fn a_folder_with_something_in_it_is_not_written_into() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &groups(1));
    let refused = CorpusWriter::create(dir.path(), "copy".into(), Version(0), 1.0).err().unwrap();
    assert!(matches!(refused, CorpusError::NotEmpty { .. }), "{refused}");
}

#[test]
fn a_corpus_that_is_not_whole_or_damaged_is_refused_by_the_name_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let message = |folder: &Path| match Corpus::open(folder) {
        Ok(corpus) => corpus.groups().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(message(dir.path()).contains("corpus.bin is not there"));
    for file in ["corpus.bin", "rollouts-000000.bin"] {
        let folder = dir.path().join(format!("of-{file}"));
        written(&folder, &groups(2));
        let path = folder.join(file);
        let whole = std::fs::read(&path).unwrap();
        for position in [0, 9, 30, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[position] ^= 4;
            std::fs::write(&path, bytes).unwrap();
            assert!(message(&folder).contains(file), "{}", message(&folder));
        }
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(message(&folder).contains("cut off"), "{}", message(&folder));
        std::fs::remove_file(&path).unwrap();
        assert!(message(&folder).contains("is not there"), "{}", message(&folder));
    }
}

#[test]
fn files_of_two_corpora_are_not_mixed_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    written(&one, &groups(2));
    written(&other, &groups(3));
    std::fs::copy(rollouts(&other, 0), rollouts(&one, 0)).unwrap();
    let error = Corpus::open(&one).unwrap().groups().unwrap_err().to_string();
    assert!(error.contains("3 groups, the description 2"), "{error}");
}
