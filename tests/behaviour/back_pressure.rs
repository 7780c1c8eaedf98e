//! A learner that never draws: the queue fills up, every actor keeps one unroll, and nobody takes another step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::actors::control::{Control, Heartbeat, Order};
use forebay::actors::exit_status::ExitStatus;
use forebay::actors::role::{Role, RoleError, Turn, live};
use forebay::actors::rollout::Rollout;
use forebay::trajectory::Amount;

use crate::support::config;
use crate::support::counting::{self, NAME};
use crate::support::rig::Rig;

const ACTORS: usize = 4;

/// A rollout actor that counts how often it found no room.
struct Watched {
    rollout: Rollout,
    refusals: Arc<AtomicUsize>,
}

impl Role for Watched {
    fn step(&mut self, patience: Duration) -> Result<Turn, RoleError> {
        let turn = self.rollout.step(patience)?;
        if turn == Turn::Waiting {
            self.refusals.fetch_add(1, Ordering::Release);
        }
        Ok(turn)
    }
}

#[test]
fn without_a_consumer_the_queue_holds_its_capacity_and_each_actor_one_unroll_more() {
    let name = format!("env.name={NAME}");
    let rollout = format!("rollout={{ actors = {ACTORS}, envs_per_actor = 3, unroll_length = 5 }}");
    let settings = config(&["seed=7", &name, &rollout, "queue.capacity=6"]);
    let mut rig = Rig::new(settings, counting::registry(7, true));
    let control = Arc::<Control>::default();
    let mut threads = Vec::new();
    let mut refusals = Vec::new();
    for rollout in std::mem::take(&mut rig.rollouts) {
        let refused = Arc::<AtomicUsize>::default();
        refusals.push(Arc::clone(&refused));
        let control = Arc::clone(&control);
        threads.push(std::thread::spawn(move || {
            live(|| Ok(Watched { rollout, refusals: refused }), &control, &Heartbeat::default())
        }));
    }
    // An actor that was refused several times in a row has nothing left to do: nobody takes from the queue.
    while refusals.iter().any(|count| count.load(Ordering::Acquire) < 3) {
        std::thread::yield_now();
    }
    let ledger = rig.run.ledger.snapshot();
    assert_eq!((rig.run.queue_depth(), rig.run.queue_capacity()), (6, 6));
    assert_eq!(ledger.buffered, Amount { unrolls: 10, steps: 150 });
    assert_eq!((ledger.submitted, ledger.live), (ledger.buffered, Amount::default()));
    assert!(rig.run.blocked() > Duration::ZERO);

    control.set(Order::Stop);
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), ExitStatus::Stopped));
    }
    // The four unrolls of the actors' own were lost with them.
    let ledger = rig.run.ledger.snapshot();
    assert_eq!(ledger.buffered, Amount { unrolls: 6, steps: 90 });
    assert!(ledger.balances());
    assert_eq!(rig.draw().len(), 6);
}
