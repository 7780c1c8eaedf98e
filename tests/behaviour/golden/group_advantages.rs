//! Advantages of groups, and what shapes rewards before them.

use forebay::learner::advantage::AdvantageError;
use forebay::learner::token::advantage::{
    EffortBudgetConfig, GarConfig, GarMember, GroupAdvantages, GrpoAdvantageConfig, GrsParts,
    MeanBaselineConfig, OverlongPenaltyConfig, RlooAdvantageConfig, effort_budget, gar, grs_rewards,
    length_rewards, overlong_penalty,
};

use super::{Case, DOUBLE, Figures, check};

fn flags(groups: &[Vec<f64>]) -> Vec<Vec<bool>> {
    groups.iter().map(|group| group.iter().map(|&flag| flag != 0.0).collect()).collect()
}

/// The rewards of each group, none where they are not valid.
fn rewards(case: &Case) -> Vec<Vec<Option<f64>>> {
    let groups = case.groups("rewards").into_iter().zip(flags(&case.groups("valid")));
    groups
        .map(|(rewards, valid)| {
            rewards.into_iter().zip(valid).map(|(reward, valid)| valid.then_some(reward)).collect()
        })
        .collect()
}

fn described(groups: &[GroupAdvantages]) -> Figures {
    let flags = |group: &GroupAdvantages| Some(f64::from(u8::from(group.zero_variance)));
    vec![
        ("advantages", groups.iter().flat_map(|group| &group.advantages).copied().map(Some).collect()),
        ("zero_variance", groups.iter().map(flags).collect()),
        ("filtered", groups.iter().map(flags).collect()),
        ("means", groups.iter().map(|group| group.mean).collect()),
        ("stds", groups.iter().map(|group| group.standard_deviation).collect()),
    ]
}

fn group_relative(case: &Case, advantages: impl Fn(&[Option<f64>]) -> GroupAdvantages) -> Figures {
    let groups: Vec<_> = rewards(case).iter().map(|rewards| advantages(rewards)).collect();
    described(&groups)
}

fn group_reward(case: &Case) -> Result<Figures, AdvantageError> {
    let settings = MeanBaselineConfig { zero_tolerance: case.param("zero_tol") };
    settings.validate()?;
    let grades = case.groups("test").into_iter().zip(case.groups("solution")).zip(case.groups("behaviour"));
    let mut all = Vec::new();
    let mut groups = Vec::new();
    for ((test, solution), behaviour) in grades {
        let members = test.into_iter().zip(solution).zip(behaviour);
        let parts: Vec<_> = members
            .map(|((test, solution), behaviour)| Some(GrsParts { test, solution, behaviour }))
            .collect();
        let rewards = grs_rewards(&parts);
        groups.push(settings.advantages(&rewards));
        all.extend(rewards);
    }
    let mut figures = described(&groups);
    figures.push(("rewards", all));
    Ok(figures)
}

fn graded(case: &Case) -> Result<Figures, AdvantageError> {
    let config = GarConfig { lambda_max: case.option("lambda_max") };
    let (passed, hacked) = (flags(&case.groups("passed")), flags(&case.groups("hacked")));
    let (rewards, factors) = (case.groups("rewards"), case.groups("factors"));
    let (mut used, mut lambdas, mut advantages) = (Vec::new(), Vec::new(), Vec::new());
    for (group, failed) in case.flags("grader_failed").into_iter().enumerate() {
        let members: Vec<_> = (0..rewards[group].len())
            .map(|member| GarMember {
                reward: rewards[group][member],
                passed: passed[group][member],
                factor: factors[group][member],
                hacked: hacked[group][member],
            })
            .collect();
        let result = gar(&config, &members, failed)?;
        used.extend(result.rewards.into_iter().map(Some));
        lambdas.push(result.lambda);
        advantages.extend(result.advantages.into_iter().map(Some));
    }
    Ok(vec![("rewards_used", used), ("lambda", lambdas), ("advantages", advantages)])
}

fn lengths(case: &Case) -> Result<Figures, AdvantageError> {
    let mut figures = Vec::new();
    for (lengths, correct) in case.groups("lengths").into_iter().zip(flags(&case.groups("correct"))) {
        let lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
        figures.extend(length_rewards(&lengths, &correct)?.into_iter().map(Some));
    }
    Ok(vec![("length_rewards", figures)])
}

fn overlong(case: &Case) -> Result<Figures, AdvantageError> {
    let config = OverlongPenaltyConfig {
        max_length: case.param("max_length") as usize,
        buffer: case.param("buffer") as usize,
        factor: case.param("factor"),
    };
    let lengths = case.numbers("lengths").into_iter();
    let penalties = lengths.map(|length| overlong_penalty(&config, length as usize).map(Some));
    Ok(vec![("penalties", penalties.collect::<Result<_, _>>()?)])
}

fn effort(case: &Case) -> Result<Figures, AdvantageError> {
    let config = EffortBudgetConfig { tau: case.param("tau"), base: None };
    let answers = case.numbers("rewards").into_iter().zip(case.numbers("total_tokens"));
    let rewards = answers.zip(case.numbers("base_budget")).map(|((reward, tokens), budget)| {
        effort_budget(&config, reward, tokens as u64, budget as u64).map(Some)
    });
    Ok(vec![("rewards", rewards.collect::<Result<_, _>>()?)])
}

fn compute(case: &Case) -> Result<Figures, AdvantageError> {
    let zero_tolerance = || case.param("zero_tol");
    match case.function() {
        "grpo" => {
            let settings = GrpoAdvantageConfig {
                epsilon: case.param("eps"),
                ddof: case.param("ddof") as u8,
                zero_tolerance: zero_tolerance(),
            };
            settings.validate()?;
            Ok(group_relative(case, |rewards| settings.advantages(rewards)))
        }
        "mean_baseline" => {
            let settings = MeanBaselineConfig { zero_tolerance: zero_tolerance() };
            Ok(group_relative(case, |rewards| settings.advantages(rewards)))
        }
        "rloo" => {
            let settings = RlooAdvantageConfig { zero_tolerance: zero_tolerance() };
            Ok(group_relative(case, |rewards| settings.advantages(rewards)))
        }
        "grs" => group_reward(case),
        "gar" => graded(case),
        "length_reward" => lengths(case),
        "overlong_penalty" => overlong(case),
        "effort_budget" => effort(case),
        _ => case.unknown(),
    }
}

#[test]
fn golden_group_advantages() {
    check("group_advantages", DOUBLE, compute);
}
