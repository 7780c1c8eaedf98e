//! Systems in processes that are killed (`kill -9`) at any moment: what goes on from the last checkpoint loses nothing and
//! repeats nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use forebay::telemetry::TokenSummary;

use super::{STREAMING, SYSTEMS, complete, path, preset, small};
use crate::support::checkpoints::{assert_same, token_state, updates};
use crate::support::process::Scratch;
use crate::support::{metrics, metrics_without_clock, total};

/// Updates of a serial run in all.
const UPDATES: u64 = 7;

/// A moment to be killed in, by the fault of its name.
struct Moment {
    kind: &'static str,
    /// When it strikes.
    at: u64,
    /// Checkpoints that are whole then, and the last update that `metrics.jsonl` tells of; absent: that depends.
    leaves: Option<(&'static [u64], u64)>,
}

/// `steps` are those of the generator. Checkpoints are saved after every second update.
fn moments(steps: u64) -> [Moment; 4] {
    [
        Moment { kind: "kill_generating", at: steps, leaves: None },
        Moment { kind: "kill_before_update", at: 4, leaves: Some((&[2], 3)) },
        Moment { kind: "kill_after_update", at: 5, leaves: Some((&[2, 4], 4)) },
        Moment { kind: "kill_saving", at: 4, leaves: Some((&[2], 4)) },
    ]
}

/// Runs a preset in a process that is killed, and from its last checkpoint to the end that is given for it. Returns how
/// that ended.
fn kill_and_resume(
    scratch: &Scratch,
    system: &str,
    moment: &Moment,
    serial: bool,
    end: impl Fn(u64) -> u64,
) -> TokenSummary {
    let &Moment { kind, at, leaves } = moment;
    let run_dir = scratch.path(kind);
    let fault = format!("faults=[{{ kind = \"{kind}\", at = {at} }}]");
    let own = ["checkpoint.every=2", "stop.updates=1000", &fault];
    let mode: &[&str] = if serial { &["--serial"] } else { &[] };
    let ended = scratch.train(kind, &[&small(system, &own)[..], mode].concat());
    assert_eq!(ended.signal, Some(libc::SIGKILL), "{system}, {kind}: {ended:#?}");
    let saved = updates(&run_dir);
    if let Some(leaves) = leaves {
        let told = metrics(&run_dir).last().unwrap()["update"].as_u64().unwrap();
        assert_eq!((&saved[..], told), leaves, "{system}, {kind}");
    }
    let torn = fs::read_dir(run_dir.join("checkpoints")).unwrap().count() > saved.len();
    assert_eq!(torn, kind == "kill_saving", "{system}, {kind}");
    let last = *saved.last().unwrap_or_else(|| panic!("{system}, {kind}: no checkpoint yet"));
    let stop = format!("stop.updates={}", end(last));
    complete(preset(system, &["checkpoint.every=2", &stop]), &run_dir, serial, true)
}

/// Every update has one line, and what they consumed is what the ledger and the schedule say; every problem that was drawn
/// was learned from or dropped, once, or stands in the last checkpoint.
fn assert_accounted(run_dir: &Path, summary: &TokenSummary, at: &str) {
    let lines = metrics(run_dir);
    let learned: Vec<u64> =
        lines.iter().filter(|line| line["groups"] != 0).filter_map(|line| line["update"].as_u64()).collect();
    assert_eq!(learned, (1..=summary.updates).collect::<Vec<_>>(), "{at}");
    let consumed = summary.ledger.consumed;
    assert_eq!(total(&lines, "trajectories") as u64, consumed.trajectories, "{at}");

    let state = token_state(run_dir, summary.updates);
    let plane = &state.plane;
    let books = plane.scheduler.ledger();
    assert!(books.balances() && books.consumed == consumed.trajectories, "{at}: {books:?}");
    let standing = plane.standing().map(|standing| (standing.group.epoch, standing.group.prompt));
    let open = plane.open.iter().map(|open| open.key);
    let held: Vec<(u32, u32)> = plane.drawn.iter().flatten().copied().chain(open).chain(standing).collect();
    let distinct: BTreeSet<(u32, u32)> = held.iter().copied().collect();
    assert_eq!(distinct.len(), held.len(), "{at}: {held:?}");
    // The task has no end, so that its problems come once, in their order.
    let drawn = plane.prompts.taken;
    assert!(held.iter().all(|&(epoch, problem)| epoch == 0 && problem < drawn), "{at}: {held:?}");
    let size = u64::from(plane.scheduler.settings().group_size);
    let gone = (books.consumed + books.dropped_in_all()) / size;
    assert_eq!(gone + held.len() as u64, u64::from(drawn), "{at}: {books:?}");
}

#[test]
fn a_serial_run_of_a_preset_that_is_killed_at_any_moment_goes_on_as_if_it_never_had_been() {
    for system in SYSTEMS {
        let scratch = Scratch::of(path(system));
        let whole_dir = scratch.path("whole");
        let stop = format!("stop.updates={UPDATES}");
        let whole = complete(preset(system, &[&stop]), &whole_dir, true, false);
        assert_accounted(&whole_dir, &whole, system);
        // In the middle of a round; of one system a batch is three answers, which takes few steps.
        for moment in moments(if system == "glm_sao" { 30 } else { 75 }) {
            let resumed = kill_and_resume(&scratch, system, &moment, true, |_| UPDATES);
            let run_dir = scratch.path(moment.kind);
            assert_accounted(&run_dir, &resumed, &format!("{system}, {}", moment.kind));
            if !STREAMING.contains(&system) {
                assert_same((&whole_dir, UPDATES), (&run_dir, UPDATES));
                assert_eq!(metrics_without_clock(&whole_dir), metrics_without_clock(&run_dir));
                let samples = |run_dir: &Path| fs::read(run_dir.join("samples.jsonl")).unwrap();
                assert!(samples(&whole_dir) == samples(&run_dir), "{system}, {}", moment.kind);
                assert_eq!(whole.ledger, resumed.ledger, "{system}, {}", moment.kind);
            }
        }
    }
}

#[test]
fn a_threaded_run_of_a_preset_that_is_killed_at_any_moment_loses_and_repeats_nothing() {
    for system in SYSTEMS {
        let scratch = Scratch::of(path(system));
        // More than it takes to make all that any system generates before its third update.
        for moment in moments(250) {
            let summary = kill_and_resume(&scratch, system, &moment, false, |last| last + 3);
            assert_accounted(&scratch.path(moment.kind), &summary, &format!("{system}, {}", moment.kind));
        }
    }
}
