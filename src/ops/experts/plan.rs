//! Where each expert's rows are.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::super::storage::refuse;

/// The order of the N·k (row, expert) pairs of a batch when they are grouped by expert, the rows of one expert in the
/// order of the batch. Built on the host, a function of the ids alone; cheap to clone.
#[derive(Debug, Clone)]
pub struct ExpertPlan {
    pub(super) pairs: Arc<Pairs>,
}

/// What a plan knows. A pair has a *place* in the batch, `n · k + j`, and a *position* in the grouped order.
#[derive(Debug)]
pub(super) struct Pairs {
    /// N.
    pub(super) rows: usize,
    /// k.
    pub(super) each: usize,
    counts: Vec<usize>,
    /// Position of each expert's first pair, and the number of pairs at the end.
    starts: Vec<usize>,
    /// The place of the pair at each position.
    places: Vec<u32>,
    /// The positions of each row's k pairs, rising: in the order of expert ids.
    positions: Vec<u32>,
}

impl ExpertPlan {
    /// From ids `[N, k > 0]` (`u32`) of `experts` experts. Errors when an id is out of range or one row has it twice.
    pub fn new(ids: &Tensor, experts: usize) -> Result<Self> {
        let (rows, each) = match (ids.dims(), ids.dtype()) {
            (&[rows, each], DType::U32) if each > 0 && u32::try_from(rows * each).is_ok() => (rows, each),
            (shape, dtype) => {
                return refuse("experts", format!("{dtype:?} ids {shape:?} must be [N, k > 0] of u32"));
            }
        };
        let ids: Vec<u32> = ids.flatten_all()?.to_vec1()?;
        check_ids("experts", &ids, each, experts)?;
        let mut counts = vec![0; experts];
        for &id in &ids {
            counts[id as usize] += 1;
        }
        let mut starts = vec![0; experts + 1];
        for (expert, &count) in counts.iter().enumerate() {
            starts[expert + 1] = starts[expert] + count;
        }
        let mut next = starts.clone();
        let (mut places, mut positions) = (vec![0; ids.len()], vec![0; ids.len()]);
        for (place, &id) in ids.iter().enumerate() {
            let position = next[id as usize];
            next[id as usize] += 1;
            places[position] = place as u32;
            positions[place] = position as u32;
        }
        // An expert's positions lie above those of every expert with a lower id.
        positions.chunks_exact_mut(each).for_each(<[u32]>::sort_unstable);
        Ok(Self { pairs: Arc::new(Pairs { rows, each, counts, starts, places, positions }) })
    }

    /// Rows of each expert.
    #[must_use]
    pub fn counts(&self) -> &[usize] {
        &self.pairs.counts
    }

    /// The rows of one expert in what [`super::dispatch`] gives. Panics when there is no such expert.
    #[must_use]
    pub fn range(&self, expert: usize) -> Range<usize> {
        self.pairs.starts[expert]..self.pairs.starts[expert + 1]
    }

    /// The rows of each expert.
    #[cfg(feature = "cuda")]
    pub(super) fn ranges(&self) -> Vec<Range<usize>> {
        (0..self.pairs.counts.len()).map(|expert| self.range(expert)).collect()
    }

    /// N.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.pairs.rows
    }
}

impl Pairs {
    /// N·k.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The place (`n · k + j`) of the pair at a position.
    pub(super) fn place(&self, position: usize) -> usize {
        self.places[position] as usize
    }

    /// Positions of the pairs of row `n`, in the order of expert ids.
    pub(super) fn positions(&self, n: usize) -> impl Iterator<Item = usize> {
        self.positions[n * self.each..][..self.each].iter().map(|&position| position as usize)
    }

    /// The rows of x, in the grouped order.
    pub(super) fn row_indices(&self) -> Vec<u32> {
        self.places.iter().map(|place| place / self.each as u32).collect()
    }

    /// The positions of each row's pairs in the order of expert ids, and which choice of the row each of them is.
    #[cfg(feature = "cuda")]
    pub(super) fn routes(&self) -> (Vec<u32>, Vec<u32>) {
        let choices =
            self.positions.iter().map(|&position| self.places[position as usize] % self.each as u32);
        (self.positions.clone(), choices.collect())
    }

    /// The position of each place.
    pub(super) fn position_of_places(&self) -> Vec<u32> {
        let mut positions = vec![0; self.len()];
        for (position, &place) in self.places.iter().enumerate() {
            positions[place as usize] = position as u32;
        }
        positions
    }
}

/// Refuses ids that are not below `experts` and rows (of `each`) that hold an id twice.
pub(super) fn check_ids(operator: &str, ids: &[u32], each: usize, experts: usize) -> Result<()> {
    for (row, ids) in ids.chunks_exact(each).enumerate() {
        for (place, &id) in ids.iter().enumerate() {
            if id as usize >= experts {
                return refuse(operator, format!("expert {id} of row {row} is not below {experts}"));
            }
            if ids[..place].contains(&id) {
                return refuse(operator, format!("row {row} has expert {id} twice"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn pairs_are_grouped_by_expert_and_rows_stay_in_order() {
        let ids = Tensor::new(&[[2_u32, 0], [4, 2], [0, 4]], &Device::Cpu).unwrap();
        let plan = ExpertPlan::new(&ids, 6).unwrap();
        assert_eq!(plan.counts(), [2, 0, 2, 0, 2, 0]);
        assert_eq!((plan.range(0), plan.range(1), plan.range(4)), (0..2, 2..2, 4..6));
        assert_eq!(plan.pairs.row_indices(), [0, 2, 0, 1, 1, 2]);
        assert_eq!(plan.pairs.position_of_places(), [2, 0, 4, 3, 1, 5]);
        let positions: Vec<Vec<usize>> = (0..3).map(|n| plan.pairs.positions(n).collect()).collect();
        assert_eq!(positions, [[0, 2], [3, 4], [1, 5]]);
    }

    #[test]
    fn ids_that_cannot_be_are_refused() {
        let message = |ids: &Tensor| ExpertPlan::new(ids, 4).unwrap_err().to_string();
        let ids = |rows: &[[u32; 2]]| Tensor::from_vec(rows.concat(), (rows.len(), 2), &Device::Cpu).unwrap();
        assert!(message(&ids(&[[0, 1], [2, 4]])).contains("expert 4 of row 1 is not below 4"));
        assert!(message(&ids(&[[0, 1], [3, 3]])).contains("row 1 has expert 3 twice"));
        assert!(message(&ids(&[[0, 1]]).to_dtype(DType::U8).unwrap()).contains("u32"));
        assert!(message(&ids(&[[0, 1]]).flatten_all().unwrap()).contains("[N, k > 0]"));
        assert!(message(&Tensor::zeros((3, 0), DType::U32, &Device::Cpu).unwrap()).contains("[N, k > 0]"));
    }
}
