//! A short ordered list with a fixed capacity, for things that come and go one at a time.
//!
//! The reference keeps Seaquest's swimmers and bullets in lists, visits each list from the newest entry to the
//! oldest, and while doing so removes entries *by value*: the oldest equal entry goes, which need not be the one
//! being visited. In that case the visited one moves down a place and is visited again, so it acts twice in one
//! frame. [`Roster::remove_first`] together with a descending loop over the indices has exactly this behaviour;
//! it needs no check of the length because a visit removes at most one entry, at or below its own index.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// An ordered list of at most `N` entries, oldest first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(into = "Vec<T>", try_from = "Vec<T>", bound = "T: Entry + Serialize + serde::de::DeserializeOwned")]
pub(super) struct Roster<T: Entry, const N: usize> {
    entries: [T; N],
    length: usize,
}

/// What a roster can hold: small plain values.
pub(super) trait Entry: Copy + Default + PartialEq {}

impl<T: Copy + Default + PartialEq> Entry for T {}

impl<T: Entry, const N: usize> Roster<T, N> {
    /// Adds the newest entry.
    ///
    /// # Panics
    /// When the roster is full; the games choose capacities that their rules cannot reach.
    pub fn push(&mut self, entry: T) {
        self.entries[self.length] = entry;
        self.length += 1;
    }

    /// Removes the oldest entry that matches and returns the index where it stood.
    pub fn remove_first(&mut self, matches: impl Fn(&T) -> bool) -> Option<usize> {
        let index = self.iter().position(matches)?;
        self.entries.copy_within(index + 1..self.length, index);
        self.length -= 1;
        Some(index)
    }
}

impl<T: Entry, const N: usize> Default for Roster<T, N> {
    fn default() -> Self {
        Self { entries: [T::default(); N], length: 0 }
    }
}

impl<T: Entry, const N: usize> Deref for Roster<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.entries[..self.length]
    }
}

impl<T: Entry, const N: usize> DerefMut for Roster<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.entries[..self.length]
    }
}

impl<T: Entry, const N: usize> From<Roster<T, N>> for Vec<T> {
    fn from(roster: Roster<T, N>) -> Self {
        roster.to_vec()
    }
}

impl<T: Entry, const N: usize> TryFrom<Vec<T>> for Roster<T, N> {
    type Error = String;

    fn try_from(list: Vec<T>) -> Result<Self, String> {
        if list.len() > N {
            return Err(format!("{} entries where at most {N} fit", list.len()));
        }
        let mut roster = Self::default();
        for entry in list {
            roster.push(entry);
        }
        Ok(roster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_match_is_removed_and_the_order_kept() {
        let mut roster: Roster<u8, 4> = vec![5, 7, 5, 9].try_into().unwrap();
        assert_eq!(roster.remove_first(|&entry| entry == 5), Some(0));
        assert_eq!(roster[..], [7, 5, 9]);
        assert_eq!(roster.remove_first(|&entry| entry == 4), None);
    }

    #[test]
    fn a_list_longer_than_the_capacity_is_refused() {
        assert_eq!(Roster::<u8, 2>::try_from(vec![1, 2, 3]).unwrap_err(), "3 entries where at most 2 fit");
    }
}
