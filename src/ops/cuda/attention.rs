//! Causal attention over packed sequences and over pages; `kernels/attention*.cu`. q `[N, H, D]`, k and v `[N, G, D]`.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};

use super::super::storage::refuse;
use super::launch::{ATTENTION, ATTENTION_BACKWARD, Argument, Grid, int, launch, long, typed};
use super::view::{Array, View, lock};

/// Keys of a tile, and slots (query row times head of a group) of a block; `kernels/attention.cuh` has the same.
const KEYS: usize = 32;
const SLOTS: usize = 64;
/// The widest head.
pub(crate) const MOST_COLUMNS: usize = 256;

/// What the blocks of a packed batch have to do, on the device. It depends on the sequences and on the heads in a
/// group, so all layers of a model share one.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// N.
    rows: usize,
    /// H / G.
    group: usize,
    sequences: Tensor,
    query_tasks: Tensor,
    key_tasks: Tensor,
    users: Tensor,
}

/// Rows of small numbers on a device, which cannot hold a tensor of nothing: there is a row more behind them.
fn table<const WIDTH: usize>(rows: &[[u32; WIDTH]], device: &Device) -> Result<Tensor> {
    let mut numbers = rows.concat();
    numbers.extend([0; WIDTH]);
    Tensor::from_vec(numbers, (rows.len() + 1, WIDTH), device)?.narrow(0, 0, rows.len())
}

/// The first slot of each block's share of a number of slots.
fn blocks_of(sequence: usize, rows: usize, group: usize) -> impl Iterator<Item = [u32; 2]> {
    (0..rows * group).step_by(SLOTS).map(move |slot| [sequence as u32, slot as u32])
}

impl Plan {
    /// For sequences given as rows of a prefix and rows of their own, checked by the operator: every row is some
    /// sequence's own, and no prefix goes beyond the batch.
    pub(crate) fn new(
        sequences: &[(Range<usize>, Range<usize>)],
        group: usize,
        device: &Device,
    ) -> Result<Self> {
        let rows: usize = sequences.iter().map(|(_, own)| own.len()).sum();
        if rows.saturating_mul(group) > i32::MAX as usize {
            return refuse("attention", format!("{rows} rows of {group} heads are too many for one batch"));
        }
        let described: Vec<[u32; 4]> = sequences
            .iter()
            .map(|(prefix, own)| {
                [prefix.start, prefix.len(), own.start, own.len()].map(|number| number as u32)
            })
            .collect();
        let query_tasks: Vec<[u32; 2]> = sequences
            .iter()
            .enumerate()
            .flat_map(|(index, (_, own))| blocks_of(index, own.len(), group))
            .collect();
        let (mut key_tasks, mut users) = (Vec::new(), Vec::<[u32; 6]>::new());
        for (_, own) in sequences {
            for first in own.clone().step_by(KEYS) {
                let tile = first..(first + KEYS).min(own.end);
                let first_user = users.len();
                for (prefix, rows) in sequences {
                    // A prefix comes before the rows in the order of positions.
                    let seen = [(prefix, 0), (rows, prefix.len())];
                    for (seen, position) in seen {
                        let low = tile.start.max(seen.start);
                        let high = tile.end.min(seen.end);
                        if low < high {
                            let offset = position as i64 - seen.start as i64;
                            let [length, start, count] =
                                [prefix.len(), rows.start, rows.len()].map(|n| n as u32);
                            // Two's complement: the kernel reads `int`.
                            users.push([length, start, count, low as u32, high as u32, offset as i32 as u32]);
                        }
                    }
                }
                let count = users.len() - first_user;
                key_tasks.push([tile.start, tile.len(), first_user, count].map(|number| number as u32));
            }
        }
        Ok(Self {
            rows,
            group,
            sequences: table(&described, device)?,
            query_tasks: table(&query_tasks, device)?,
            key_tasks: table(&key_tasks, device)?,
            users: table(&users, device)?,
        })
    }
}

/// H, G and D, when everything fits.
fn check(q: &View, k: &View, v: &View) -> Result<[usize; 3]> {
    let (_, heads, width) = q.shape().dims3()?;
    let (_, kv_heads, key_width) = k.shape().dims3()?;
    let types_fit = k.dtype() == q.dtype() && v.dtype() == q.dtype();
    if k.dims() != v.dims() || key_width != width || kv_heads == 0 || heads % kv_heads != 0 || !types_fit {
        return refuse("attention", format!("q {:?}, k {:?}, v {:?}", q.dims(), k.dims(), v.dims()));
    }
    if width > MOST_COLUMNS {
        return refuse("attention", format!("heads of {width} columns; the kernel takes {MOST_COLUMNS}"));
    }
    Ok([heads, kv_heads, width])
}

/// The kernel for heads of a width.
fn sized(kernel: &str, width: usize, dtype: DType) -> Result<String> {
    let size = [64, 128].into_iter().find(|&size| width <= size).unwrap_or(MOST_COLUMNS);
    typed(&format!("{kernel}_{size}"), dtype)
}

/// So many rows of `width` values in shared memory; `kernels/attention.cuh` has the same as `stride_of`.
fn tiles(rows: usize, width: usize) -> usize {
    rows * (width.next_multiple_of(4) + 4)
}

/// Shared memory of the forward pass: a tile of queries, one of keys or values, probabilities. The last columns of a
/// narrow head read behind it, hence the most that a head may have.
fn forward_shared(width: usize) -> usize {
    tiles(SLOTS + KEYS, width) + tiles(SLOTS, KEYS) + MOST_COLUMNS
}

/// The result `[N, H, D]`, and the logarithms of the sums of exponentials, f32 `[N, H]`.
pub(crate) fn forward(q: &View, k: &View, v: &View, plan: &Plan, scale: f64) -> Result<(Array, Array)> {
    let [heads, kv_heads, width] = check(q, k, v)?;
    if q.dims()[0] != plan.rows || k.dims()[0] != plan.rows || heads / kv_heads != plan.group {
        return refuse("attention", format!("q {:?}, k {:?} for another plan", q.dims(), k.dims()));
    }
    let device = q.device();
    let mut out = Array::like(q)?;
    let mut log_sums = Array::new(&device, DType::F32, (plan.rows, heads))?;
    let (sequences, tasks) = (lock(&plan.sequences), lock(&plan.query_tasks));
    let (sequences, tasks) = (sequences.view()?, tasks.view()?);
    launch(
        &device,
        ATTENTION,
        &sized("attention_forward", width, q.dtype())?,
        Grid { blocks: [tasks.dims()[0], kv_heads, 1], shared: forward_shared(width) },
        &mut [
            q.into(),
            k.into(),
            v.into(),
            (&sequences).into(),
            (&tasks).into(),
            (&mut out).into(),
            (&mut log_sums).into(),
            int(heads)?,
            int(kv_heads)?,
            int(width)?,
            (scale as f32).into(),
        ],
    )?;
    Ok((out, log_sums))
}

/// What the backward pass needs from the forward pass.
pub(crate) struct Saved<'a> {
    pub(crate) out: View<'a>,
    pub(crate) log_sums: View<'a>,
}

/// Gradients of q, k and v from that of the result.
pub(crate) fn backward(
    q: &View,
    k: &View,
    v: &View,
    saved: &Saved,
    gradient: &View,
    plan: &Plan,
    scale: f64,
) -> Result<[Array; 3]> {
    let [heads, kv_heads, width] = check(q, k, v)?;
    if gradient.dims() != q.dims() || gradient.dtype() != q.dtype() || saved.out.dims() != q.dims() {
        return refuse("attention", format!("gradient {:?} for q {:?}", gradient.dims(), q.dims()));
    }
    let (device, dtype) = (q.device(), q.dtype());
    let slots = plan.rows * heads;
    let mut delta = Array::new(&device, DType::F32, (plan.rows, heads))?;
    launch(
        &device,
        ATTENTION_BACKWARD,
        &typed("attention_delta", dtype)?,
        Grid::warps(slots),
        &mut [(&saved.out).into(), gradient.into(), (&mut delta).into(), long(slots), int(width)?],
    )?;
    let delta = delta.view();
    let sizes =
        || -> Result<[Argument; 4]> { Ok([int(heads)?, int(kv_heads)?, int(width)?, (scale as f32).into()]) };

    let mut of_q = Array::like(q)?;
    let (sequences, tasks) = (lock(&plan.sequences), lock(&plan.query_tasks));
    let (sequences, tasks) = (sequences.view()?, tasks.view()?);
    let mut arguments: Vec<Argument> = [q, k, v, &sequences, &tasks].map(Into::into).into();
    arguments.extend([gradient, &saved.log_sums, &delta].map(Argument::from));
    arguments.push((&mut of_q).into());
    arguments.extend(sizes()?);
    let shared = tiles(2 * SLOTS + 2 * KEYS, width) + tiles(SLOTS, KEYS) + MOST_COLUMNS;
    let grid = Grid { blocks: [tasks.dims()[0], kv_heads, 1], shared };
    launch(
        &device,
        ATTENTION_BACKWARD,
        &sized("attention_backward_queries", width, dtype)?,
        grid,
        &mut arguments,
    )?;

    let (mut of_k, mut of_v) = (Array::like(k)?, Array::like(v)?);
    let (tasks, users) = (lock(&plan.key_tasks), lock(&plan.users));
    let (tasks, users) = (tasks.view()?, users.view()?);
    let mut arguments: Vec<Argument> = [q, k, v, &tasks, &users].map(Into::into).into();
    arguments.extend([gradient, &saved.log_sums, &delta].map(Argument::from));
    arguments.extend([(&mut of_k).into(), (&mut of_v).into()]);
    arguments.extend(sizes()?);
    let shared = tiles(4 * KEYS, width) + 2 * tiles(KEYS, KEYS) + MOST_COLUMNS;
    let grid = Grid { blocks: [tasks.dims()[0], kv_heads, 1], shared };
    launch(
        &device,
        ATTENTION_BACKWARD,
        &sized("attention_backward_keys", width, dtype)?,
        grid,
        &mut arguments,
    )?;
    Ok([of_q, of_k, of_v])
}

/// New rows of one sequence whose keys and values, those of the new rows included, lie in pages.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Position of the first new row.
    pub(crate) first_position: usize,
    /// The new rows in q.
    pub(crate) rows: Range<usize>,
    /// The pages of the sequence, in order.
    pub(crate) pages: Vec<u32>,
}

/// What the blocks of a pass of new rows against pages have to do, on the device. It does not depend on keys and
/// values, so all layers of a model share one.
#[derive(Debug, Clone)]
pub(crate) struct PagedPlan {
    /// N.
    rows: usize,
    /// H / G.
    group: usize,
    page_rows: usize,
    /// One more than the highest page.
    pages: usize,
    requests: Tensor,
    page_list: Tensor,
    tasks: Tensor,
}

impl PagedPlan {
    /// For some of N rows of queries and pages of `page_rows` positions.
    pub(crate) fn new(
        requests: &[Request],
        rows: usize,
        group: usize,
        page_rows: usize,
        device: &Device,
    ) -> Result<Self> {
        if page_rows == 0 || rows.saturating_mul(group) > i32::MAX as usize {
            return refuse("attention", format!("{rows} rows of {group} heads, pages of {page_rows}"));
        }
        let (mut described, mut page_list, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for (index, request) in requests.iter().enumerate() {
            let last = request.first_position + request.rows.len();
            if request.rows.end > rows || request.pages.len() * page_rows < last {
                return refuse("attention", format!("request {index} {request:?} for {rows} rows"));
            }
            let numbers = [request.first_position, request.rows.start, request.rows.len(), page_list.len()];
            described.push(numbers.map(|number| number as u32));
            page_list.extend(request.pages.iter().map(|&page| [page]));
            tasks.extend(blocks_of(index, request.rows.len(), group));
        }
        Ok(Self {
            rows,
            group,
            page_rows,
            pages: page_list.iter().map(|[page]| *page as usize + 1).max().unwrap_or(0),
            requests: table(&described, device)?,
            page_list: table(&page_list, device)?,
            tasks: table(&tasks, device)?,
        })
    }
}

/// Attention of new rows q `[N, H, D]` to `keys` and `values` `[pages, page rows, G, D]`: the bits of [`forward`] for
/// the same sequences. Rows that no request names are not written.
pub(crate) fn paged(q: &View, keys: &View, values: &View, plan: &PagedPlan, scale: f64) -> Result<Array> {
    let (pages, page_rows, kv_heads, width) = keys.shape().dims4()?;
    let (rows, heads, query_width) = q.shape().dims3()?;
    let types_fit = keys.dtype() == q.dtype() && values.dtype() == q.dtype();
    let shapes_fit = values.dims() == keys.dims() && query_width == width && width <= MOST_COLUMNS;
    if !shapes_fit || !types_fit || kv_heads == 0 || heads % kv_heads != 0 {
        return refuse("attention", format!("q {:?} for pages {:?}", q.dims(), keys.dims()));
    }
    if [rows, heads / kv_heads, page_rows] != [plan.rows, plan.group, plan.page_rows] || pages < plan.pages {
        let (q, pages) = (q.dims(), keys.dims());
        return refuse("attention", format!("q {q:?} and pages {pages:?} for another plan"));
    }
    let device = q.device();
    let (requests, page_list) = (lock(&plan.requests), lock(&plan.page_list));
    let tasks = lock(&plan.tasks);
    let (requests, page_list, tasks) = (requests.view()?, page_list.view()?, tasks.view()?);
    let mut out = Array::like(q)?;
    launch(
        &device,
        ATTENTION,
        &sized("attention_paged", width, q.dtype())?,
        Grid { blocks: [tasks.dims()[0], kv_heads, 1], shared: forward_shared(width) },
        &mut [
            q.into(),
            keys.into(),
            values.into(),
            (&requests).into(),
            (&page_list).into(),
            (&tasks).into(),
            (&mut out).into(),
            int(page_rows)?,
            int(heads)?,
            int(kv_heads)?,
            int(width)?,
            (scale as f32).into(),
        ],
    )?;
    Ok(out)
}
