//! Every small case in emulation.

use candle_core::{Device, Tensor};

use super::case::values;
use super::{Size, cases};
use crate::ops::cuda::run_threads_backwards;

fn bits(results: &[Tensor]) -> Vec<u64> {
    results.iter().flat_map(|result| values(result).unwrap()).map(f64::to_bits).collect()
}

#[test]
fn every_kernel_agrees_with_its_reference_whatever_the_order_of_its_threads() {
    let mut failures = Vec::new();
    for case in cases(Size::Small).unwrap() {
        let inputs = case.inputs_on(&Device::Cpu).unwrap();
        let outcome = (case.kernel)(&inputs).and_then(|results| {
            let backwards = run_threads_backwards(|| (case.kernel)(&inputs))?;
            Ok((case.largest_difference(&results)?, bits(&results) == bits(&backwards)))
        });
        match outcome {
            Ok((difference, same)) if difference <= case.bound && same => {
                println!("{:60} {difference:.1e} of {:.1e}", case.name, case.bound);
            }
            Ok((difference, same)) => {
                failures.push(format!("{}: difference {difference:e}, same bits backwards: {same}", case.name));
            }
            Err(error) => failures.push(format!("{}: {error}", case.name)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
