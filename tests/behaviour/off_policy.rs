//! Values learned from a policy that is some updates old.

#[path = "../../examples/off_policy_tabular/study.rs"]
mod study;

use study::{Method, NEWEST, Study, distance};

#[test]
fn with_stale_behaviour_v_trace_reaches_its_fixed_point_and_uncorrected_returns_only_their_own() {
    for staleness in [0, 4, 16] {
        for method in [
            Method::Vtrace { rho_bar: 1.0 },
            Method::Vtrace { rho_bar: f64::INFINITY },
            Method::Uncorrected,
        ] {
            let mut study = Study::new(7);
            let (target, behaviour) = (study.policy(NEWEST), study.policy(NEWEST - staleness));
            let found = study.learn(method, &target, &behaviour, 4000).unwrap();
            let from_fixed = distance(&found, &study.fixed_point(method, &target, &behaviour));
            assert!(from_fixed < 0.02, "{method:?}, {staleness} updates old: {from_fixed}");
            let from_newest = distance(&found, &study.values(&target));
            let corrected = method == Method::Vtrace { rho_bar: f64::INFINITY };
            if corrected || staleness == 0 {
                assert!(from_newest < 0.02, "{method:?}, {staleness} updates old: {from_newest}");
            } else {
                assert!(from_newest > 0.05, "{method:?}, {staleness} updates old: {from_newest}");
            }
        }
    }
}
