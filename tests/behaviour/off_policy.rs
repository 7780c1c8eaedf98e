//! Values learned from a policy that is some updates old.

#[path = "../../examples/off_policy_tabular/study.rs"]
mod study;

use study::{Method, NEWEST, Study, distance};

#[test]
fn with_stale_behaviour_v_trace_reaches_its_fixed_point_and_uncorrected_returns_only_their_own() {
    for staleness in [0, 8, 16] {
        let from_newest = |method| {
            let mut study = Study::new(7);
            let (target, behaviour) = (study.policy(NEWEST), study.policy(NEWEST - staleness));
            let found = study.learn(method, &target, &behaviour, 2000).unwrap();
            let from_fixed = distance(&found, &study.fixed_point(method, &target, &behaviour));
            assert!(from_fixed < 0.02, "{method:?}, {staleness} updates old: {from_fixed}");
            distance(&found, &study.values(&target))
        };
        let unbounded = from_newest(Method::Vtrace { rho_bar: f64::INFINITY });
        let bounded = from_newest(Method::Vtrace { rho_bar: 1.0 });
        let uncorrected = from_newest(Method::Uncorrected);
        assert!(unbounded < 0.02, "{staleness} updates old: {unbounded}");
        if staleness == 0 {
            assert!(bounded < 0.02 && uncorrected < 0.02, "{bounded} {uncorrected}");
        } else {
            assert!(uncorrected > 0.05 && uncorrected > 2.0 * bounded, "{bounded} {uncorrected}");
        }
    }
}
