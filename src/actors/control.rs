//! What a role's thread is told (run, pause, stop) and what it shows of itself (a heartbeat).
//!
//! A role reads its orders between steps; reading costs one atomic load. A paused role waits on a condition variable,
//! so nothing spins. `Stop` is final.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An order to a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    /// Keep stepping.
    Run = 0,
    /// Show a snapshot and wait.
    Pause = 1,
    /// Finish.
    Stop = 2,
}

/// Orders for one or more roles.
#[derive(Debug, Default)]
pub struct Control {
    order: AtomicU8,
    /// Pauses ordered so far, so that a role can tell a new one from the one it already answered.
    pauses: AtomicU64,
    changed: (Mutex<()>, Condvar),
}

impl Control {
    /// The order in force.
    #[must_use]
    pub fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Run,
            1 => Order::Pause,
            _ => Order::Stop,
        }
    }

    /// Gives an order. After `Stop` nothing else is accepted.
    pub fn set(&self, order: Order) {
        let _guard = self.changed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.order() != Order::Stop {
            self.pauses.fetch_add(u64::from(order == Order::Pause), Ordering::Relaxed);
            self.order.store(order as u8, Ordering::Release);
        }
        self.changed.1.notify_all();
    }

    /// Number of the latest pause.
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::Acquire)
    }

    /// Waits until pause number `pause` is over, or a moment, so that a paused role can show life.
    pub fn wait_while_paused(&self, pause: u64, moment: Duration) {
        let guard = self.changed.0.lock().unwrap_or_else(PoisonError::into_inner);
        let on = |(): &mut ()| self.order() == Order::Pause && self.pauses() == pause;
        drop(self.changed.1.wait_timeout_while(guard, moment, on));
    }
}

/// Where a role's thread is: when it last showed life, and in which environment it is.
#[derive(Debug)]
pub struct Heartbeat {
    epoch: Instant,
    milliseconds: AtomicU64,
    /// Calls into environments; a counter, since a clock read before each of them would cost more than many a call.
    calls: AtomicU64,
    place: AtomicU32,
}

/// `Heartbeat::place` of a role that is in no environment.
const NOWHERE: u32 = u32::MAX;

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            milliseconds: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            place: AtomicU32::new(NOWHERE),
        }
    }
}

impl Heartbeat {
    /// Shows life.
    pub fn beat(&self) {
        self.milliseconds.store(self.epoch.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Notes that environment `env` is about to be called.
    pub fn enter(&self, env: u32) {
        // Only the role's own thread writes.
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.place.store(env, Ordering::Relaxed);
    }

    /// Notes that no environment is being called.
    pub fn leave(&self) {
        self.place.store(NOWHERE, Ordering::Relaxed);
    }

    /// Calls into environments so far: while this number grows, a single long step of the role is many short calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Time since the last sign of life.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.milliseconds.load(Ordering::Relaxed));
        self.epoch.elapsed().saturating_sub(last)
    }

    /// The environment being called, if any.
    #[must_use]
    pub fn place(&self) -> Option<u32> {
        Some(self.place.load(Ordering::Relaxed)).filter(|&place| place != NOWHERE)
    }
}
