//! The layer and its parts against finite differences, their composed forms, and themselves in other batches.

use super::super::parallel::with_threads;
use super::super::testing::{check_gradients, close, offset, pseudo_random};
use super::*;
use candle_core::{DType, Device, Var};

/// N, k, E, D, F.
const CASES: [[usize; 5]; 5] =
    [[1, 1, 1, 1, 1], [4, 2, 3, 5, 2], [3, 1, 6, 1, 4], [7, 3, 4, 2, 3], [0, 2, 3, 4, 5]];

/// Ids that leave some experts without rows when there are few rows.
fn ids(rows: usize, k: usize, experts: usize) -> Tensor {
    let ids = (0..rows * k).map(|i| ((i / k * 3 + experts - 1 - i % k) % experts) as u32).collect();
    Tensor::from_vec::<_, u32>(ids, (rows, k), &Device::Cpu).unwrap()
}

/// x, weights, gate, up, down.
fn inputs([n, k, e, d, f]: [usize; 5], dtype: DType) -> [Tensor; 5] {
    let shapes = [vec![n, d], vec![n, k], vec![e, f, d], vec![e, f, d], vec![e, d, f]];
    let mut seed = 0;
    shapes.map(|shape| {
        seed += 1;
        pseudo_random(&shape, seed, dtype)
    })
}

fn run(t: &[Tensor], ids: &Tensor) -> Result<Tensor> {
    mixture(&t[0], ids, &t[1], &t[2], &t[3], &t[4])
}

/// One pair after the other, out of candle's own operators.
fn composed(t: &[Tensor], ids: &Tensor) -> Tensor {
    let rows = ids.to_vec2::<u32>().unwrap();
    let rows = rows.iter().enumerate().map(|(n, ids)| {
        let x = t[0].narrow(0, n, 1).unwrap();
        let mut sum = x.zeros_like().unwrap();
        for (j, &id) in ids.iter().enumerate() {
            let [gate, up, down] = [2, 3, 4].map(|i| t[i].get(id as usize).unwrap().t().unwrap());
            let hidden = x.matmul(&gate).unwrap().silu().unwrap() * x.matmul(&up).unwrap();
            let y = hidden.unwrap().matmul(&down).unwrap();
            let weight = t[1].narrow(0, n, 1).unwrap().narrow(1, j, 1).unwrap();
            sum = (sum + y.broadcast_mul(&weight).unwrap()).unwrap();
        }
        sum
    });
    Tensor::cat(&rows.collect::<Vec<_>>(), 0).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The result and the gradients of everything.
fn everything(t: &[Tensor; 5], ids: &Tensor) -> Vec<Vec<u32>> {
    let variables = t.clone().map(|t| Var::from_tensor(&t).unwrap());
    let views: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
    let result = run(&views, ids).unwrap();
    let gradients = result.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    let gradients = variables.iter().map(|v| bits(gradients.get(v).unwrap()));
    std::iter::once(bits(&result)).chain(gradients).collect()
}

#[test]
fn the_layer_agrees_with_its_experts_one_by_one() {
    for case in CASES.into_iter().filter(|case| case[0] > 0) {
        let t = inputs(case, DType::F32).map(|t| offset(&t));
        let ids = offset(&ids(case[0], case[1], case[2]));
        close(&run(&t, &ids).unwrap(), &composed(&t, &ids), 1e-5);
    }
}

#[test]
fn gradients_match_finite_differences() {
    for case in CASES.into_iter().filter(|case| case[0] > 0) {
        let ids = ids(case[0], case[1], case[2]);
        check_gradients(&inputs(case, DType::F64), |t| run(t, &ids));
    }
}

#[test]
fn each_part_agrees_with_its_composed_form() {
    for [n, k, e, d, f] in CASES.into_iter().filter(|case| case[0] > 0) {
        let plan = ExpertPlan::new(&ids(n, k, e), e).unwrap();
        let x = Var::from_tensor(&pseudo_random(&[n, d], 1, DType::F32)).unwrap();
        let weight = Var::from_tensor(&pseudo_random(&[e, f, d], 2, DType::F32)).unwrap();
        let weights = Var::from_tensor(&pseudo_random(&[n, k], 3, DType::F32)).unwrap();
        let own = || -> Result<Tensor> {
            combine(&expert_linear(&dispatch(&x, &plan)?, &weight, &plan)?, &weights, &plan)
        };
        let other = || -> Result<Tensor> {
            let y = grouped::composed(&exchange::composed_dispatch(&x, &plan)?, &weight, &plan)?;
            exchange::composed_combine(&y, &weights, &plan)
        };
        let [own, other] = [own().unwrap(), other().unwrap()].map(|result| {
            let gradients = result.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let of = |v: &Var| gradients.get(v).unwrap().clone();
            [of(&x), of(&weight), of(&weights), result]
        });
        for (own, other) in own.iter().zip(&other) {
            close(own, other, 2e-5);
        }
    }
}

#[test]
fn a_row_gives_the_same_bits_in_any_batch_on_any_threads_for_any_order_of_its_ids() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let (n, k, e) = (60, 3, 5);
    let t = inputs([n, k, e, 40, 33], DType::F32);
    let all_ids = ids(n, k, e);
    let rows = |first: usize, count: usize| {
        let mut t = t.clone();
        t[0] = t[0].narrow(0, first, count).unwrap();
        t[1] = t[1].narrow(0, first, count).unwrap();
        bits(&run(&t, &all_ids.narrow(0, first, count).unwrap()).unwrap())
    };
    let alone: Vec<u32> = (0..n).flat_map(|row| rows(row, 1)).collect();
    for (first, count) in [(0, n), (0, 17), (17, 43), (5, 2)] {
        let expected = &alone[first * 40..(first + count) * 40];
        assert_eq!(rows(first, count), expected);
        assert_eq!(with_threads(&pool, || rows(first, count)), expected);
    }
    let backwards = Tensor::new(&[2_u32, 1, 0], &Device::Cpu).unwrap();
    let mut turned = t.clone();
    turned[1] = turned[1].index_select(&backwards, 1).unwrap();
    let ids = all_ids.index_select(&backwards, 1).unwrap();
    assert_eq!(bits(&run(&turned, &ids).unwrap()), alone);
}

#[test]
fn threads_do_not_change_gradients_however_the_rows_are_spread() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let t = inputs([200, 2, 4, 64, 96], DType::F32);
    let even = ids(200, 2, 4);
    // Everything to experts 1 and 3: taken one by one.
    let uneven = Tensor::new(&[[1_u32, 3]], &Device::Cpu).unwrap().repeat((200, 1)).unwrap();
    for ids in [even, uneven] {
        let one = everything(&t, &ids);
        assert_eq!(one, everything(&t, &ids));
        assert_eq!(one, with_threads(&pool, || everything(&t, &ids)));
    }
}

#[test]
fn an_empty_batch_gives_an_empty_result_and_gradients_of_zero() {
    let variables = inputs(CASES[4], DType::F32).map(|t| Var::from_tensor(&t).unwrap());
    let [x, weights, gate, up, down] = &variables;
    let ids = ids(0, 2, 3);
    let result = mixture(x, &ids, weights, gate, up, down).unwrap();
    assert_eq!(result.dims(), [0, 4]);
    let gradients = result.sum_all().unwrap().backward().unwrap();
    // The product of two empty tensors forgets its second factor in candle, and so the gradient of `up`.
    for variable in [x, weights, gate, down] {
        let gradient = gradients.get(variable).unwrap();
        assert_eq!(gradient.dims(), variable.dims());
        assert!(bits(gradient).iter().all(|&bits| bits == 0));
    }
}

#[test]
fn rows_without_width_are_possible() {
    let plan = ExpertPlan::new(&ids(3, 2, 4), 4).unwrap();
    let zeros =
        |shape: &[usize]| Var::from_tensor(&Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap()).unwrap();
    let (x, weights, weight) = (zeros(&[3, 0]), zeros(&[3, 2]), zeros(&[4, 5, 0]));
    let rows = dispatch(&x, &plan).unwrap();
    assert_eq!(rows.dims(), [6, 0]);
    let y = combine(&rows, &weights, &plan).unwrap();
    assert!(y.dims() == [3, 0] && y.sum_all().unwrap().backward().is_ok());
    let y = expert_linear(&rows, &weight, &plan).unwrap();
    assert!(bits(&y).iter().all(|&bits| bits == 0) && y.sum_all().unwrap().backward().is_ok());
}

#[test]
fn strided_inputs_are_made_contiguous() {
    let case = [6, 2, 3, 4, 5];
    let t = inputs(case, DType::F32);
    let ids = ids(6, 2, 3);
    let strided = t.clone().map(|t| {
        let last = t.rank() - 1;
        t.transpose(0, last).unwrap().contiguous().unwrap().transpose(0, last).unwrap()
    });
    let strided_ids = ids.t().unwrap().contiguous().unwrap().t().unwrap();
    assert_eq!(bits(&run(&strided, &strided_ids).unwrap()), bits(&run(&t, &ids).unwrap()));
}

#[test]
fn untracked_inputs_cost_no_gradient() {
    let t = inputs([4, 2, 3, 5, 2], DType::F32);
    let gate = Var::from_tensor(&t[2]).unwrap();
    let result = mixture(&t[0], &ids(4, 2, 3), &t[1], &gate, &t[3], &t[4]).unwrap();
    let gradients = result.sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&gate).is_some());
    assert!([0, 1, 3, 4].iter().all(|&i| gradients.get(&t[i]).is_none()));
}

#[test]
fn a_nan_stays_in_its_row() {
    let mut t = inputs([3, 1, 2, 4, 5], DType::F32);
    let mut rows = t[0].to_vec2::<f32>().unwrap();
    rows[1][2] = f32::NAN;
    t[0] = Tensor::new(rows, &Device::Cpu).unwrap();
    let ids = Tensor::new(&[[1_u32], [1], [1]], &Device::Cpu).unwrap();
    let result = run(&t, &ids).unwrap().to_vec2::<f32>().unwrap();
    assert!(result[1].iter().all(|v| v.is_nan()));
    assert!(result[0].iter().chain(&result[2]).all(|v| v.is_finite()));
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let case = [4, 2, 3, 5, 2];
    let good_ids = ids(4, 2, 3);
    for place in 0..5 {
        let mut t = inputs(case, DType::F32);
        t[place] = Tensor::cat(&[&t[place], &t[place]], 0).unwrap();
        let message = run(&t, &good_ids).unwrap_err().to_string();
        assert!(message.contains("mixture refused") && message.contains("[E, D, F]"), "{message}");
    }
    let t = inputs(case, DType::F32);
    let beyond = Tensor::new(&[[0_u32, 1], [0, 1], [0, 3], [0, 1]], &Device::Cpu).unwrap();
    assert!(run(&t, &beyond).unwrap_err().to_string().contains("expert 3 of row 2"));
    let plan = ExpertPlan::new(&good_ids, 3).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    assert!(dispatch(&zeros(&[5, 2]), &plan).unwrap_err().to_string().contains("dispatch refused"));
    let combined = combine(&zeros(&[8, 2]), &zeros(&[2, 4]), &plan);
    assert!(combined.unwrap_err().to_string().contains("combine refused"));
    let product = expert_linear(&zeros(&[8, 2]), &zeros(&[4, 2, 2]), &plan);
    assert!(product.unwrap_err().to_string().contains("expert_linear refused"));
}
