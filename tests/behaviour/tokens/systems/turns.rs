//! Who takes turns does: while a system whose layout is in common learns, nothing is generated.

use forebay::actors::TrainOptions;
use forebay::actors::token::train_tokens;
use forebay::env::task::TaskRegistry;
use forebay::schedule::trace::{EngineStatistics, TraceEntry, TraceLine, TraceReader};
use forebay::telemetry::RunOutcome;

use super::preset;

/// Engines of a threaded run, all together, from its trace. Its updates take so long that a generator that does not wait
/// for their end samples tokens in them.
fn engines(name: &str) -> EngineStatistics {
    let dir = tempfile::tempdir().unwrap();
    let slow = "faults=[{ kind = \"slow_update\", at = 1, every = 1, seconds = 0.03 }]";
    let options = TrainOptions { run_dir: dir.path().into(), resume: false, serial: false, trace: true };
    let config = preset(name, &[slow, "stop.updates=6"]);
    let summary = train_tokens(config, &TaskRegistry::builtin(), &options).unwrap();
    assert_eq!((summary.status, summary.updates), (RunOutcome::Completed, 6), "{name}: {}", summary.cause);
    let mut all = EngineStatistics::default();
    for line in TraceReader::open(dir.path()).unwrap() {
        if let TraceLine::Entry(TraceEntry::Engine { statistics, .. }) = line.unwrap().1 {
            all.merge(&statistics);
        }
    }
    assert_eq!(all.sampled, summary.tokens, "{name}: the trace tells of every token");
    assert_eq!(all.alone.sequences + all.beside.sequences, all.sampled, "{name}");
    all
}

#[test]
fn no_token_is_sampled_between_the_hand_over_of_a_batch_and_the_end_of_its_update() {
    for name in ["sync", "kimi_k1_5", "april", "deepseek_v4_1", "mimo_v2_6", "kimi_k3"] {
        assert_eq!(engines(name).beside.sequences, 0, "{name}");
    }
    for name in ["one_step", "areal", "glm_sao"] {
        assert!(engines(name).beside.sequences > 0, "{name} generates while it learns");
    }
}
