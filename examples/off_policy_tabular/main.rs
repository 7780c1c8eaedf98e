//! What staleness does to values: `off_policy_tabular [--batches 20000] [--seeds 5]` prints, for each method and number
//! of updates that the acting policy is old, how far the learned values are from those of the newest policy, and from
//! the values that the method should settle at, as CSV.

mod study;

use std::process::ExitCode;

use study::{Method, NEWEST, Study, distance};

fn argument(name: &str, default: usize) -> Result<usize, String> {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(place) = arguments.iter().position(|argument| argument == name) else { return Ok(default) };
    let value = arguments.get(place + 1).ok_or_else(|| format!("{name} needs a number behind it"))?;
    value.parse().map_err(|_| format!("{name} is `{value}`; give a whole number"))
}

fn run() -> Result<(), String> {
    let (batches, seeds) = (argument("--batches", 20_000)?, argument("--seeds", 5)?);
    println!("method,staleness,seed,from_newest_policy,from_fixed_point");
    for staleness in [0, 1, 2, 4, 8, 16, 32] {
        for (name, method) in [
            ("V-trace", Method::Vtrace { rho_bar: 1.0 }),
            ("V-trace, rho_bar = inf", Method::Vtrace { rho_bar: f64::INFINITY }),
            ("uncorrected n-step", Method::Uncorrected),
        ] {
            for seed in 0..seeds {
                let mut study = Study::new(seed as u64);
                let (target, behaviour) = (study.policy(NEWEST), study.policy(NEWEST - staleness));
                let found =
                    study.learn(method, &target, &behaviour, batches).map_err(|error| error.to_string())?;
                let from_newest = distance(&found, &study.values(&target));
                let from_fixed = distance(&found, &study.fixed_point(method, &target, &behaviour));
                println!("\"{name}\",{staleness},{seed},{from_newest:.5},{from_fixed:.5}");
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("off_policy_tabular: {error}");
            ExitCode::FAILURE
        }
    }
}
