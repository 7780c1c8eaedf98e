//! The bounded queue between rollout actors and the learner: the only way experience travels.
//!
//! Invariants: at most `capacity` items stand in it; a producer that finds it full keeps its item and waits; nothing
//! is dropped here except by closing, and then every item returns to somebody who accounts for it. The wrapped flume
//! channel is used through its blocking calls only: its futures lose items when cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Why an item was not accepted; it comes back with the reason.
#[derive(Debug)]
pub enum Refused<T> {
    /// No room within the time given.
    Full(T),
    /// The queue is closed.
    Closed(T),
}

#[derive(Debug, Default)]
struct Shared {
    closed: AtomicBool,
    blocked_nanoseconds: AtomicU64,
}

/// The producers' end.
#[derive(Debug)]
pub struct QueueSender<T> {
    channel: flume::Sender<(T, Instant)>,
    shared: Arc<Shared>,
}

/// The consumer's end.
#[derive(Debug)]
pub struct QueueReceiver<T> {
    channel: flume::Receiver<(T, Instant)>,
    shared: Arc<Shared>,
}

/// A queue for at most `capacity` items (at least one).
#[must_use]
pub fn queue<T>(capacity: usize) -> (QueueSender<T>, QueueReceiver<T>) {
    let (sender, receiver) = flume::bounded(capacity.max(1));
    let shared = Arc::<Shared>::default();
    (
        QueueSender { channel: sender, shared: Arc::clone(&shared) },
        QueueReceiver { channel: receiver, shared },
    )
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        Self { channel: self.channel.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<T> QueueSender<T> {
    /// Offers an item, waiting at most `patience` for room.
    ///
    /// # Errors
    /// Returns the item when there was no room or the queue is closed.
    pub fn offer(&self, item: T, patience: Duration) -> Result<(), Refused<T>> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(Refused::Closed(item));
        }
        let entry = match self.channel.try_send((item, Instant::now())) {
            Ok(()) => return Ok(()),
            Err(flume::TrySendError::Disconnected((item, _))) => return Err(Refused::Closed(item)),
            Err(flume::TrySendError::Full(entry)) => entry,
        };
        if patience.is_zero() {
            return Err(Refused::Full(entry.0));
        }
        let since = Instant::now();
        let outcome = self.channel.send_timeout(entry, patience);
        self.shared.blocked_nanoseconds.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        outcome.map_err(|error| match error {
            flume::SendTimeoutError::Timeout((item, _)) => Refused::Full(item),
            flume::SendTimeoutError::Disconnected((item, _)) => Refused::Closed(item),
        })
    }

    /// Items standing in the queue.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.channel.len()
    }

    /// Most items that may stand in it.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.channel.capacity().unwrap_or(usize::MAX)
    }

    /// Time producers have spent blocked, summed over all of them, since the start.
    #[must_use]
    pub fn blocked(&self) -> Duration {
        Duration::from_nanos(self.shared.blocked_nanoseconds.load(Ordering::Relaxed))
    }
}

impl<T> QueueReceiver<T> {
    /// Takes the oldest item and the time it stood in the queue, waiting at most `patience` for one.
    #[must_use]
    pub fn take(&self, patience: Duration) -> Option<(T, Duration)> {
        let entry = self
            .channel
            .try_recv()
            .ok()
            .or_else(|| if patience.is_zero() { None } else { self.channel.recv_timeout(patience).ok() });
        entry.map(|(item, since)| (item, since.elapsed()))
    }

    /// Takes everything that stands in the queue, oldest first.
    #[must_use]
    pub fn drain(&self) -> Vec<T> {
        self.channel.drain().map(|(item, _)| item).collect()
    }

    /// Refuses further items and returns those still standing in the queue.
    #[must_use]
    pub fn close(&self) -> Vec<T> {
        self.shared.closed.store(true, Ordering::Release);
        self.drain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_admits_exactly_its_capacity_and_hands_the_rest_back() {
        let (sender, receiver) = queue(3);
        let refused: Vec<i32> = (0..5)
            .filter_map(|i| match sender.offer(i, Duration::ZERO) {
                Err(Refused::Full(item)) => Some(item),
                _ => None,
            })
            .collect();
        assert_eq!(refused, [3, 4]);
        assert_eq!((sender.depth(), sender.capacity()), (3, 3));
        assert_eq!(receiver.drain(), [0, 1, 2]);
    }

    #[test]
    fn a_blocked_producer_continues_when_there_is_room_and_its_wait_is_counted() {
        let (sender, receiver) = queue(1);
        sender.offer(1, Duration::ZERO).unwrap();
        let producer = std::thread::spawn({
            let sender = sender.clone();
            move || sender.offer(2, Duration::from_secs(60)).is_ok()
        });
        assert_eq!(receiver.take(Duration::ZERO).map(|(item, _)| item), Some(1));
        assert_eq!(receiver.take(Duration::from_secs(60)).map(|(item, _)| item), Some(2));
        assert!(producer.join().unwrap());
    }

    #[test]
    fn a_closed_queue_returns_what_stood_in_it_and_refuses_the_next_item() {
        let (sender, receiver) = queue(2);
        sender.offer('a', Duration::ZERO).unwrap();
        assert_eq!(receiver.close(), ['a']);
        assert!(matches!(sender.offer('b', Duration::from_secs(60)), Err(Refused::Closed('b'))));
    }
}
