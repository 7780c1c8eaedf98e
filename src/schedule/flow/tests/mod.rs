//! Random event sequences: whatever happens, in whatever order, the invariants hold.

mod invariants;
mod kinds;
mod systems;
mod world;

use world::World;

use super::FlowSettings;

/// Sequences of each property.
const SEQUENCES: u64 = 10_000;
/// Events of a sequence.
const EVENTS: usize = 60;

/// Runs random sequences under the settings; `check` sees the world after every event.
fn sequences(settings: &FlowSettings, check: impl FnMut(&World)) -> u64 {
    sequences_with(settings, |_| {}, check)
}

/// As [`sequences`], in a world where less can happen.
fn sequences_with(
    settings: &FlowSettings,
    prepare: impl Fn(&mut World),
    mut check: impl FnMut(&World),
) -> u64 {
    let mut updates = 0;
    for seed in 0..SEQUENCES {
        let mut world = World::new(settings.clone(), seed);
        prepare(&mut world);
        for _ in 0..EVENTS {
            world.step();
            world.check_conservation();
            check(&world);
        }
        updates += world.scheduler.version();
    }
    assert!(updates > SEQUENCES / 2, "the sequences reach only {updates} updates");
    updates
}
