//! Single fields out of their range, and sizes that do not fit each other.

use super::{Refusal, refuse};
use crate::schedule::axes::{Dispatch, RoundEnd, WeightPush};
use crate::schedule::flow::FlowSettings;

pub(super) fn check(settings: &FlowSettings) -> Refusal {
    if settings.batch == 0 {
        return refuse(&["batch"], "must be at least 1");
    }
    if settings.group_size == 0 {
        return refuse(&["group_size"], "must be at least 1");
    }
    shares(settings)?;
    cadences(settings)?;
    pool(settings)?;
    sources(settings)
}

fn shares(settings: &FlowSettings) -> Refusal {
    match settings.round_end {
        RoundEnd::Fraction { lambda, .. } if !(lambda > 0.0 && lambda < 1.0) => {
            refuse(&["round_end.lambda"], format!("is {lambda}, must be between 0 and 1"))
        }
        RoundEnd::Fraction { lambda, .. } if lambda * (settings.pool() as f64) < 1.0 => refuse(
            &["round_end.lambda", "admission.pool"],
            format!("{lambda} of {} answers is less than one: a round would never generate", settings.pool()),
        ),
        RoundEnd::Ready { max_old_fraction, .. } if !(0.0..=1.0).contains(&max_old_fraction) => refuse(
            &["round_end.max_old_fraction"],
            format!("is {max_old_fraction}, must be a share from 0 to 1"),
        ),
        RoundEnd::Ready { max_carried, .. } if !(0.0..=1.0).contains(&max_carried) => {
            refuse(&["round_end.max_carried"], format!("is {max_carried}, must be a share from 0 to 1"))
        }
        RoundEnd::Budget { tokens: 0 } => {
            refuse(&["round_end.tokens"], "must be at least 1, or no answer goes on")
        }
        _ => Ok(()),
    }?;
    match settings.consume.short_drop {
        Some(short) if !(0.0..1.0).contains(&short.quantile) => refuse(
            &["consume.short_drop.quantile"],
            format!("is {}, must be a share from 0 to 1", short.quantile),
        ),
        _ => Ok(()),
    }
}

fn cadences(settings: &FlowSettings) -> Refusal {
    match settings.push {
        WeightPush::Every { updates: 0 } => {
            refuse(&["push.updates"], "must be at least 1, or generators never learn")
        }
        WeightPush::Interval { seconds } if !(seconds.is_finite() && seconds > 0.0) => {
            refuse(&["push.seconds"], format!("is {seconds}, must be a positive number"))
        }
        WeightPush::Adaptive { lag: 0, .. } => {
            refuse(&["push.lag"], "must be at least 1; `when = \"immediate\"` pushes after every update")
        }
        WeightPush::Adaptive { spread, .. } if !(spread.is_finite() && spread > 0.0) => {
            refuse(&["push.spread"], format!("is {spread}, must be a positive number"))
        }
        _ => Ok(()),
    }
}

fn pool(settings: &FlowSettings) -> Refusal {
    let (group, batch) = (u64::from(settings.group_size), settings.batch_trajectories());
    let Some(pool) = settings.admission.pool else { return Ok(()) };
    if pool < group {
        return refuse(
            &["admission.pool", "group_size"],
            format!("a group of {group} never fits into {pool} places"),
        );
    }
    let together = settings.dispatch.quantum(settings.batch) * group;
    if settings.round_end != RoundEnd::Batch && pool < together {
        return refuse(
            &["dispatch.groups", "admission.pool"],
            format!("the {together} answers that start together never fit into {pool} places"),
        );
    }
    match settings.round_end {
        RoundEnd::Groups { .. } => refuse(
            &["round_end.rule", "admission.pool"],
            "a round submits its groups whole and the engines queue what they cannot hold; leave the pool out",
        ),
        RoundEnd::Batch if pool < batch => refuse(
            &["round_end.rule", "admission.pool"],
            format!("a batch of {batch} answers is dispatched whole and never fits into {pool} places"),
        ),
        _ => Ok(()),
    }
}

fn sources(settings: &FlowSettings) -> Refusal {
    for source in &settings.sources {
        let group = u64::from(source.group_size.unwrap_or(settings.group_size));
        if group == 0 {
            return refuse(&["sources.group_size"], format!("of `{}` must be at least 1", source.name));
        }
        if let Some(cap) = source.cap.filter(|cap| *cap < group) {
            return refuse(
                &["sources.cap", "group_size"],
                format!("a group of {group} of `{}` never fits under its cap of {cap}", source.name),
            );
        }
        if !(source.weight.is_finite() && source.weight >= 0.0) {
            return refuse(
                &["sources.weight"],
                format!("of `{}` is {}, must be 0 or a positive number", source.name, source.weight),
            );
        }
    }
    if !settings.sources.is_empty() && settings.sources.iter().all(|source| source.weight == 0.0) {
        return refuse(&["sources.weight"], "all are 0: no source gives prompts");
    }
    let caps: Option<u64> = settings.sources.iter().map(|source| source.cap).sum();
    if let (false, Some(caps), RoundEnd::Batch) = (settings.sources.is_empty(), caps, settings.round_end)
        && caps < settings.batch_trajectories()
    {
        return refuse(
            &["sources.cap", "round_end.rule"],
            format!(
                "a batch of {} answers is dispatched whole, and the caps add up to {caps}",
                settings.batch_trajectories()
            ),
        );
    }
    let Dispatch::Mixer(mixer) = &settings.dispatch else {
        return match settings.sources.iter().find(|source| source.quota.is_some()) {
            Some(source) => refuse(
                &["sources.quota", "dispatch.unit"],
                format!("only a mixer keeps the quota of `{}`", source.name),
            ),
            None => Ok(()),
        };
    };
    if !(0.0..=1.0).contains(&mixer.alpha) {
        return refuse(&["dispatch.alpha"], format!("is {}, must be a share from 0 to 1", mixer.alpha));
    }
    if !(mixer.surplus.is_finite() && mixer.surplus >= 0.0) {
        return refuse(
            &["dispatch.surplus"],
            format!("is {}, must be 0 or a positive number", mixer.surplus),
        );
    }
    let quotas: u64 = settings.sources().iter().filter_map(|source| source.quota).sum();
    if quotas != settings.batch {
        return refuse(
            &["sources.quota", "batch"],
            format!("the quotas add up to {quotas}, a batch has {} groups", settings.batch),
        );
    }
    Ok(())
}
