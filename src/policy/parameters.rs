//! Named parameters in a fixed order.
//!
//! A [`Layout`] lists name, shape and initial distribution of every parameter of an architecture; networks keep the
//! [`ParameterId`]s that it hands out. [`Parameters`] holds one tensor for each entry. Order and names are the same
//! in memory, in optimiser state and in files.

use std::ops::Index;
use std::sync::{Arc, OnceLock, Weak};

use candle_core::{DType, Device, Result, Shape, Tensor, Var};

use crate::ops::{GradientSum, PreparedWeight, WeightRef};
use crate::random::{Stream, draw, normal_pair};

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initializer {
    /// Every element the same.
    Constant(f32),
    /// Rows (of the matrix `[first dimension, rest]`) or columns orthonormal, times a gain (Saxe et al. 2014).
    Orthogonal(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
}

/// Position of a parameter in its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterId(usize);

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    initializer: Initializer,
}

/// The list of an architecture's parameters.
#[derive(Debug, Clone, Default)]
pub struct Layout(Vec<Entry>);

impl Layout {
    /// Adds a parameter. Names are unique paths such as `torso.0.weight`.
    pub fn add(&mut self, name: impl Into<String>, shape: &[usize], initializer: Initializer) -> ParameterId {
        let name = name.into();
        debug_assert!(self.0.iter().all(|entry| entry.name != name), "parameter {name} declared twice");
        self.0.push(Entry { name, shape: shape.to_vec(), initializer });
        ParameterId(self.0.len() - 1)
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.name.as_str())
    }

    /// Names and shapes in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.0.iter().map(|entry| (entry.name.as_str(), entry.shape.as_slice()))
    }

    /// One parameter as [`initialize`](Self::initialize) draws it, on the CPU; `None` when there is none of that name.
    pub fn initial(&self, name: &str, seed: u64) -> Result<Option<Tensor>> {
        let found = self.0.iter().enumerate().find(|(_, entry)| entry.name == name);
        let draw = |(index, entry): (usize, &Entry)| {
            Tensor::from_vec(initial_values(entry, seed, index as u32), entry.shape.as_slice(), &Device::Cpu)
        };
        found.map(draw).transpose()
    }

    /// Draws every parameter from the run seed; the same seed gives the same bits on every device.
    pub fn initialize(&self, seed: u64, device: &Device) -> Result<Parameters> {
        let tensors = self.draw(seed, device, |_| true)?.into_iter().map(|(_, tensor)| tensor).collect();
        Ok(Parameters::changing(self.shared_names(), tensors))
    }

    /// The initial values of some parameters, as [`Layout::initialize`] would draw them.
    pub fn draw(
        &self,
        seed: u64,
        device: &Device,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Tensor)>> {
        let entries = self.0.iter().enumerate().filter(|(_, entry)| wanted(&entry.name));
        entries
            .map(|(index, entry)| {
                let values = initial_values(entry, seed, index as u32);
                let tensor = Tensor::from_vec(values, entry.shape.as_slice(), device)?;
                Ok((entry.name.clone(), tensor))
            })
            .collect()
    }

    /// Takes named tensors (from a file) as this architecture's parameters.
    ///
    /// # Errors
    /// Names the first parameter that is missing, superfluous or of another shape.
    pub fn adopt(&self, named: Vec<(String, Tensor)>, device: &Device) -> Result<Parameters> {
        let mut found: std::collections::HashMap<String, Tensor> = named.into_iter().collect();
        let mut tensors = Vec::with_capacity(self.0.len());
        for entry in &self.0 {
            let Some(tensor) = found.remove(&entry.name) else {
                candle_core::bail!(
                    "parameter `{}` is missing: the file is of another architecture",
                    entry.name
                );
            };
            if tensor.dims() != entry.shape.as_slice() {
                candle_core::bail!(
                    "parameter `{}` has shape {:?}, this architecture needs {:?}",
                    entry.name,
                    tensor.dims(),
                    entry.shape
                );
            }
            tensors.push(tensor.to_device(device)?.to_dtype(DType::F32)?);
        }
        if let Some(name) = found.keys().min() {
            candle_core::bail!("parameter `{name}` is not known: the file is of another architecture");
        }
        Ok(Parameters::changing(self.shared_names(), tensors))
    }

    fn shared_names(&self) -> Arc<[String]> {
        self.0.iter().map(|entry| entry.name.clone()).collect()
    }
}

/// The laid-out form of a weight, once it was used; `None` inside for what no operator takes as a weight.
type Prepared = Arc<OnceLock<Option<PreparedWeight>>>;

/// A version where its readers compute ([`Parameters::placed`]).
#[derive(Debug, Clone)]
pub struct PlacedCopy {
    /// The parameters there.
    pub parameters: Parameters,
    /// The places of the published parameters' laid-out forms: versions share them for what does not change between
    /// them, and so it is known again. Weak, which keeps the addresses from being used anew, and nothing else.
    marks: Vec<Option<Weak<OnceLock<Option<PreparedWeight>>>>>,
}

impl PlacedCopy {
    /// Whether its parameter `index` has the values of the published one with this place.
    fn is_of(&self, place: Option<&Option<Prepared>>, index: usize) -> bool {
        let (Some(Some(place)), Some(Some(mark))) = (place, self.marks.get(index)) else { return false };
        std::ptr::eq(mark.as_ptr(), Arc::as_ptr(place))
    }
}

/// One tensor for each entry of a layout.
#[derive(Debug, Clone)]
pub struct Parameters {
    names: Arc<[String]>,
    tensors: Vec<Tensor>,
    /// For each parameter that no longer changes: the weight as operators want it, laid out at its first use and shared
    /// by all readers. Empty, or none, for parameters that may still change.
    prepared: Arc<[Option<Prepared>]>,
    /// Where operators add up the gradients of these parameters. Empty unless [`Parameters::collecting`].
    gradients: Arc<[Option<GradientSum>]>,
}

impl Index<ParameterId> for Parameters {
    type Output = Tensor;

    fn index(&self, id: ParameterId) -> &Tensor {
        &self.tensors[id.0]
    }
}

impl Parameters {
    fn changing(names: Arc<[String]>, tensors: Vec<Tensor>) -> Self {
        Self { names, tensors, prepared: Arc::new([]), gradients: Arc::new([]) }
    }

    /// A parameter as a weight of an operator, laid out already if it no longer changes.
    #[must_use]
    pub fn weight(&self, id: ParameterId) -> WeightRef<'_> {
        let tensor = &self[id];
        // A weight that cannot be laid out is used as it is; the operator will say what is wrong with it.
        let prepare = || PreparedWeight::new(tensor).unwrap_or(None);
        let place = self.prepared.get(id.0).and_then(Option::as_ref);
        WeightRef {
            tensor,
            prepared: place.and_then(|place| place.get_or_init(prepare).as_ref()),
            gradients: self.gradients.get(id.0).and_then(Option::as_ref),
        }
    }

    /// A parameter as a weight of an operator that has no use for a prepared form.
    #[must_use]
    pub fn table(&self, id: ParameterId) -> WeightRef<'_> {
        let gradients = self.gradients.get(id.0).and_then(Option::as_ref);
        WeightRef { tensor: &self[id], prepared: None, gradients }
    }

    /// Names and tensors in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.names.iter().map(String::as_str).zip(&self.tensors)
    }

    /// Number of scalars.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.tensors.iter().map(Tensor::elem_count).sum()
    }

    /// An independent copy on `device` that shares no storage and records no graph: what is published.
    pub fn deep_copy(&self, device: &Device) -> Result<Self> {
        let copy = |tensor: &Tensor| {
            let tensor = tensor.detach();
            if tensor.device().same_device(device) { tensor.copy() } else { tensor.to_device(device) }
        };
        let tensors = self.tensors.iter().map(copy).collect::<Result<Vec<_>>>()?;
        let prepared = tensors.iter().map(|_| Some(Prepared::default())).collect();
        Ok(Self { names: self.names.clone(), tensors, prepared, gradients: Arc::new([]) })
    }

    /// Published parameters for readers on `device` that compute in `dtype`: the same where they are so already, else a
    /// copy. It shares with `before`, such a copy of an earlier version, what no update changes.
    ///
    /// # Errors
    /// When a device has no memory for it.
    pub fn placed(&self, device: &Device, dtype: DType, before: Option<&PlacedCopy>) -> Result<PlacedCopy> {
        let fits = |tensor: &Tensor| tensor.device().same_device(device) && tensor.dtype() == dtype;
        let marks = self.prepared.iter().map(|place| place.as_ref().map(Arc::downgrade)).collect();
        if self.tensors.iter().all(fits) {
            return Ok(PlacedCopy { parameters: self.clone(), marks });
        }
        let (mut tensors, mut prepared) = (Vec::with_capacity(self.tensors.len()), Vec::new());
        for (index, tensor) in self.tensors.iter().enumerate() {
            let same = before.filter(|before| before.is_of(self.prepared.get(index), index));
            if let Some(PlacedCopy { parameters, .. }) = same {
                tensors.push(parameters.tensors[index].clone());
                prepared.push(parameters.prepared[index].clone());
            } else {
                tensors.push(tensor.detach().to_device(device)?.to_dtype(dtype)?);
                prepared.push(Some(Prepared::default()));
            }
        }
        let names = self.names.clone();
        let parameters = Self { names, tensors, prepared: prepared.into(), gradients: Arc::new([]) };
        Ok(PlacedCopy { parameters, marks })
    }

    /// What is published where some parameters are frozen ([`Parameters::to_variables_where`]): copies of those that
    /// may still change; the frozen ones share their storage and laid-out form with all other such copies.
    pub fn snapshot(&self) -> Result<Self> {
        let place = |index: usize| self.prepared.get(index).and_then(Option::as_ref);
        let copy = |(index, tensor): (usize, &Tensor)| match place(index) {
            Some(_) => Ok(tensor.detach()),
            None => tensor.detach().copy(),
        };
        let tensors = self.tensors.iter().enumerate().map(copy).collect::<Result<Vec<_>>>()?;
        let prepared = (0..tensors.len()).map(|index| Some(place(index).cloned().unwrap_or_default()));
        let prepared = prepared.collect();
        Ok(Self { names: self.names.clone(), tensors, prepared, gradients: Arc::new([]) })
    }

    /// A [`Parameters::snapshot`] with other values of those that may still change, such as a checkpoint's.
    ///
    /// # Errors
    /// Names the first that is missing, superfluous or of another shape.
    pub fn snapshot_with(&self, named: Vec<(String, Tensor)>) -> Result<Self> {
        let mut found: std::collections::HashMap<String, Tensor> = named.into_iter().collect();
        let mut snapshot = self.snapshot()?;
        for (index, name) in self.names.iter().enumerate() {
            if self.prepared.get(index).is_some_and(Option::is_some) {
                continue;
            }
            let Some(tensor) = found.remove(name) else {
                candle_core::bail!("parameter `{name}` is missing")
            };
            let (own, dims) = (&mut snapshot.tensors[index], tensor.dims());
            if own.dims() != dims {
                candle_core::bail!("parameter `{name}` has shape {dims:?}, not {:?}", own.dims());
            }
            *own = tensor.to_device(own.device())?.to_dtype(own.dtype())?;
        }
        match found.keys().min() {
            Some(name) => candle_core::bail!("parameter `{name}` is not among those that are trained"),
            None => Ok(snapshot),
        }
    }

    /// The same storage without gradient tracking, for forward passes of the learner that need no graph.
    #[must_use]
    pub fn detached(&self) -> Self {
        let tensors = self.tensors.iter().map(Tensor::detach).collect();
        Self { prepared: self.prepared.clone(), ..Self::changing(self.names.clone(), tensors) }
    }

    /// Differentiable variables with these values, in order, and the parameters that refer to them.
    pub fn to_variables(&self) -> Result<(Vec<(String, Var)>, Self)> {
        self.to_variables_where(|_| true)
    }

    /// [`Parameters::to_variables`] of those that `trained` names; the others are frozen: they keep their storage,
    /// which nobody may change from now on, and get no gradient.
    pub fn to_variables_where(&self, trained: impl Fn(&str) -> bool) -> Result<(Vec<(String, Var)>, Self)> {
        let (mut variables, mut tensors, mut prepared) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (name, tensor)) in self.iter().enumerate() {
            if trained(name) {
                let variable = Var::from_tensor(&tensor.detach())?;
                variables.push((name.to_owned(), variable.clone()));
                tensors.push(variable.into_inner());
                prepared.push(None);
            } else {
                tensors.push(tensor.detach());
                prepared.push(Some(self.prepared.get(index).cloned().flatten().unwrap_or_default()));
            }
        }
        let parameters = Self::changing(self.names.clone(), tensors);
        Ok((variables, Self { prepared: prepared.into(), ..parameters }))
    }

    /// The same parameters, the gradients of which operators add to `sums` (in order; none: by automatic
    /// differentiation alone).
    #[must_use]
    pub fn collecting(&self, sums: Arc<[Option<GradientSum>]>) -> Self {
        Self { gradients: sums, ..self.clone() }
    }

    /// A copy of another float type.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        let tensors = self.tensors.iter().map(|tensor| tensor.detach().to_dtype(dtype));
        Ok(Self::changing(self.names.clone(), tensors.collect::<Result<_>>()?))
    }
}

fn initial_values(entry: &Entry, seed: u64, index: u32) -> Vec<f32> {
    let count = Shape::from(entry.shape.as_slice()).elem_count();
    match entry.initializer {
        Initializer::Constant(value) => vec![value; count],
        Initializer::Normal(deviation) => {
            normals(|block| draw(seed, Stream::Parameters, [index, block, 0, 0]))
                .take(count)
                .map(|normal| deviation * normal)
                .collect()
        }
        Initializer::Orthogonal(gain) => {
            let rows = entry.shape.first().copied().unwrap_or(1);
            orthogonal(rows, count / rows.max(1), gain, |block| {
                draw(seed, Stream::Parameters, [index, block, 0, 0])
            })
        }
    }
}

/// Standard normal values, four of each block.
fn normals(words: impl Fn(u32) -> [u32; 4]) -> impl Iterator<Item = f32> {
    (0u32..).flat_map(move |block| {
        let [a, b, c, d] = words(block);
        let [[p, q], [r, s]] = [normal_pair([a, b]), normal_pair([c, d])];
        [p, q, r, s]
    })
}

/// A `[rows, columns]` matrix whose shorter side is orthonormal (modified Gram–Schmidt in f64 on normal vectors).
fn orthogonal(rows: usize, columns: usize, gain: f32, words: impl Fn(u32) -> [u32; 4]) -> Vec<f32> {
    let (vectors, length) = (rows.min(columns), rows.max(columns));
    let mut normals = normals(words);
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(vectors);
    while basis.len() < vectors {
        let mut vector: Vec<f64> = normals.by_ref().take(length).map(f64::from).collect();
        for earlier in &basis {
            let dot: f64 = vector.iter().zip(earlier).map(|(x, y)| x * y).sum();
            vector.iter_mut().zip(earlier).for_each(|(x, y)| *x -= dot * y);
        }
        let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        // A vector inside the span of the others (probability zero) is drawn again.
        if norm > 1e-6 {
            vector.iter_mut().for_each(|x| *x /= norm);
            basis.push(vector);
        }
    }
    let gain = f64::from(gain);
    let at = |row: usize, column: usize| {
        if rows <= columns { basis[row][column] } else { basis[column][row] }
    };
    (0..rows * columns).map(|i| (gain * at(i / columns, i % columns)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orthogonal_initialisation_has_orthonormal_rows_or_columns() -> Result<()> {
        for (rows, columns) in [(3, 7), (7, 3), (4, 4), (1, 5)] {
            let mut layout = Layout::default();
            let id = layout.add("w", &[rows, columns], Initializer::Orthogonal(2.0));
            let w = layout.initialize(5, &Device::Cpu)?[id].clone();
            let gram = if rows <= columns { w.matmul(&w.t()?)? } else { w.t()?.matmul(&w)? };
            let n = rows.min(columns);
            for (i, row) in gram.to_vec2::<f32>()?.iter().enumerate() {
                for (j, value) in row.iter().enumerate().take(n) {
                    let expected = if i == j { 4.0 } else { 0.0 };
                    assert!((value - expected).abs() < 1e-5, "{rows}x{columns}: {value} at {i},{j}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_published_copy_is_not_changed_by_a_later_update() -> Result<()> {
        let mut layout = Layout::default();
        let id = layout.add("w", &[2], Initializer::Constant(1.0));
        let (variables, live) = layout.initialize(0, &Device::Cpu)?.to_variables()?;
        let published = live.deep_copy(&Device::Cpu)?;
        variables[0].1.set(&Tensor::new(&[5f32, 6.0], &Device::Cpu)?)?;
        assert_eq!(live[id].to_vec1::<f32>()?, [5.0, 6.0]);
        assert_eq!(published[id].to_vec1::<f32>()?, [1.0, 1.0]);
        assert!(!published[id].track_op());
        Ok(())
    }

    #[test]
    fn a_snapshot_copies_what_is_trained_and_shares_what_is_frozen() -> Result<()> {
        let mut layout = Layout::default();
        let ids = ["trained", "frozen"].map(|name| layout.add(name, &[2, 3], Initializer::Constant(1.0)));
        let initial = layout.initialize(0, &Device::Cpu)?;
        let (variables, live) = initial.to_variables_where(|name| name == "trained")?;
        let [one, other] = [live.snapshot()?, live.snapshot()?];
        variables[0].1.set(&Tensor::full(5f32, (2, 3), &Device::Cpu)?)?;
        let storage = |parameters: &Parameters, id| {
            let (storage, _) = parameters[id].storage_and_layout();
            std::ptr::from_ref(&*storage)
        };
        for snapshot in [&one, &other] {
            assert_eq!(snapshot[ids[0]].flatten_all()?.to_vec1::<f32>()?, [1.0; 6]);
            assert_eq!(storage(snapshot, ids[1]), storage(&live, ids[1]));
            assert!(snapshot.iter().all(|(_, tensor)| !tensor.track_op()));
        }
        assert_ne!(storage(&one, ids[0]), storage(&other, ids[0]));
        let laid_out = |parameters: &Parameters, id: ParameterId| {
            let _ = parameters.weight(id);
            parameters.prepared[id.0].clone()
        };
        let [a, b] = [&one, &live].map(|parameters| laid_out(parameters, ids[1]).unwrap());
        assert!(Arc::ptr_eq(&a, &b));
        assert!(laid_out(&live, ids[0]).is_none());
        Ok(())
    }

    #[test]
    fn parameters_of_another_architecture_are_refused_by_name() {
        let mut layout = Layout::default();
        layout.add("w", &[2], Initializer::Constant(0.0));
        let tensor = |n: usize| Tensor::zeros(n, DType::F32, &Device::Cpu).unwrap();
        let adopt = |named| layout.adopt(named, &Device::Cpu).unwrap_err().to_string();
        assert!(adopt(vec![]).contains("`w` is missing"));
        assert!(adopt(vec![("w".into(), tensor(3))]).contains("`w` has shape [3]"));
        assert!(adopt(vec![("w".into(), tensor(2)), ("v".into(), tensor(2))]).contains("`v` is not known"));
    }
}
